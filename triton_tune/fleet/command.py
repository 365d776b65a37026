"""What a tuning command does with the arguments of `fleet.options`."""

import argparse
from collections.abc import Callable

import torch
import triton

from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.core.bench import Bench
from triton_tune.core.device import devices_from
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem
from triton_tune.fleet.calibrated import CalibratedBench
from triton_tune.fleet.calibration import calibration_of
from triton_tune.fleet.on_ray import connected, gpu_source
from triton_tune.fleet.plan import FleetPlan, Prepared
from triton_tune.fleet.run import run_fleet
from triton_tune.fleet.shards import problem_of_shard
from triton_tune.fleet.station import WorkerFacts
from triton_tune.run.fill import SearchPlan, fill


def part_of(options: argparse.Namespace, problem: SearchProblem) -> SearchProblem:
    """The problem of --shard, or the whole one."""
    return problem_of_shard(problem, options.shard) if options.shard else problem


def folder_name(options: argparse.Namespace, device: str) -> str:
    """The name of the table's folder for a device's key; each shard has its own."""
    return f"{device}{options.shard.suffix}" if options.shard else device


def measure_here(options: argparse.Namespace, gpus: GpuBench, prepared: Prepared) -> int:
    """Measure on this host's GPUs, as --shard wants. Returns the exit code of `fill`."""
    gpus.configs = prepared.configs
    plan = SearchPlan(part_of(options, prepared.problem), options.strategy, options.budget)
    with prepared.create() as table:
        bench: Bench = gpus
        if options.shard:
            bench = CalibratedBench(gpus, calibration_of(prepared.problem), table.folder)
        return fill(table, bench, plan, lambda: prepared.begin(table))


def measure_on_ray(
    options: argparse.Namespace,
    subject: Subject,
    source_hash: Callable[[], str],
    prepare: Callable[[WorkerFacts], Prepared],
) -> int:
    """Measure on the GPUs of a Ray cluster. Returns the exit code. Raises TuningError for wrong arguments.

    source_hash: is called by each worker, too.
    """
    if options.shard or options.gpus not in ("all", "cpu"):
        raise TuningError("--ray goes with neither --shard nor numbers of --gpus: Ray divides work and GPUs")
    if options.gpus == "cpu":
        devices_from("cpu", "")
    versions = {
        "torch": str(torch.__version__),
        "triton": triton.__version__,
        "source_hash": source_hash(),
    }
    with connected(options.ray or None) as ray:
        source = gpu_source(
            ray,
            subject,
            source_hash,
            compile_workers=options.compile_workers,
            count=options.ray_workers,
            interpreter=options.gpus == "cpu",
        )
        return run_fleet(source, FleetPlan(prepare, versions, options.strategy, options.budget))

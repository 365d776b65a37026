"""What a tuning command does with the arguments of `fleet.options`."""

import argparse
from collections.abc import Callable

from triton_tune.bench.pool import Subject
from triton_tune.core.device import devices_from
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem
from triton_tune.fleet.on_ray import RayBench, Workers, connected
from triton_tune.fleet.options import problem_of_shard
from triton_tune.fleet.worker import GpuWorker, WorkerFacts, versions
from triton_tune.run.fill import fill
from triton_tune.run.workload import Space
from tuning_table import TableWriter
from tuning_table.visit_log import log_visits

# From the facts of the first worker to what is measured on its GPU model, and the open table.
OpenTable = Callable[[WorkerFacts], tuple[Space, TableWriter]]


def part_of(options: argparse.Namespace, problem: SearchProblem) -> SearchProblem:
    """The problem of --shard, or the whole one."""
    return problem_of_shard(problem, options.shard) if options.shard else problem


def measure_on_ray(
    options: argparse.Namespace,
    subject: Subject,
    source_hash: Callable[[], str],
    prepare: OpenTable,
) -> int:
    """Measure on the GPUs of a Ray cluster. Returns the exit code of `fill`.

    source_hash: is called by each worker, too. Raises TuningError and TableError.
    """
    if options.gpus not in ("all", "cpu"):
        raise TuningError(f"--ray with --gpus {options.gpus}: Ray chooses the GPUs; leave out --gpus")
    interpreter = options.gpus == "cpu"
    if interpreter:
        devices_from("cpu")
    with connected(options.ray or None) as ray:
        workers = Workers(
            ray,
            GpuWorker,
            (ray.put(subject), source_hash, options.compile_workers, interpreter),
            versions(source_hash()),
            num_gpus=0 if interpreter else 1,
            count=options.ray_workers or (1 if interpreter else None),
            accelerator=options.ray_accelerator,
        )
        return measure_on_workers(workers, options.strategy, options.budget, prepare)


def measure_on_workers(workers: Workers, strategy: str, budget: float, prepare: OpenTable) -> int:
    """Measure on workers of the GPU model of the first that comes. Returns the exit code of `fill`."""
    space, table = prepare(workers.first())
    with table:
        bench = RayBench(
            workers, space.problem, space.configs, lambda measured: log_visits(table.folder, measured)
        )
        return fill(table, bench, space.problem, strategy, budget, space.begin)

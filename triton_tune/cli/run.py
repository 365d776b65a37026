"""A run of `triton-tune`: from the user's file to a table."""

import argparse
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton

from triton_tune.bench.devices import devices_from
from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.core.device import device_facts, driver_version
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem
from triton_tune.fleet.command import Prepared, folder_name, measure_here, measure_on_ray
from triton_tune.fleet.worker import WorkerFacts, facts_here
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.loading import load_tunings, named
from triton_tune.kernel.measuring import TIMING, KernelFile
from triton_tune.kernel.scenarios import KernelScenarios, find_scenarios
from triton_tune.kernel.tuning import Tuning
from triton_tune.run.progress import check_rich
from tuning_table import TableWriter, create
from tuning_table.names import device_key

WITHOUT_GPU = "--dry-run describes the run, and TRITON_INTERPRET=1 with --gpus cpu runs it on the CPU"


def run(options: argparse.Namespace) -> int:
    """Do what the command's arguments ask for. Returns its exit code. Raises TuningError and TableError."""
    check_rich("triton-tune")
    name, tuning = _tuning(options)
    kernel = AutotunedKernel(tuning.kernel)
    if options.dry_run:
        device = torch.device("cuda" if torch.cuda.is_available() and options.gpus != "cpu" else "cpu")
        print("\n".join(_described(name, find_scenarios(kernel, tuning, device))))
        return 0
    file = KernelFile(options.file.resolve(), name)
    if options.ray is not None:
        return _run_on_ray(options, name, tuning, file)
    devices = devices_from(options.gpus, WITHOUT_GPU)
    scenarios = find_scenarios(kernel, tuning, devices[0])
    print("\n".join(_described(name, scenarios)), flush=True)
    if options.empty:
        with _table(options, name, kernel, scenarios, device_facts(devices[0]), driver_version()) as table:
            print(f"{table.folder}: a table without times; treegen init {table.folder}")
        return 0
    subject = Subject(scenarios.shapes, file.measure, file.job_for)
    with GpuBench(devices, subject, options.compile_workers) as bench:
        prepared = _prepared(options, name, kernel, scenarios, facts_here(bench))
        status = measure_here(options, bench, prepared)
        folder = _folder(options, name, bench.facts)
    if not status and not Path("treegen.yaml").exists() and not options.shard:
        print(f"next: treegen init {folder}; treegen build")
    return status


def _run_on_ray(options: argparse.Namespace, name: str, tuning: Tuning, file: KernelFile) -> int:
    """Measure on Ray's GPUs. Shapes are read here, on a GPU if there is one; all hosts need the same file."""
    kernel = AutotunedKernel(tuning.kernel)
    device = torch.device("cuda" if torch.cuda.is_available() and options.gpus != "cpu" else "cpu")
    scenarios = find_scenarios(kernel, tuning, device)
    print("\n".join(_described(name, scenarios)), flush=True)
    return measure_on_ray(
        options,
        Subject(scenarios.shapes, file.measure, file.job_for),
        file.source_hash,
        lambda facts: _prepared(options, name, kernel, scenarios, facts),
    )


def _prepared(
    options: argparse.Namespace,
    name: str,
    kernel: AutotunedKernel,
    scenarios: KernelScenarios,
    facts: WorkerFacts,
) -> Prepared:
    return Prepared(
        scenarios.problem,
        {config: config for config in kernel.configs},
        lambda: _table(options, name, kernel, scenarios, facts.device, facts.versions["driver"]),
    )


def _folder(options: argparse.Namespace, name: str, facts: Mapping[str, str | int]) -> Path:
    return Path(options.out) / name / folder_name(options, device_key(str(facts["name"])))


def _tuning(options: argparse.Namespace) -> tuple[str, Tuning]:
    found = load_tunings(options.file)
    if options.kernel is not None:
        return options.kernel, named(found, options.kernel, options.file)
    if len(found) > 1:
        raise TuningError(f"{options.file}: defines several: choose one with --kernel: {', '.join(found)}")
    return next(iter(found.items()))


def _described(name: str, scenarios: KernelScenarios) -> list[str]:
    problem = scenarios.problem
    words = [f"{feature} ({', '.join(known)})" for feature, known in scenarios.words.items()]
    plain = [feature for feature in scenarios.features if feature not in scenarios.words]
    lines = [
        f"{name}: {len(problem.scenarios)} shapes, {len(problem.configs)} configs, {problem.possible} cells; "
        f"early_config_prune leaves out {scenarios.excluded}",
        f"features: {', '.join([*plain, *words])}",
    ]
    for first, *others in _alike(problem):
        what = f"{len(others)} more shapes have" if len(others) > 1 else f"{others[0]} has"
        lines.append(
            f"warning: {what} the same features as {first}: a tree cannot tell them apart; add a feature"
        )
    return lines


def _alike(problem: SearchProblem) -> list[list[str]]:
    """The scenarios with equal features, together."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for scenario, features in problem.features.items():
        groups.setdefault(tuple(features.values()), []).append(scenario)
    return [group for group in groups.values() if len(group) > 1]


def _table(
    options: argparse.Namespace,
    name: str,
    kernel: AutotunedKernel,
    scenarios: KernelScenarios,
    facts: Mapping[str, str | int],
    driver: str,
) -> TableWriter:
    """Create the run's table, or go on with it."""
    used = scenarios.problem.configs
    words = {feature: list(known) for feature, known in scenarios.words.items()}
    provenance: dict[str, Any] = {"values": words} if words else {}
    return create(
        _folder(options, name, facts),
        kernel=name,
        device=facts,
        timing="one launch by the host's clock" if facts["arch"] == "cpu" else TIMING,
        driver=driver,
        torch=str(torch.__version__),
        triton=triton.__version__,
        source_hash=kernel.source_hash(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        scenario_set=options.file.name,
        strategy=options.strategy,
        features=scenarios.features,
        configs=[{"id": c.id, **c.parameters} for c in kernel.configs.values() if c.id in used],
        scenarios={s: list(row.values()) for s, row in scenarios.problem.features.items()},
        **provenance,
    )

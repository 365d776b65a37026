"""`triton-tune RECORD`: tune all kernels of a record in one run, with a table each."""

import argparse
import contextlib
import pickle
import shlex
import shutil
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import torch

from triton_tune.bench.pool import GpuBench, Workload
from triton_tune.cli.command import create_table, next_commands, table_folder
from triton_tune.core.device import devices_from, facts_of, memory_bytes
from triton_tune.core.errors import TuningError, in_one_line
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.measuring import CompileJob, KernelFile
from triton_tune.kernel.recorded import load_recorded
from triton_tune.kernel.workload import workload_on
from triton_tune.launch.install import packages_in, tuned_kernel
from triton_tune.processes.compile_ahead import compile_in_parallel
from triton_tune.run.fill import GO_ON, Run, fails, without_time
from triton_tune.search.race import worth
from tuning_table import TableWriter
from tuning_table.command_line import INTERRUPTED
from tuning_table.table import RUN


def workloads_of(folder: Path, device: torch.device) -> tuple[dict[str, Workload], dict[str, str]]:
    """What to measure of a record's kernels, and why not of others, which it prints. Raises TuningError."""
    recorded = load_recorded(folder)
    found, refused = {}, dict(recorded.refused)
    limit = memory_bytes(device)
    for name, tuning in recorded.tunings.items():
        try:
            if (needed := tuning.least_bytes) > limit > 0:
                raise TuningError(f"its tensors take {needed:.1e} bytes, and {device} has {limit:.1e}")
            found[name] = workload_on(KernelFile(folder, name), device)
        except TuningError as error:
            refused[tuning.function] = str(error)
    if not found:
        function, why = next(iter(refused.items()))
        raise TuningError(f"{folder}: none of {len(refused)} kernels can be tuned: {function}: {why}")
    for function, why in refused.items():
        print(f"left out: {function}: {why}")
    return found, refused


def run_record(options: argparse.Namespace) -> int:
    """Tune every kernel of a record within one budget, or describe that.

    Returns 0; 1 if kernels have no config that works in more than MOST_WITHOUT of their scenarios; 130 after
    Ctrl-C. Raises TuningError and TableError.
    """
    folder = options.file.resolve()
    dry = options.dry_run and not torch.cuda.is_available()
    devices = [torch.device("cpu")] if dry else devices_from(options.gpus)
    tunings = load_recorded(folder).tunings
    if options.dry_run:
        for name, workload in workloads_of(folder, devices[0])[0].items():
            print(f"{tunings[name].weight:6.1%}  {workload.lines[0]}")
        return 0
    facts, load = facts_of(devices), partial(load_recorded, folder)
    with contextlib.ExitStack() as stack:
        bench = stack.enter_context(closing(GpuBench(devices, options.compile_workers, load)))
        workloads, refused = workloads_of(folder, devices[0])
        bench.begin(*workloads.values())

        def create(name: str) -> TableWriter:
            return stack.enter_context(create_table(options, workloads[name], facts))

        weights = {name: tunings[name].weight for name in workloads}
        problems = {name: workload.problem for name, workload in workloads.items()}
        folders = {name: table_folder(options, workload, facts) for name, workload in workloads.items()}
        tables = {name: create(name) for name, path in folders.items() if (path / RUN).exists()}
        run = Run(bench, problems, tables, create, weights, options.strategy, options.budget)
        if not run.measure():
            return INTERRUPTED
        run.save()
        for name, table in list(run.tables.items()):
            times = run.times_of(name)
            if not any(map(times.medians, problems[name].scenarios)):
                function, reasons = tunings[name].function, times.failures()
                if reasons:  # else it has had no turn
                    refused[function] = max(reasons, key=reasons.__getitem__)
                    print(f"left out: {function}: {refused[function]}")
                table.close()  # a build refuses tables without times
                del run.tables[name]
                shutil.rmtree(table.folder)
                with contextlib.suppress(OSError):  # it has other devices' tables
                    table.folder.parent.rmdir()
        return _report(run, weights, len(refused))


def _report(run: Run, weights: Mapping[str, float], num_refused: int) -> int:
    """Print a line for each kernel, and what is wrong. Returns the exit code."""
    folders = [table.folder for table in run.tables.values()]
    usable: list[Path] = []  # a build would refuse the others
    for name, table in run.tables.items():
        problem, times = run.problems[name], run.times_of(name)
        seen = sum(bool(times.measured(scenario)) for scenario in problem.scenarios)
        value = worth(problem, times)
        expected = f", choices {value.choice:.2f}x, single {value.single:.2f}x" if value else ""
        cells = f"{times.num_measured()} of {problem.possible} cells"
        print(f"{weights[name]:6.1%}  {table.folder}: {seen} shapes, {cells}{expected}")
        if without := without_time(problem, times):
            reasons = times.failures(without)
            most = max(reasons, key=reasons.__getitem__)
            print(f"        no config works in {len(without)} shapes, mostly: {most}")
        if name in run.search.gave_up:
            print(f"        ended early: {run.search.gave_up[name]}")
        usable += [] if fails(problem, times) else [table.folder]
    untouched = [name for name in run.problems if not run.times_of(name).num_visits]
    if untouched:
        print(f"not measured yet: {', '.join(untouched)}; {GO_ON}")
    if early := run.tables.keys() - run.search.ended:
        print(f"the budget ended before {len(early)} of {len(folders)} kernels were finished; {GO_ON}")
    counts = f"{len(folders)} kernels measured, {len(untouched)} not yet, {num_refused} left out"
    if not usable:
        print(counts)
        return int(bool(folders) or not untouched)
    pattern = ""
    if len(usable) == len(folders):
        pattern = f"{shlex.quote(str(folders[0].parent.parent))}/*/{folders[0].name}"
    print(f"{counts}; next: {next_commands(usable, pattern)}")
    return int(len(usable) < len(folders))


def compile_ahead(folder: Path, package: str, gpus: str, workers: int | None) -> str:
    """Compile what the heuristics choose for the launches of a record, and return a line about it."""
    device = devices_from(gpus)[0]
    try:
        modules = packages_in(package)
    except Exception as error:  # whatever importing it raises
        raise TuningError(f"--use {package}: {in_one_line(error)}") from None
    workloads, refused = workloads_of(folder.resolve(), device)
    tunings = load_recorded(folder.resolve()).tunings
    jobs = []
    for name, workload in workloads.items():
        if tunings[name].function not in modules:
            continue
        ours = AutotunedKernel(tuned_kernel(tunings[name].kernel, modules[tunings[name].function]))
        for shape in workload.scenarios.values():
            chosen = ours.chosen(pickle.loads(shape.launch)) if shape.launch is not None else None
            if chosen is not None:
                jobs.append(CompileJob(shape, chosen, device))
    return f"{compile_in_parallel(dict.fromkeys(jobs), device, workers)}; {len(refused)} left out"

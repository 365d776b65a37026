"""`triton-tune RECORD`: tune all kernels of a record in one run, with a table each."""

import argparse
import contextlib
import pickle
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.cli.command import create_table, table_folder
from triton_tune.core.arguments import INTERRUPTED
from triton_tune.core.device import devices_from
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Times
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.measuring import KernelFile, Shape, job_for, judges_of, prepare
from triton_tune.kernel.recorded import load_recorded
from triton_tune.kernel.workload import workload_on
from triton_tune.processes.compile_ahead import CompileAhead
from triton_tune.run.fill import SUMMARY_EVERY_S, summarise
from triton_tune.run.progress import Progress
from triton_tune.run.workload import Space, Workload
from triton_tune.search.loop import tune
from triton_tune.search.together import BETWEEN, Together
from triton_tune.search.worth import worth
from tuning_table import TableWriter
from tuning_table.table import MOST_WITHOUT, RUN, Visit


def workloads_of(folder: Path, device: torch.device) -> tuple[dict[str, Workload], dict[str, str]]:
    """What to measure of each kernel of a record, and why others are left out, by `module:function`."""
    recorded = load_recorded(folder)
    found, refused = {}, dict(recorded.refused)
    for name in recorded.tunings:
        try:
            found[name] = workload_on(KernelFile(folder, name), device)
        except TuningError as error:
            refused[recorded.functions[name]] = str(error)
    if not found:
        function, why = next(iter(refused.items()))
        raise TuningError(f"{folder}: none of {len(refused)} kernels can be tuned: {function}: {why}")
    return found, refused


def scenarios_of(workloads: Mapping[str, Workload]) -> dict[str, Shape]:
    return {
        f"{name}{BETWEEN}{scenario}": shape
        for name, workload in workloads.items()
        for scenario, shape in workload.subject.scenarios.items()
    }


def run_record(options: argparse.Namespace) -> int:
    """Tune every kernel of a record within one budget, or describe that.

    Returns 0; 1 if kernels have no config that works in more than MOST_WITHOUT of their scenarios; 130 after
    Ctrl-C. Raises TuningError and TableError.
    """
    folder = options.file.resolve()
    dry = options.dry_run and not torch.cuda.is_available()
    devices = [torch.device("cpu")] if dry else devices_from(options.gpus)
    recorded = load_recorded(folder)
    weights = recorded.weights

    def look() -> tuple[dict[str, Workload], dict[str, str]]:
        workloads, refused = workloads_of(folder, devices[0])
        for function, why in refused.items():
            print(f"left out: {function}: {why}")
        return workloads, refused

    if options.dry_run:
        for name, workload in look()[0].items():
            print(f"{weights[name]:6.1%}  {workload.space({}).lines[0]}")
        return 0
    load = partial(_load, folder)
    with GpuBench(devices, options.compile_workers, load) as bench, contextlib.ExitStack() as stack:
        workloads, refused = look()
        bench.begin(Subject(scenarios_of(workloads), prepare, job_for, judges_of))
        spaces = {name: workload.space(bench.facts) for name, workload in workloads.items()}
        bench.configs = {config: config for space in spaces.values() for config in space.configs}
        tables = _Tables(options, workloads, spaces, bench.facts, stack)
        problems = {name: space.problem for name, space in spaces.items()}
        times = {name: Times(tables.visits(name)) for name in workloads}
        together = Together(problems, weights, times, options.strategy)
        spent = tables.spent
        start = written = bench.clock()

        def save() -> None:
            seconds = spent + bench.clock() - start
            cells = sum(t.num_measured() for t in times.values())
            for name, table in tables.opened.items():
                mine = seconds * times[name].num_measured() / max(1, cells)
                table.summarise(summarise(problems[name], times[name], mine, name in together.finished))

        def tick() -> None:
            nonlocal written
            if bench.clock() - written > SUMMARY_EVERY_S:
                written = bench.clock()
                save()

        def note(visit: Visit) -> None:
            name, own = together.add(visit)
            tables.of(name).append(own.scenario, own.cells, own.repeat)

        try:
            with Progress(options.budget, spent, tick) as progress:
                tune(together, bench, Times(), note, progress, budget=options.budget, spent=spent)
        except KeyboardInterrupt:
            save()
            print("\nstopped; the tables keep their rows; the same command goes on from there")
            return INTERRUPTED
        save()
        for name in list(tables.opened):
            if not any(map(times[name].medians, problems[name].scenarios)):
                function, reasons = recorded.functions[name], times[name].failures()
                refused[function] = max(reasons, key=reasons.__getitem__, default="nothing was timed")
                print(f"left out: {function}: {refused[function]}")
                tables.remove(name)  # a build refuses tables without times
        return _report(tables, spaces, times, together, weights, refused)


def _load(folder: Path) -> None:
    load_recorded(folder)


class _Tables:
    """The tables of all kernels; one is made for its kernel's first visit.

    spent: seconds of earlier runs.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        workloads: Mapping[str, Workload],
        spaces: Mapping[str, Space],
        facts: Mapping[str, str | int],
        stack: contextlib.ExitStack,
    ) -> None:
        self._options, self._workloads, self._spaces = options, workloads, spaces
        self._facts, self._stack = facts, stack
        self.opened: dict[str, TableWriter] = {}
        for name, workload in workloads.items():
            if (table_folder(options, workload, facts) / RUN).exists():
                self.of(name)
        self.spent = sum(table.header.seconds for table in self.opened.values())

    def of(self, name: str) -> TableWriter:
        if name not in self.opened:
            workload, space = self._workloads[name], self._spaces[name]
            table = create_table(self._options, workload, space, self._facts)
            self.opened[name] = self._stack.enter_context(table)
        return self.opened[name]

    def remove(self, name: str) -> None:
        table = self.opened.pop(name)
        table.close()
        shutil.rmtree(table.folder)
        with contextlib.suppress(OSError):  # it has other devices' tables
            table.folder.parent.rmdir()

    def visits(self, name: str) -> Sequence[Visit]:
        return self.opened[name].visits if name in self.opened else ()


def _report(
    tables: _Tables,
    spaces: Mapping[str, Space],
    times: Mapping[str, Times],
    together: Together,
    weights: Mapping[str, float],
    refused: Mapping[str, str],
) -> int:
    """Print a line for each kernel, and what is wrong. Returns the exit code."""
    status = 0
    for name, table in tables.opened.items():
        problem, found = spaces[name].problem, times[name]
        seen = [s for s in problem.scenarios if found.measured(s)]
        without = [s for s in seen if not found.medians(s)]
        status |= len(without) > MOST_WITHOUT * max(1, len(seen))
        value = worth(problem, found)
        expected = f", choices {value.choice:.2f}x, single {value.single:.2f}x" if value else ""
        cells = f"{found.num_measured()} of {problem.possible} cells"
        print(f"{weights[name]:6.1%}  {table.folder}: {len(seen)} shapes, {cells}{expected}")
        reasons = sorted(found.failures().items(), key=lambda pair: -pair[1])
        if without:
            print(f"        no config works in {len(without)} shapes, mostly: {reasons[0][0]}")
        if name in together.gave_up:
            print(f"        ended early: {together.gave_up[name]}")
    untouched = [name for name in spaces if name not in tables.opened and not times[name].num_visits]
    if untouched:
        print(f"not measured yet: {', '.join(untouched)}; the same command with a larger --budget goes on")
    counts = f"{len(tables.opened)} kernels measured, {len(untouched)} not yet, {len(refused)} left out"
    print(f"{counts}; next: treegen init {tables_pattern(tables)} && treegen build")
    return int(status)


def tables_pattern(tables: _Tables) -> str:
    folders = {table.folder.parent.parent for table in tables.opened.values()}
    names = {table.folder.name for table in tables.opened.values()}
    return f"{min(folders, default=Path('tuning_data'))}/*/{min(names, default='*')}"


def compile_ahead(folder: Path, package: str, gpus: str, workers: int | None) -> str:
    """Compile what the heuristics choose for the launches of a record, and return a line about it."""
    from triton_tune.launch.install import packages_in, tuned_kernel

    device = devices_from(gpus)[0]
    try:
        modules = packages_in(package)
    except (ModuleNotFoundError, ValueError) as error:
        raise TuningError(f"--use {package}: {error}") from None
    workloads, refused = workloads_of(folder.resolve(), device)
    recorded = load_recorded(folder.resolve())
    jobs = []
    for name, workload in workloads.items():
        tuning = recorded.tunings[name]
        if recorded.functions[name] not in modules:
            continue
        ours = AutotunedKernel(tuned_kernel(tuning.kernel, modules[recorded.functions[name]]))
        for shape in workload.subject.scenarios.values():
            chosen = ours.chosen(pickle.loads(shape.launch)) if shape.launch is not None else None
            if chosen is not None:
                jobs.append(job_for(shape, chosen, device))
    with CompileAhead(device, workers) as processes:
        done = processes.compile(dict.fromkeys(jobs))
    return f"{done.jobs} kernels compiled ahead, {done.failed} failed, {len(refused)} left out"

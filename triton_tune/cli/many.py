"""`triton-tune RECORD`: tune all kernels of a record in one run, with a table each."""

import argparse
import contextlib
import pickle
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch

from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.cli.command import create_table, table_folder
from triton_tune.core.device import devices_from, memory_bytes
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Times
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.measuring import KernelFile, job_for, judges_of, prepare
from triton_tune.kernel.recorded import load_recorded
from triton_tune.kernel.workload import workload_on
from triton_tune.launch.install import packages_in, tuned_kernel
from triton_tune.processes.compile_ahead import CompileAhead
from triton_tune.run.fill import GO_ON, Filling, measure, save_all
from triton_tune.run.workload import Space, Workload
from triton_tune.search.together import BETWEEN, Together
from triton_tune.search.worth import worth
from tuning_table.command_line import INTERRUPTED
from tuning_table.table import RUN, Visit


def workloads_of(folder: Path, device: torch.device) -> tuple[dict[str, Workload], dict[str, str]]:
    """What to measure of each kernel of a record, and why others are left out, by `module:function`.

    Prints a line for each of the latter. Raises TuningError if nothing is left.
    """
    recorded = load_recorded(folder)
    found, refused = {}, dict(recorded.refused)
    limit = memory_bytes(device)
    for name, function in recorded.functions.items():
        try:
            if (needed := recorded.least_bytes[name]) > limit > 0:
                raise TuningError(f"its tensors take {needed:.1e} bytes, and {device} has {limit:.1e}")
            found[name] = workload_on(KernelFile(folder, name), device)
        except TuningError as error:
            refused[function] = str(error)
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
    recorded = load_recorded(folder)
    if options.dry_run:
        for name, workload in workloads_of(folder, devices[0])[0].items():
            print(f"{recorded.weights[name]:6.1%}  {workload.space({}).lines[0]}")
        return 0
    load = partial(load_recorded, folder)
    with GpuBench(devices, options.compile_workers, load) as bench, contextlib.ExitStack() as stack:
        workloads, refused = workloads_of(folder, devices[0])
        scenarios = {
            f"{name}{BETWEEN}{scenario}": shape
            for name, workload in workloads.items()
            for scenario, shape in workload.subject.scenarios.items()
        }
        bench.begin(Subject(scenarios, prepare, job_for, judges_of))
        tables = _Tables(options, workloads, bench.facts, stack)
        bench.configs = {config: config for space in tables.spaces.values() for config in space.configs}
        problems = {name: space.problem for name, space in tables.spaces.items()}
        spent = sum(filling.table.header.seconds for filling in tables.opened.values())
        used = min(1.0, spent / options.budget)
        together = Together(problems, recorded.weights, tables.times, options.strategy, used)

        def note(visit: Visit) -> None:
            name, own = together.add(visit)
            tables.of(name).append(own)

        def fillings() -> Iterator[tuple[Filling, bool]]:
            return ((filling, name in together.finished) for name, filling in tables.opened.items())

        done = measure(together, bench, Times(), note, fillings, budget=options.budget, spent=spent)
        if done is None:
            return INTERRUPTED
        save_all(fillings(), done[1])
        for name, filling in list(tables.opened.items()):
            if not any(map(filling.times.medians, filling.problem.scenarios)):
                function, reasons = recorded.functions[name], filling.times.failures()
                refused[function] = max(reasons, key=reasons.__getitem__, default="nothing was timed")
                print(f"left out: {function}: {refused[function]}")
                tables.remove(name)  # a build refuses tables without times
        return _report(tables, together, recorded.weights, len(refused))


class _Tables:
    """The tables of all kernels. One is made for its kernel's first visit, or was by an earlier run.

    times: of all kernels, also of those without a table.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        workloads: Mapping[str, Workload],
        facts: Mapping[str, str | int],
        stack: contextlib.ExitStack,
    ) -> None:
        self._options, self._workloads, self._facts, self._stack = options, workloads, facts, stack
        self.spaces: dict[str, Space] = {name: workload.space(facts) for name, workload in workloads.items()}
        self.times = {name: Times() for name in workloads}
        self.opened: dict[str, Filling] = {}
        for name, workload in workloads.items():
            if (table_folder(options, workload, facts) / RUN).exists():
                for visit in self.of(name).table.visits:
                    self.times[name].add(visit)

    def of(self, name: str) -> Filling:
        if name not in self.opened:
            space = self.spaces[name]
            table = create_table(self._options, self._workloads[name], space, self._facts)
            self.opened[name] = Filling(self._stack.enter_context(table), space.problem, self.times[name])
        return self.opened[name]

    def remove(self, name: str) -> None:
        table = self.opened.pop(name).table
        table.close()
        shutil.rmtree(table.folder)
        with contextlib.suppress(OSError):  # it has other devices' tables
            table.folder.parent.rmdir()


def _report(tables: _Tables, together: Together, weights: Mapping[str, float], num_refused: int) -> int:
    """Print a line for each kernel, and what is wrong. Returns the exit code."""
    for name, filling in tables.opened.items():
        problem, times, without = filling.problem, filling.times, filling.without()
        seen = sum(bool(times.measured(scenario)) for scenario in problem.scenarios)
        value = worth(problem, times)
        expected = f", choices {value.choice:.2f}x, single {value.single:.2f}x" if value else ""
        cells = f"{times.num_measured()} of {problem.possible} cells"
        print(f"{weights[name]:6.1%}  {filling.table.folder}: {seen} shapes, {cells}{expected}")
        if without:
            reasons = times.failures(without)
            most = max(reasons, key=reasons.__getitem__)
            print(f"        no config works in {len(without)} shapes, mostly: {most}")
        if name in together.gave_up:
            print(f"        ended early: {together.gave_up[name]}")
    untouched = [name for name, times in tables.times.items() if not times.num_visits]
    if untouched:
        print(f"not measured yet: {', '.join(untouched)}; {GO_ON}")
    early = [name for name in tables.opened if name not in together.finished | together.gave_up.keys()]
    if early:
        print(f"the budget ended before {len(early)} of {len(tables.opened)} kernels were finished; {GO_ON}")
    counts = f"{len(tables.opened)} kernels measured, {len(untouched)} not yet, {num_refused} left out"
    folders = [filling.table.folder for filling in tables.opened.values()]
    pattern = f"{folders[0].parent.parent}/*/{folders[0].name}" if folders else "tuning_data/*/*"
    print(f"{counts}; next: treegen init {pattern} && treegen build")
    return int(any(filling.fails() for filling in tables.opened.values()))


def compile_ahead(folder: Path, package: str, gpus: str, workers: int | None) -> str:
    """Compile what the heuristics choose for the launches of a record, and return a line about it."""
    device = devices_from(gpus)[0]
    try:
        modules = packages_in(package)
    except (ModuleNotFoundError, ValueError) as error:
        raise TuningError(f"--use {package}: {error}") from None
    workloads, refused = workloads_of(folder.resolve(), device)
    recorded = load_recorded(folder.resolve())
    jobs = []
    for name, workload in workloads.items():
        if recorded.functions[name] not in modules:
            continue
        module = modules[recorded.functions[name]]
        ours = AutotunedKernel(tuned_kernel(recorded.tunings[name].kernel, module))
        for shape in workload.subject.scenarios.values():
            chosen = ours.chosen(pickle.loads(shape.launch)) if shape.launch is not None else None
            if chosen is not None:
                jobs.append(job_for(shape, chosen, device))
    with CompileAhead(device, workers) as processes:
        done = processes.compile(dict.fromkeys(jobs))
    return f"{done.jobs} kernels compiled ahead, {done.failed} failed, {len(refused)} left out"

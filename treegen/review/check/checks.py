"""The checks of `treegen check`, and their report."""

from __future__ import annotations

import contextlib
import operator
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

from treegen.build import build
from treegen.core.errors import InputError, one_line
from treegen.core.files import IN_KERNEL, short, try_path
from treegen.core.heuristic import split_features
from treegen.core.problem import Problem, holds
from treegen.core.spec import FALLBACK_DEVICE, Config, DeviceSpec, KernelSpec, Spec
from treegen.core.table import Table
from treegen.crossval.score import Score
from treegen.read.problem import read_table, refuse_failing, spec_problem
from treegen.review.build_summary import not_kept, unfinished, untimed_fallbacks
from treegen.review.check.hook import (
    CompileCase,
    CompileOutcome,
    HookDescription,
    HookFailure,
    HookProcess,
    MissingHook,
)
from treegen.review.printing import counted, left_out_words, percent
from treegen.write.modules import Module, loaded, numbers, read_committed
from treegen.write.output_folder import differences, foreign_files
from tuning_table.table import RUN

UNSURE = 1.15
"""A row whose 95th percentile of time over the best time is greater is reported."""

_RESOURCES = {
    "shared_memory": "bytes of shared memory",
    "registers": "registers per thread",
    "spills": "spilled registers per thread",
}  # that the hook reports of a kernel and that a device may limit
_MAX_ERROR = 300  # characters of a compiler's error, which may take pages
_TRIES = 4000  # models that are tried to find the largest sizes
_SIZES = tuple(many << exponent for exponent in range(14) for many in (1, 3))
_ANY = 1 << 31  # a size that can reach this counts as unbounded
_STEPS = (1 << 62, *(1 << exponent for exponent in reversed(range(16))))

Sizes = tuple[int, ...]
Found = tuple[str, Iterable[str]]  # what was looked at, and problems


@dataclass
class CheckReport:
    """What a check looked at, in words, and what it found, a line each."""

    seen: str = ""
    problems: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)  # why the check, or a part of it, could not run
    notes: list[str] = field(default_factory=list)  # what a reader should know and no build can mend

    def lines(self, name: str) -> Iterator[str]:
        """The check's line, then its problems and notes, indented."""
        parts = [self.seen] if self.seen else []
        parts += [counted(len(self.problems), "problem")] if self.problems else []
        parts += [f"not run: {why}" for why in dict.fromkeys(self.not_run)]
        yield one_line(f"{name:<12} {'; '.join(parts)}")
        yield from (one_line(f"    {problem}") for problem in self.problems)
        yield from (one_line(f"    note: {note}") for note in self.notes)


def verdict(reports: Mapping[str, CheckReport], skipped: Sequence[str]) -> str:
    """The last line. skipped: the checks that the user left out."""
    problems = sum(len(report.problems) for report in reports.values())
    incomplete = [name for name, report in reports.items() if report.not_run]
    parts = [counted(problems, "problem") if problems else "no problem"]
    parts += [f"not all was run of {', '.join(incomplete)}"] if incomplete else []
    parts += [f"skipped {', '.join(dict.fromkeys(skipped))}"] if skipped else []
    return "; ".join(parts)


def run_checks(spec: Spec, names: Collection[str], jobs: int) -> Iterator[tuple[str, CheckReport, float]]:
    """Yield the report of each check in `names` as soon as it is there, with the seconds waited for it.

    The last check, `compile`, begins before `fresh`, as other processes do its work.
    """
    with contextlib.ExitStack() as stack:
        hooks = {
            kernel.name: stack.enter_context(HookProcess(kernel.hook))
            for kernel in spec.kernels.values()
            if kernel.hook is not None and {"code", "compile"}.intersection(names)
        }
        checks = Checks(spec, hooks, jobs)
        run = {name: getattr(checks, name) for name in names}
        thread = stack.enter_context(ThreadPoolExecutor(1))
        for name in names:
            start = time.monotonic()
            if name == "fresh" and "compile" in names:
                run["compile"] = thread.submit(checks.compile).result
            report = run[name]()
            yield name, report, time.monotonic() - start


class Checks:
    """A method for each check. Tables and modules are read once."""

    def __init__(self, spec: Spec, hooks: Mapping[str, HookProcess], jobs: int) -> None:
        self.spec, self.hooks, self.jobs, self.output = spec, hooks, jobs, short(spec.output)

    @cached_property
    def committed(self) -> list[Module | str]:
        return [*read_committed(self.spec, self.output).values()]

    @cached_property
    def _tables(self) -> tuple[CheckReport, list[Problem] | None]:
        """Read the spec's tables and those beside them; with the spec's, or None if one cannot be used."""
        usable, report = True, CheckReport()
        tables: dict[Path, Table] = {}
        folders = {folder for kernel in self.spec.kernels.values() for folder in kernel.tables.values()}
        parents = [folder.parent for folder in folders if try_path(folder.parent, Path.is_dir)]
        beside = {run.parent for parent in parents for run in parent.glob(f"*/{RUN}")} - folders
        for folder in sorted(folders | beside):
            try:
                tables[folder] = read_table(short(folder))
            except InputError as error:
                report.problems.append(str(error))
                usable = usable and folder not in folders
        found: list[Problem] = []
        users = ((kernel, *of) for kernel in self.spec.kernels.values() for of in kernel.tables.items())
        for kernel, device, folder in (user for user in users if user[2] in tables):
            try:
                found.append(spec_problem(kernel, self.spec.devices[device], tables[folder]))
                refuse_failing(found[-1])
            except InputError as error:
                report.problems.append(f"for {kernel.name} on {device}: {error}")
                usable = False
        scenarios = counted(sum(len(table.scenarios) for table in tables.values()), "scenario")
        report.seen = f"{counted(len(folders), 'table')} of the spec, {len(beside)} beside them, {scenarios}"
        report.notes = [f"{one}: {words}" for one in found if (words := left_out_words(one))]
        report.notes += [*unfinished(found), *untimed_fallbacks(found)] if usable else []
        return report, found if usable else None

    def tables(self) -> CheckReport:
        return self._tables[0]

    def modules(self) -> CheckReport:
        """Find modules that were edited or belong to no table, and questions that no tree may ask.

        Each module's text was compared with what treegen prints as it was read.
        """
        modules = [one for one in self.committed if isinstance(one, Module)]
        rows = sum(len(regime.rows) for module in modules for regime in module.heuristic.regimes)
        inside = sum(module.kernel.in_kernel for module in modules)
        report = CheckReport(f"{counted(len(modules), 'module')}, {counted(rows, 'row')}")
        report.seen += f", {inside} for kernels" if inside else ""
        report.problems += dict.fromkeys(one for one in self.committed if isinstance(one, str))
        for module in modules:
            split_on = {regime.name: regime.split_on for regime in module.kernel.regimes}
            asked = {(r.name, f) for r in module.heuristic.regimes for f in split_features(r.tree)}
            report.problems += [
                f"{module.path}: {regime} asks about {feature}, which split_on does not name"
                for regime, feature in sorted(asked)
                if feature not in split_on[regime]
            ]
        for kernel in self.spec.kernels.values():
            known = {f"{name}.py" for name in (*kernel.tables, FALLBACK_DEVICE, "__init__", "config")}
            folders = self.output / kernel.name, self.output / kernel.name / IN_KERNEL
            others = [p for folder in folders for p in sorted(folder.glob("*.py")) if p.name not in known]
            report.problems += [f"{path}: no table of the spec has such a module" for path in others]
        report.notes += unsure_rows(modules, self._tables[1] or ())
        return report

    def code(self) -> CheckReport:
        def check(kernel: KernelSpec, hook: HookProcess) -> Found:
            parts = {"feature": kernel.features, "variant": kernel.variants, "parameter": kernel.parameters}
            seen = ", ".join(counted(len(names), noun) for noun, names in parts.items())
            return seen, code_problems(kernel, hook.describe(), self.spec.devices.values())

        return self._by_hooks(check)

    def fresh(self) -> CheckReport:
        """Build without writing, and compare with the files."""
        if self._tables[1] is None:
            return CheckReport(not_run=["a table cannot be used"])
        try:
            built = build(self.spec, self.output, jobs=self.jobs)
            foreign = foreign_files(self.output, built.files)
            problems = [f"{path} was not written by treegen" for path in foreign]
            problems += differences(self.output, built.files)
        except InputError as error:
            return CheckReport(str(self.output), [str(error)])
        problems += not_kept(built.heuristics) if problems else []
        return CheckReport(f"{self.output}: {counted(len(built.files), 'file')} of a build", problems)

    def compile(self) -> CheckReport:
        modules = [one for one in self.committed if isinstance(one, Module)]
        if self.hooks and len(modules) < len(self.committed):
            return CheckReport(not_run=["a module cannot be read"])

        def check(kernel: KernelSpec, hook: HookProcess) -> Found:
            own = [one for one in modules if one.kernel is kernel]
            return compile_problems(self.spec, own, hook, self.jobs)

        return self._by_hooks(check)

    def _by_hooks(self, check: Callable[[KernelSpec, HookProcess], Found]) -> CheckReport:
        """Check every kernel through the hook that the spec names for it."""
        report, seen = CheckReport(), []
        for name, hook in self.hooks.items():
            kernel = self.spec.kernels[name]
            try:
                what, problems = check(kernel, hook)
                report.problems += problems
                seen.append(f"{name}: {what}")
            except MissingHook as error:
                report.not_run.append(str(error))
            except HookFailure as error:
                report.problems.append(f"{name}: the hook {kernel.hook} failed: {error}")
        if without := [name for name in self.spec.kernels if name not in self.hooks]:
            whose = f"{', '.join(without)}: " if self.hooks else ""
            seen.append(f"{whose}nothing, as the spec names no hook")
        report.seen = "; ".join(seen)
        return report


def unsure_rows(modules: Sequence[Module], tables: Sequence[Problem]) -> Iterator[str]:
    """A line for each module with rows that are far from the best in some scenarios of its table."""
    problems = {(problem.kernel.name, problem.device.key): problem for problem in tables}
    for module in modules:
        problem = problems.get((module.kernel.name, module.device.key))
        found = Score.of(problem, module.heuristic).rows() if problem is not None else {}
        rows = [
            f"{module.heuristic.regimes[regime].name}, row {row} ({percent(quality.percentile95, '')})"
            for (regime, row), quality in found.items()
            if quality.percentile95 is not None and quality.percentile95 > UNSURE
        ]
        if rows:
            what = f"rows over {percent(UNSURE, '')} slower than the best at their 95th percentile"
            yield f"{module.path}: {what}: {'; '.join(rows)}"


def code_problems(
    kernel: KernelSpec, code: HookDescription, devices: Collection[DeviceSpec] = ()
) -> Iterator[str]:
    """How a kernel of the spec, and its constraints on these devices, differ from the hook's description."""
    yield from (f"{kernel.name}: {difference}" for difference in _differences(kernel, code))
    told = set()  # the first launch of each config and device that is refused and no constraint excludes
    bounded = kernel.only(name for constraint in kernel.constraints for name in constraint.names)
    for launch, device in product(code.refused, devices):
        config = Config(launch.variant, tuple(launch.parameters.items()))
        # A hook may serve several kernels.
        own = launch.variant in kernel.variants and device.arch == launch.target
        if not own or (config, device.key) in told:
            continue
        known = {**dict.fromkeys(kernel.features, 1), **device.limits, **launch.parameters, **launch.features}
        values = bounded.with_derived(known)
        if all(holds(constraint, values) for constraint in kernel.constraints if constraint.binds(config)):
            told.add((config, device.key))
            shape = " ".join(f"{name}={value}" for name, value in launch.features.items())
            refused = f"{kernel.name}: the code refuses {launch.variant} at {shape}"
            yield f"{refused}, which no constraint excludes on {device.key}"


def _differences(kernel: KernelSpec, code: HookDescription) -> Iterator[str]:
    for name in (name for name in kernel.features if name not in code.features):
        yield f"the code does not pass the feature {name} to choose()"
    for name in sorted(code.features.difference(kernel.features)):
        yield f"the code passes {name} to choose(), which is no feature of the spec"
    for name in (name for name in kernel.variants if name not in code.variants):
        yield f"the code has no variant {name}; it has {', '.join(sorted(code.variants))}"
    for name, declared in kernel.parameters.items():
        default = code.parameters.get(name)
        if name not in code.parameters:
            yield f"the code has no launch parameter {name}; it has {', '.join(code.parameters)}"
        elif declared.default not in (None, default):
            theirs = "must be given" if default is None else default
            yield f"{name} is {declared.default} by default, but {theirs} in the code"
    for name, default in code.parameters.items():
        if default is None and name not in kernel.parameters:
            yield f"the code requires {name}, which is no parameter of the spec"
    for name in (name for name in code.sizes if name not in kernel.features and name not in kernel.derived):
        yield f"the code is compiled for {name}, which is no feature of the spec"


class CompileTask(NamedTuple):
    """A config to compile and the limits that it must keep."""

    place: str  # the config and the first device that launches it with these limits
    case: CompileCase
    limits: Mapping[str, int]


def compile_problems(spec: Spec, modules: Sequence[Module], hook: HookProcess, jobs: int) -> Found:
    """Compile what a kernel's modules launch, each case once, in up to `jobs` processes."""
    tasks: list[CompileTask] = []
    cases: list[CompileCase] = []
    for task in (task for module in modules for task in compile_tasks(spec, module, hook.describe())):
        if not any(task[1:] == one[1:] for one in tasks):
            tasks.append(task)
            cases += [] if task.case in cases else [task.case]
    outcomes = hook.compile(cases, jobs)
    launched = counted(sum(len({*m.heuristic.configs, m.kernel.fallback}) for m in modules), "config")
    targets = ", ".join(sorted({case.target for case in cases})) or "no target"
    spills = max((needs.spills or 0 for one in outcomes for needs in one.kernels.values()), default=0)
    seen = f"{counted(len(cases), 'compilation')} for {launched} on {targets}"
    problems = [one for task in tasks for one in _problems(task, outcomes[cases.index(task.case)])]
    return f"{seen}; at most {counted(spills, 'spilled register')}", problems


def compile_tasks(spec: Spec, module: Module, code: HookDescription) -> Iterator[CompileTask]:
    """A task for every config of a module, its largest sizes and every architecture that may launch it.

    A device without an architecture is compiled for those that the hook names for its vendor. The default
    module is compiled for every known architecture, with the least limits of any device of the vendor.
    """
    kernel, device, is_default = module.kernel, module.device, module.device.key == FALLBACK_DEVICE
    devices, hooked = (spec.devices.values(), code.targets) if is_default else ([device], ())
    targets = []
    for vendor in sorted({*hooked, *(known.vendor for known in devices)}):
        served = [known for known in devices if known.vendor == vendor]
        names = {known.arch for known in served if known.arch is not None}
        names |= {*code.targets.get(vendor, ())} if is_default or not names else set()
        stated = {name: [of.limits[name] for of in served if name in of.limits] for name in _RESOURCES}
        least = {name: min(values) for name, values in stated.items() if values}
        targets += [(target, least) for target in sorted(names)]
    for config, largest in largest_sizes(module, code.sizes):
        for target, limits in targets:
            case = CompileCase(target, config.variant, dict(config.parameters), largest)
            place = f"{kernel.name} on {device.key}, {target}: {kernel.constant_name(config)}"
            yield CompileTask(place, case, limits)


def largest_sizes(module: Module, sizes: Sequence[str]) -> Iterator[tuple[Config, dict[str, int | None]]]:
    """The configs of a module, each with all combinations of largest sizes at which it is launched.

    They are found by trying models, and making these larger as long as they launch the config. A size of
    None may be any, as those that change from step to step are.
    """
    kernel, limits, printed = module.kernel, module.device.limits, loaded(module)
    wanted = dict.fromkeys(name for name in sizes if name in kernel.features or name in kernel.derived)
    fixed = [name for name in wanted if name in kernel.fixed]
    parts = kernel.only(fixed)
    yield kernel.fallback, wanted

    def sizes_of(point: Mapping[str, int]) -> Sizes:
        known = parts.with_derived({**limits, **point})
        return tuple(min(known[name], _ANY) for name in fixed)

    def launched(point: Mapping[str, int]) -> set[Config]:
        rows = [row for regime in printed["configs"](**point) for row in regime]
        found = {c for row in rows for c in ([row] if isinstance(row, printed["Config"]) else row)}
        values = ((c.variant, tuple((name, getattr(c, name)) for name in kernel.parameters)) for c in found)
        return {Config(*one) for one in values} - {kernel.fallback}

    draw, near = random.Random(0), sorted({max(0, n) + more for n in numbers(module) for more in (0, 1)})
    found: dict[Config, dict[Sizes, dict[str, int]]] = {}
    for _ in range(_TRIES):
        point = {name: draw.choice(draw.choice((_SIZES, near))) for name in kernel.constants}
        for config in launched(point):
            found.setdefault(config, {})[sizes_of(point)] = point
    for config in sorted(found):
        for reached in _maximal(found[config]):
            point = found[config][reached]
            for step, name in product(_STEPS, kernel.constants):
                larger = {**point, name: point[name] + step}
                if _covers(sizes_of(larger), reached) and config in launched(larger):
                    reached, point = sizes_of(larger), larger
            found[config][reached] = point
        for reached in _maximal(found[config]):
            largest = zip(fixed, (None if size == _ANY else size for size in reached), strict=True)
            yield config, wanted | dict(largest)


def _covers(large: Sizes, small: Sizes) -> bool:
    return all(map(operator.ge, large, small))


def _maximal(found: Collection[Sizes]) -> list[Sizes]:
    """Those of which no other has all sizes as large."""
    return [one for one in found if not any(other != one and _covers(other, one) for other in found)]


def _problems(task: CompileTask, outcome: CompileOutcome) -> Iterator[str]:
    sizes = ", ".join(f"{n} {'any' if v is None else f'up to {v:,}'}" for n, v in task.case.largest.items())
    start = f"{task.place}{f' ({sizes})' if sizes else ''}"
    if outcome.error is not None:
        yield f"{start} does not compile: {outcome.error[:_MAX_ERROR]}"
    elif not outcome.kernels:
        yield f"{start}: the hook reports no kernel"
    else:
        for (name, needs), (resource, limit) in product(outcome.kernels.items(), task.limits.items()):
            need: int | None = getattr(needs, resource)
            if need is not None and need > limit:
                what = f"{need:,} {_RESOURCES[resource]}"
                yield f"{start}: the kernel {name} needs {what}; the limit is {limit:,}"

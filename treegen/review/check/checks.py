"""The checks of `treegen check`, and their report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

from treegen.build import build
from treegen.core.errors import InputError
from treegen.core.files import IN_KERNEL, short, try_path
from treegen.core.heuristic import split_features
from treegen.core.problem import Problem, holds
from treegen.core.spec import FALLBACK_DEVICE, Config, DeviceSpec, KernelSpec, Spec
from treegen.core.table import Table
from treegen.crossval.score import Score
from treegen.read.problem import read_table, refuse_failing, spec_problem
from treegen.review.build_summary import not_kept, unfinished, untimed_fallbacks
from treegen.review.check.compiling import check_compile
from treegen.review.check.hook import HookDescription, HookFailure, HookProcess, MissingHook
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module, read_committed
from treegen.review.printing import counted, left_out_words, percent
from treegen.write.output_folder import differences, foreign_files
from tuning_table.table import RUN

UNSURE = 1.15
"""A row whose 95th percentile of time over the best time is greater is reported."""

_HookCheck = Callable[[KernelSpec, HookProcess, HookDescription], CheckReport]


def run_checks(spec: Spec, names: Collection[str], jobs: int) -> Iterator[tuple[str, CheckReport, float]]:
    """Yield the report of each check in `names` as soon as it is there, with the seconds waited for it.

    The last check, `compile`, begins before `fresh`, as other processes do its work.
    """
    with contextlib.ExitStack() as stack:
        hooks = {}
        if {"code", "compile"}.intersection(names):
            for kernel in spec.kernels.values():
                if kernel.hook is not None:
                    hooks[kernel.name] = stack.enter_context(HookProcess(kernel.hook))
        checks = _checks(spec, hooks, jobs)
        thread = stack.enter_context(ThreadPoolExecutor(1))
        for name in names:
            start = time.monotonic()
            if name == "fresh" and "compile" in names:
                checks["compile"] = thread.submit(checks["compile"]).result
            report = checks[name]()
            yield name, report, time.monotonic() - start


def _checks(spec: Spec, hooks: Mapping[str, HookProcess], jobs: int) -> dict[str, Callable[[], CheckReport]]:
    """Every check by name. Tables and modules are read once."""
    tables = cache(lambda: check_tables(spec))
    committed = cache(lambda: [*read_committed(spec, short(spec.output)).values()])

    def compiling() -> CheckReport:
        modules = [one for one in committed() if isinstance(one, Module)]
        if len(modules) < len(committed()):
            return CheckReport(not_run=("a module cannot be read",))
        return _by_hooks(
            spec,
            hooks,
            lambda kernel, hook, code: check_compile(
                spec, kernel, [one for one in modules if one.kernel is kernel], code, hook.compile, jobs
            ),
        )

    def fresh() -> CheckReport:
        usable = tables()[1] is not None
        return check_fresh(spec, jobs) if usable else CheckReport(not_run=("a table cannot be used",))

    return {
        "tables": lambda: tables()[0],
        "modules": lambda: check_modules(spec, committed(), tables()[1] or ()),
        "code": lambda: _by_hooks(
            spec, hooks, lambda kernel, hook, code: check_code(kernel, code, spec.devices.values())
        ),
        "fresh": fresh,
        "compile": compiling,
    }


def check_tables(spec: Spec) -> tuple[CheckReport, list[Problem] | None]:
    """Read the spec's tables and those beside them; returns the spec's, or None if one cannot be used."""
    usable = True
    problems: list[str] = []
    tables: dict[Path, Table] = {}
    folders = {folder for kernel in spec.kernels.values() for folder in kernel.tables.values()}
    parents = [folder.parent for folder in folders if try_path(folder.parent, Path.is_dir)]
    beside = {run.parent for parent in parents for run in parent.glob(f"*/{RUN}")} - folders
    for folder in sorted(folders | beside):
        try:
            tables[folder] = read_table(short(folder))
        except InputError as error:
            problems.append(str(error))
            usable = usable and folder not in folders
    found: list[Problem] = []
    for kernel in spec.kernels.values():
        for device, folder in kernel.tables.items():
            try:
                if folder in tables:
                    found.append(spec_problem(kernel, spec.devices[device], tables[folder]))
                    refuse_failing(found[-1])
            except InputError as error:
                problems.append(f"for {kernel.name} on {device}: {error}")
                usable = False
    seen = f"{counted(len(folders), 'table')} of the spec, {len(beside)} beside them"
    scenarios = counted(sum(len(table.scenarios) for table in tables.values()), "scenario")
    notes = [f"{one}: {words}" for one in found if (words := left_out_words(one))]
    notes += [*unfinished(found), *untimed_fallbacks(found)] if usable else []
    report = CheckReport(f"{seen}, {scenarios}", tuple(problems), notes=tuple(notes))
    return report, found if usable else None


def check_modules(spec: Spec, committed: Sequence[Module | str], tables: Sequence[Problem]) -> CheckReport:
    """Find modules that were edited or belong to no table, and questions that no tree may ask.

    Each module's text was compared with what treegen prints as it was read. So it launches what its rows say,
    asks for every constraint, and reads no feature about which spec and trees do not ask. `fresh` compares
    the other files.
    """
    modules = [one for one in committed if isinstance(one, Module)]
    rows = sum(len(regime.rows) for module in modules for regime in module.heuristic.regimes)
    inside = sum(module.kernel.in_kernel for module in modules)
    seen = f"{counted(len(modules), 'module')}, {counted(rows, 'row')}"
    seen = f"{seen}, {inside} for kernels" if inside else seen
    problems, output = [*dict.fromkeys(one for one in committed if isinstance(one, str))], short(spec.output)
    for module in modules:
        split_on = {regime.name: regime.split_on for regime in module.kernel.regimes}
        asked = {(r.name, f) for r in module.heuristic.regimes for f in split_features(r.tree)}
        for regime, feature in sorted(asked):
            if feature not in split_on[regime]:
                problems.append(f"{module.path}: {regime} asks about {feature}, which split_on does not name")
    for kernel in spec.kernels.values():
        known = {f"{name}.py" for name in (*kernel.tables, FALLBACK_DEVICE, "__init__", "config")}
        folders = output / kernel.name, output / kernel.name / IN_KERNEL
        others = (path for folder in folders for path in sorted(folder.glob("*.py")))
        problems += [f"{p}: no table of the spec has such a module" for p in others if p.name not in known]
    return CheckReport(seen, tuple(problems), notes=tuple(_unsure_rows(modules, tables)))


def _unsure_rows(modules: Sequence[Module], tables: Sequence[Problem]) -> Iterator[str]:
    """A line for each module with rows that are far from the best in some scenarios of its table."""
    problems = {(problem.kernel.name, problem.device.key): problem for problem in tables}
    for module in modules:
        problem = problems.get((module.kernel.name, module.device.key))
        found = Score.of(problem, module.heuristic).rows() if problem is not None else {}
        rows = [
            f"{module.heuristic.regimes[regime].name}, row {row} ({percent(quality.percentile95, '')})"
            for (regime, row), quality in found.items()
            if (quality.percentile95 or 1.0) > UNSURE and quality.percentile95 is not None
        ]
        if rows:
            what = f"rows over {percent(UNSURE, '')} slower than the best at their 95th percentile"
            yield f"{module.path}: {what}: {'; '.join(rows)}"


def check_code(
    kernel: KernelSpec, code: HookDescription, devices: Collection[DeviceSpec] = ()
) -> CheckReport:
    """Compare a kernel of the spec, and its constraints on these devices, with the hook's description."""
    parts = {"feature": kernel.features, "variant": kernel.variants, "parameter": kernel.parameters}
    seen = ", ".join(counted(len(names), noun) for noun, names in parts.items())
    differences = [*_differences(kernel, code), *_allowed_though_refused(kernel, code, devices)]
    problems = tuple(f"{kernel.name}: {difference}" for difference in differences)
    return CheckReport(f"{kernel.name}: {seen}", problems)


def _allowed_though_refused(
    kernel: KernelSpec, code: HookDescription, devices: Collection[DeviceSpec]
) -> Iterator[str]:
    """The first launch of each config and device that the code refuses and no constraint excludes."""
    found = set()
    bounded = kernel.only(name for constraint in kernel.constraints for name in constraint.names)
    for launch, device in product(code.refused, devices):
        config = Config(launch.variant, tuple(launch.parameters.items()))
        if launch.variant not in kernel.variants:  # a hook may serve several kernels
            continue
        if device.arch != launch.target or (config, device.key) in found:
            continue
        known = {**dict.fromkeys(kernel.features, 1), **device.limits, **launch.parameters, **launch.features}
        values = bounded.with_derived(known)
        if all(holds(constraint, values) for constraint in kernel.constraints if constraint.binds(config)):
            found.add((config, device.key))
            shape = " ".join(f"{name}={value}" for name, value in launch.features.items())
            refused = f"the code refuses {launch.variant} at {shape}"
            yield f"{refused}, which no constraint excludes on {device.key}"


def _differences(kernel: KernelSpec, code: HookDescription) -> Iterator[str]:
    for feature in kernel.features:
        if feature not in code.features:
            yield f"the code does not pass the feature {feature} to choose()"
    for feature in sorted(code.features.difference(kernel.features)):
        yield f"the code passes {feature} to choose(), which is no feature of the spec"
    for variant in kernel.variants:
        if variant not in code.variants:
            yield f"the code has no variant {variant}; it has {', '.join(sorted(code.variants))}"
    for parameter, declared in kernel.parameters.items():
        if parameter not in code.parameters:
            yield f"the code has no launch parameter {parameter}; it has {', '.join(code.parameters)}"
        elif declared.default is not None and declared.default != code.parameters[parameter]:
            default = code.parameters[parameter]
            theirs = "must be given" if default is None else default
            yield f"{parameter} is {declared.default} by default, but {theirs} in the code"
    for parameter, default in code.parameters.items():
        if default is None and parameter not in kernel.parameters:
            yield f"the code requires {parameter}, which is no parameter of the spec"
    for name in code.sizes:
        if name not in kernel.features and name not in kernel.derived:
            yield f"the code is compiled for {name}, which is no feature of the spec"


def check_fresh(spec: Spec, jobs: int) -> CheckReport:
    """Build without writing, in up to `jobs` processes, and compare with the files."""
    output = short(spec.output)
    try:
        built = build(spec, output, jobs=jobs)
        foreign = [f"{path} was not written by treegen" for path in foreign_files(output, built.files)]
        problems = [*foreign, *differences(output, built.files)]
    except InputError as error:
        return CheckReport(str(output), (str(error),))
    if problems:
        problems += not_kept(built.heuristics)
    return CheckReport(f"{output}: {counted(len(built.files), 'file')} of a build", tuple(problems))


def _by_hooks(spec: Spec, hooks: Mapping[str, HookProcess], check: _HookCheck) -> CheckReport:
    """Check every kernel through the hook that the spec names for it."""
    reports = [_by_hook(spec.kernels[name], hook, check) for name, hook in hooks.items()]
    if without := [name for name in spec.kernels if name not in hooks]:
        whose = f"{', '.join(without)}: " if hooks else ""
        reports.append(CheckReport(f"{whose}nothing, as the spec names no hook"))
    return CheckReport(
        "; ".join(report.seen for report in reports if report.seen),
        tuple(problem for report in reports for problem in report.problems),
        tuple(why for report in reports for why in report.not_run),
    )


def _by_hook(kernel: KernelSpec, hook: HookProcess, check: _HookCheck) -> CheckReport:
    try:
        described = hook.describe()
        if isinstance(described, MissingHook):
            return CheckReport(not_run=(described.why,))
        return check(kernel, hook, described)
    except HookFailure as error:
        return CheckReport(problems=(f"{kernel.name}: the hook {kernel.hook} failed: {error}",))

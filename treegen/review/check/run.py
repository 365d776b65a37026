"""Run the checks of a spec in order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from treegen.core.spec import KernelSpec, Spec
from treegen.review.check.code import check_code
from treegen.review.check.compiling import check_compile
from treegen.review.check.constraints import check_constraints
from treegen.review.check.fresh import check_fresh
from treegen.review.check.hook import HookDescription
from treegen.review.check.hook_process import HookFailure, HookProcess, MissingHook
from treegen.review.check.modules import check_modules, read_modules
from treegen.review.check.report import CheckReport, joined
from treegen.review.check.tables import check_tables

_OF_HOOKS = {"code", "compile"}


def run_checks(spec: Spec, names: Collection[str], jobs: int) -> Iterator[tuple[str, CheckReport, float]]:
    """Yield the report of each check in `names` as soon as it is there, with the seconds waited for it.

    The last check, `compile`, begins before `fresh`, as other processes do its work.
    """
    with contextlib.ExitStack() as stack:
        hooks = {}
        if _OF_HOOKS.intersection(names):
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
    committed = cache(lambda: read_modules(spec))

    def fresh() -> CheckReport:
        if not tables().usable:
            return CheckReport(not_run=("a table of the spec cannot be used",))
        return check_fresh(spec, jobs)

    def constraints() -> CheckReport:
        if committed().problems:
            return CheckReport(not_run=("a module cannot be read",))
        return check_constraints(spec, committed())

    def code() -> CheckReport:
        return by_hooks(lambda kernel, hook, described: check_code(kernel, described, spec.devices.values()))

    def compiling() -> CheckReport:
        if committed().problems:
            return CheckReport(not_run=("a module cannot be read",))
        modules = committed().modules.values()
        return by_hooks(
            lambda kernel, hook, described: check_compile(
                spec,
                kernel,
                [module for module in modules if module.kernel is kernel],
                described,
                hook.compile,
                jobs,
            )
        )

    def by_hooks(check: Callable[[KernelSpec, HookProcess, HookDescription], CheckReport]) -> CheckReport:
        """Check every kernel through the hook that the spec names for it."""
        reports = [by_hook(spec.kernels[name], hook, check) for name, hook in hooks.items()]
        if without := [name for name in spec.kernels if name not in hooks]:
            whose = f"{', '.join(without)}: " if hooks else ""
            reports.append(CheckReport(f"{whose}nothing, as the spec names no hook"))
        return joined(reports)

    def by_hook(
        kernel: KernelSpec,
        hook: HookProcess,
        check: Callable[[KernelSpec, HookProcess, HookDescription], CheckReport],
    ) -> CheckReport:
        try:
            described = hook.description
            if isinstance(described, MissingHook):
                return CheckReport(not_run=(described.why,))
            return check(kernel, hook, described)
        except HookFailure as error:
            return CheckReport(problems=(f"{kernel.name}: the hook {kernel.hook} failed: {error}",))

    return {
        "tables": lambda: tables().report,
        "modules": lambda: check_modules(spec, committed()),
        "constraints": constraints,
        "code": code,
        "fresh": fresh,
        "compile": compiling,
    }

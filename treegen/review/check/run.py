"""All checks of a spec, in order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from treegen.core.spec import KernelSpec, Spec
from treegen.review.check.code import check_code
from treegen.review.check.compiling import check_compile
from treegen.review.check.constraints import check_constraints
from treegen.review.check.fresh import check_fresh
from treegen.review.check.hook import Description
from treegen.review.check.hookprocess import HookFailure, HookProcess, Missing
from treegen.review.check.modules import Committed, check_modules, read_modules
from treegen.review.check.report import Report, joined
from treegen.review.check.tables import Tables, check_tables

_OF_HOOKS = {"code", "compile"}


def run_checks(spec: Spec, names: Collection[str], jobs: int) -> Iterator[tuple[str, Report, float]]:
    """The report of each check in `names` as soon as it is there, with the seconds that were waited for it.

    The last one, `compile`, begins before `fresh`: other processes do its work.
    """
    with contextlib.ExitStack() as stack:
        hooks = {}
        if _OF_HOOKS.intersection(names):  # they start here, as their imports take seconds
            for kernel in spec.kernels.values():
                if kernel.hook is not None:
                    hooks[kernel.name] = stack.enter_context(HookProcess(kernel.hook))
        checks = _Checks(spec, hooks, jobs)
        runs: dict[str, Callable[[], Report]] = {name: getattr(checks, name) for name in names}
        thread = stack.enter_context(ThreadPoolExecutor(1))
        for name in names:
            start = time.monotonic()
            if name == "fresh" and "compile" in runs:
                runs["compile"] = thread.submit(checks.compile).result
            report = runs[name]()
            yield name, report, time.monotonic() - start


class _Checks:
    """A method a check; what several look at is read once."""

    def __init__(self, spec: Spec, hooks: Mapping[str, HookProcess], jobs: int) -> None:
        self.spec, self.hooks, self.jobs = spec, hooks, jobs

    @cached_property
    def _tables(self) -> Tables:
        return check_tables(self.spec)

    @cached_property
    def _committed(self) -> Committed:
        return read_modules(self.spec)

    def tables(self) -> Report:
        return self._tables.report

    def fresh(self) -> Report:
        if not self._tables.fit:
            return Report(left_out=("a table of the spec cannot be used",))
        return check_fresh(self.spec)

    def modules(self) -> Report:
        return check_modules(self.spec, self._committed)

    def constraints(self) -> Report:
        if self._committed.problems:
            return Report(left_out=("a module cannot be read",))
        return check_constraints(self.spec, self._committed)

    def code(self) -> Report:
        return self._asked(lambda kernel, hook, described: check_code(kernel, described))

    def compile(self) -> Report:
        if self._committed.problems:
            return Report(left_out=("a module cannot be read",))

        def compiled(kernel: KernelSpec, hook: HookProcess, described: Description) -> Report:
            modules = [module for (name, _), module in self._committed.modules.items() if name == kernel.name]
            return check_compile(self.spec, kernel, modules, described, hook.compile, self.jobs)

        return self._asked(compiled)

    def _asked(self, ask: Callable[[KernelSpec, HookProcess, Description], Report]) -> Report:
        """The reports on all kernels, each with the hook that the spec names for it."""
        return joined([self._asked_of(kernel, ask) for kernel in self.spec.kernels.values()])

    def _asked_of(
        self, kernel: KernelSpec, ask: Callable[[KernelSpec, HookProcess, Description], Report]
    ) -> Report:
        hook = self.hooks.get(kernel.name)
        if hook is None:
            return Report(left_out=(f"the spec names no hook for {kernel.name}",))
        try:
            described = hook.description
            if isinstance(described, Missing):
                return Report(left_out=(described.why,))
            return ask(kernel, hook, described)
        except HookFailure as error:
            return Report(problems=(f"{kernel.name}: the hook {kernel.hook} failed: {error}",))

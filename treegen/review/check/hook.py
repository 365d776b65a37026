"""How a kernel's code answers `treegen check`; docs/check.md describes the protocol for its authors."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

GROUP = "treegen.hooks"
"""The group of Python entry points in which a spec's `hook` is a name."""


@dataclass(frozen=True)
class CompileCase:
    """A config to compile for an architecture."""

    target: str  # an architecture: `sm_90`, `gfx942`
    variant: str
    parameters: Mapping[str, int]  # all of the spec
    largest: Mapping[str, int | None]  # each of the hook's `sizes`, at most; None if any value may occur


@dataclass(frozen=True)
class KernelNeeds:
    """The resources of a compiled kernel; None where the compiler does not report them."""

    shared_memory: int  # bytes per block
    registers: int | None  # a thread
    spills: int | None  # spilled registers of 4 bytes per thread


@dataclass(frozen=True)
class CompileOutcome:
    """The result of compiling a case. A hook may return other objects with these attributes."""

    kernels: Mapping[str, KernelNeeds]  # by name, the kernels that launches of the case may use
    error: str | None  # why the case does not compile


@dataclass(frozen=True)
class RefusedLaunch:
    """A launch that the code refuses. A hook may give other objects with these attributes."""

    target: str  # an architecture
    variant: str
    parameters: Mapping[str, int]
    features: Mapping[str, int]  # those of the spec that the refusal depends on


@dataclass(frozen=True)
class HookDescription:
    """A hook's attributes, with checked types."""

    features: frozenset[str]  # the keyword arguments that the code passes to `choose`
    variants: frozenset[str]  # that the code launches
    parameters: Mapping[str, int | None]  # with their defaults; None if there is no default
    # The features that kernels are compiled for: no launch may need more than a kernel that is compiled for
    # the greatest value of each.
    sizes: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]  # by vendor, architectures for devices whose spec states none
    refused: tuple[RefusedLaunch, ...] = ()  # that the spec's constraints must exclude


class HookFailure(Exception):
    """The hook raised, ended its process or broke the protocol; the message says which."""


class MissingHook(Exception):
    """The hook, or its dependency, is not installed. That is no failure."""


def checked(kind: Any, value: Any) -> Any:
    """What a hook gives, as the type that the protocol states. Raises TypeError or AttributeError."""
    origin, of = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        known = [f.name for f in fields(kind) if hasattr(value, f.name) or f.default is MISSING]
        given = {name: getattr(value, name) for name in known}
        return kind(**{name: checked(hints[name], attribute) for name, attribute in given.items()})
    if origin is Mapping:
        return {checked(of[0], name): checked(of[1], one) for name, one in dict(value).items()}
    if origin in (tuple, frozenset):
        if isinstance(value, str):
            raise TypeError("the hook must give several texts, not one")
        return origin(checked(of[0], one) for one in value)
    if origin is UnionType:  # with None
        return None if value is None else checked(of[0], value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"the hook must give {kind.__name__}, not {type(value).__name__}")
    return value


class HookProcess(AbstractContextManager["HookProcess"]):
    """A hook in a process of its own, which contains whatever the hook prints, loads or crashes.

    The process starts at once, as imports take seconds. Both methods raise HookFailure, or MissingHook.
    """

    def __init__(self, name: str) -> None:
        self._name, self._log = name, tempfile.NamedTemporaryFile(prefix="treegen-")  # noqa: SIM115
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, _print_to, (self._log.name,))
        self._described = self._pool.submit(_answer, name)

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._log.close()

    def describe(self) -> HookDescription:
        found: HookDescription = self._result(self._described.result)
        return found

    def compile(self, cases: Sequence[CompileCase], jobs: int) -> list[CompileOutcome]:
        """The outcomes in the order of the cases."""
        work = self._name, list(cases), jobs
        found: list[CompileOutcome] = self._result(lambda: self._pool.submit(_answer, *work).result())
        return found

    def _result(self, wait: Callable[[], Any]) -> Any:
        try:
            return wait()
        except BrokenProcessPool:
            printed = Path(self._log.name).read_text(errors="replace").split("\n")
            # Compilers print why they end the process.
            last = next((f": {line.strip()[:200]}" for line in reversed(printed) if line.strip()), "")
            raise HookFailure(f"its process ended{last}") from None


def _print_to(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _answer(name: str, cases: list[CompileCase] | None = None, jobs: int = 1) -> Any:
    """The hook's outcomes for cases, or its description. Raises HookFailure, whatever the hook raises."""
    try:
        hook = _loaded(name)
        if cases is None:
            return checked(HookDescription, hook)
        found = [checked(CompileOutcome, one) for one in hook.compile(cases, jobs)]
        if len(found) != len(cases):
            raise TypeError(f"the hook gives {len(found)} outcomes for {len(cases)} cases")
        return found
    except MissingHook:
        raise
    except BaseException as error:  # SystemExit, too
        lines = str(error).strip().splitlines()
        raise HookFailure(f"{type(error).__name__}: {lines[0][:200] if lines else ''}") from None


def _loaded(name: str) -> Any:
    """The hook. Raises MissingHook if no installed package offers it or a dependency is not installed."""
    offers = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not offers:
        raise MissingHook(f"no installed package offers the hook {name}")
    if len(offers) > 1:
        raise LookupError(f"several packages offer the hook {name}: {', '.join(sorted(offers))}")
    (entry,) = offers.values()
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        package = entry.module.split(".")[0]
        if error.name is None or error.name.split(".")[0] == package:
            raise
        raise MissingHook(f"the hook {name} needs {error.name}, which is not installed") from None

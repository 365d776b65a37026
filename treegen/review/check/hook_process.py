"""A hook in a process of its own, which contains whatever the hook prints, loads or crashes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from treegen.review.check.hook import (
    GROUP,
    CompileCase,
    CompileOutcome,
    HookDescription,
    checked_outcome,
    describe,
)

_PATIENCE = 10.0  # seconds that an idle process has to end by itself


@dataclass(frozen=True)
class MissingHook:
    """A hook that is not installed, or whose dependency is not. That is no failure."""

    why: str


class HookFailure(Exception):
    """The hook raised, ended its process or broke the protocol; the message says which."""


class HookProcess:
    """A context manager around the hook of a name. The process starts at once, as imports take seconds."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="treegen-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "hook.log"
        self._process = context.Process(target=_serve, args=(name, theirs, str(self._log)))
        self._process.start()
        theirs.close()
        self._compiling = False
        self._failure: HookFailure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # an idle process ends when it sees that
        self._process.join(0 if self._compiling else _PATIENCE)
        if self._process.exitcode is None:
            self._process.terminate()
            self._process.join()
        self._folder.cleanup()

    @cached_property
    def description(self) -> HookDescription | MissingHook:
        """Raises HookFailure."""
        answer: HookDescription | MissingHook = self._receive()
        return answer

    def compile(self, cases: Sequence[CompileCase], jobs: int) -> Iterator[CompileOutcome]:
        """Yield the outcomes in the order of the cases. May run once a process. Raises HookFailure."""
        assert isinstance(self.description, HookDescription)
        self._compiling = True
        with contextlib.suppress(BrokenPipeError):  # `_receive` says why the process has ended
            self._pipe.send((list(cases), jobs))
        for _ in cases:
            yield self._receive()
        self._receive()
        self._compiling = False

    def _receive(self) -> Any:
        """The next message. Once the hook has failed, every call raises that failure."""
        if self._failure is None:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                self._process.join()
                message = HookFailure(f"its process ended with {self._process.exitcode}{self._last_line()}")
            if not isinstance(message, HookFailure):
                return message
            self._failure = message
        raise self._failure

    def _last_line(self) -> str:
        """The last line that the process printed: compilers print why they end it."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
        return "" if last is None else f": {last[:200]}"


def _serve(name: str, pipe: Connection, log: str) -> None:
    """Run in the hook's process: send the hook's description, then the outcomes of the cases received."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        hook = _loaded(name)
        pipe.send(hook if isinstance(hook, MissingHook) else describe(hook))
        try:
            cases, jobs = pipe.recv()
        except EOFError:
            return
        outcomes = iter(hook.compile(cases, jobs))
        for _ in cases:
            pipe.send(checked_outcome(next(outcomes)))
        if next(outcomes, None) is not None:
            raise TypeError("the hook gives more outcomes than there are cases")
        pipe.send(None)
    except StopIteration:
        pipe.send(HookFailure("the hook gives fewer outcomes than there are cases"))
    except BrokenPipeError:
        pass  # treegen no longer waits
    except BaseException as error:  # SystemExit, too
        lines = str(error).strip().splitlines()
        pipe.send(HookFailure(f"{type(error).__name__}: {lines[0][:200] if lines else ''}"))


def _loaded(name: str) -> Any:
    """The hook, or MissingHook if no installed package offers it or a dependency is not installed."""
    offers: dict[str, EntryPoint] = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not offers:
        return MissingHook(f"no installed package offers the hook {name}")
    if len(offers) > 1:
        raise LookupError(f"several packages offer the hook {name}: {', '.join(sorted(offers))}")
    (entry,) = offers.values()
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        package = entry.module.split(".")[0]
        if error.name is None or error.name.split(".")[0] == package:
            raise
        return MissingHook(f"the hook {name} needs {error.name}, which is not installed")

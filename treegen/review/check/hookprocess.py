"""A hook in a process of its own: whatever it prints, loads or crashes stays there."""

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

from treegen.review.check.hook import GROUP, Case, Compiled, Description, compiled, description

_PATIENCE = 10.0
"""Seconds that a process which is no longer needed has to end by itself."""


@dataclass(frozen=True)
class Missing:
    """Why a hook is not here, through no fault of its own."""

    why: str


class HookFailure(Exception):
    """The hook raised, ended its process or broke the protocol; the message says what happened."""


class HookProcess:
    """The hook of a name. A context manager; the process starts at once and its import takes seconds."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="treegen-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "hook.log"
        self._process = context.Process(target=_serve, args=(name, theirs, str(self._log)))
        self._process.start()
        theirs.close()
        self._at_work = False
        self._failure: HookFailure | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # the process takes that for the end, unless it is at work
        self._process.join(0 if self._at_work else _PATIENCE)
        if self._process.exitcode is None:
            self._process.terminate()
            self._process.join()
        self._folder.cleanup()

    @cached_property
    def description(self) -> Description | Missing:
        """Raises HookFailure."""
        found: Description | Missing = self._received()
        return found

    def compile(self, cases: Sequence[Case], jobs: int) -> Iterator[Compiled]:
        """The outcomes in the order of the cases. Raises HookFailure. Once for each process."""
        assert isinstance(self.description, Description)
        self._at_work = True
        with contextlib.suppress(BrokenPipeError):  # receiving tells why it has ended
            self._pipe.send((list(cases), jobs))
        for _ in cases:
            yield self._received()
        self._received()
        self._at_work = False

    def _received(self) -> Any:
        """The next message; once the hook has failed, that failure again."""
        if self._failure is None:
            message = self._next_message()
            if not isinstance(message, HookFailure):
                return message
            self._failure = message
        raise self._failure

    def _next_message(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return HookFailure(f"its process ended with {self._process.exitcode}{self._last_words()}")

    def _last_words(self) -> str:
        """What compilers print before they end the process."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
        return "" if last is None else f": {last[:200]}"


def _serve(name: str, pipe: Connection, log: str) -> None:
    """In the process: say what the hook is, then compile what is asked for."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        hook = _loaded(name)
        pipe.send(hook if isinstance(hook, Missing) else description(hook))
        try:
            cases, jobs = pipe.recv()
        except EOFError:
            return
        outcomes = iter(hook.compile(cases, jobs))
        for _ in cases:
            pipe.send(compiled(next(outcomes)))
        if next(outcomes, None) is not None:
            raise TypeError("the hook gives more outcomes than there are cases")
        pipe.send(None)
    except StopIteration:
        pipe.send(HookFailure("the hook gives fewer outcomes than there are cases"))
    except BrokenPipeError:
        pass  # nobody waits any more
    except BaseException as error:  # SystemExit, too
        lines = str(error).strip().splitlines()
        pipe.send(HookFailure(f"{type(error).__name__}: {lines[0][:200] if lines else ''}"))


def _loaded(name: str) -> Any:
    """The hook, or Missing where no installed package offers it or what it needs is not installed."""
    offers: dict[str, EntryPoint] = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not offers:
        return Missing(f"no installed package offers the hook {name}")
    if len(offers) > 1:
        raise LookupError(f"several packages offer the hook {name}: {', '.join(sorted(offers))}")
    (entry,) = offers.values()
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        own = entry.module.split(".")[0]
        if error.name is None or error.name.split(".")[0] == own:
            raise
        return Missing(f"the hook {name} needs {error.name}, which is not installed")

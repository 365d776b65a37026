"""Compilation in several processes, of which a compiler may end one."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from triton_tune.processes.compile_ahead import follow_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

ENDED = "the compiler ended its process"


def describe_error(error: Exception) -> str:
    """The type of a compiler's error, and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def compile_in_processes(
    attempt: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[Result | None]:
    """Yield ``attempt(item)`` of each item, in order; None where the compiler ended its process.

    A process that ends also ends its pool, so each item without a result is tried again, alone.
    """
    if not items:
        return
    with _pool(min(processes, len(items))) as pool:
        futures = [pool.submit(attempt, item) for item in items]
        for item, future in zip(items, futures, strict=True):
            result = _result(future)
            if result is None:
                with _pool(1) as alone:
                    result = _result(alone.submit(attempt, item))
            yield result


def _result(future: Future[Result]) -> Result | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes in which Triton compiles, even if TRITON_INTERPRET is set here."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=follow_parent) as pool:
            yield pool
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret

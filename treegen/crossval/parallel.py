"""Run independent tasks in several processes, with the results in the order of the tasks."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")
ReportProgress = Callable[[str, int, int], None]
"""Gets the name of the work, the number of tasks done and the number of all tasks."""


class ParallelMap(Protocol):
    """`run(what, function, tasks)`: the results of `function` for all tasks, in their order.

    `what` names the work in progress reports. The function belongs to a module, and tasks can be pickled.
    """

    def __call__(
        self, what: str, function: Callable[[Argument], Result], tasks: Sequence[Argument]
    ) -> list[Result]: ...


def no_report(what: str, done: int, total: int) -> None:
    pass


@contextlib.contextmanager
def processes(jobs: int, report: ReportProgress = no_report) -> Iterator[ParallelMap]:
    """A `ParallelMap` over up to `jobs` processes; with one job, tasks run in this process.

    If an error or Ctrl-C ends the block early, the processes end, too.
    """
    if jobs == 1:
        yield _reporting(report, map)
        return
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_leave_interrupts_to_the_parent)
    try:
        yield _reporting(report, pool.map)
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _reporting(report: ReportProgress, mapped: Callable[..., Iterable[Any]]) -> ParallelMap:
    def run(what: str, function: Callable[[Argument], Result], tasks: Sequence[Argument]) -> list[Result]:
        results: list[Result] = []
        report(what, 0, len(tasks))
        for result in mapped(function, tasks):
            results.append(result)
            report(what, len(results), len(tasks))
        return results

    return run


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


in_order = _reporting(no_report, map)
"""A `ParallelMap` that runs one task after the other in this process."""

"""Run independent tasks in several processes, with the results in the order of the tasks."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

ReportProgress = Callable[[str, int, int], None]
"""Gets the name of the work, the number of tasks done and the number of all tasks."""

ParallelMap = Callable[[str, Callable[[Any], Any], Sequence[Any]], list[Any]]
"""`run(what, function, tasks)`: the results of `function` for all tasks, in their order.

`what` names the work in progress reports. The function belongs to a module, and tasks can be pickled.
"""


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
    ignore = (signal.SIGINT, signal.SIG_IGN)  # the parent ends them
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=signal.signal, initargs=ignore)
    try:
        yield _reporting(report, pool.map)
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _reporting(report: ReportProgress, mapped: Callable[..., Iterable[Any]]) -> ParallelMap:
    def run(what: str, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        report(what, 0, len(tasks))
        for result in mapped(function, tasks):
            results.append(result)
            report(what, len(results), len(tasks))
        return results

    return run

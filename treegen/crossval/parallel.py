"""Run independent tasks in several processes, with the results in the order of the tasks."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rich.console import Console

from tuning_table.interrupts import without_interrupts

ParallelMap = Callable[[str, Callable[[Any], Any], Sequence[Any]], list[Any]]
"""`run(what, function, tasks)`: the results of `function` for all tasks, in their order.

`what` names the work on a terminal. The function belongs to a module, and tasks can be pickled.
"""


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[ParallelMap]:
    """A `ParallelMap` over up to `jobs` processes; with one job, tasks run in this process.

    A terminal shows the progress. If an error or Ctrl-C ends the block early, the processes end, too.
    """
    with contextlib.ExitStack() as stack:
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        status = stack.enter_context(console.status("reading")) if console.is_terminal else None
        mapped: Callable[..., Iterable[Any]] = map if jobs == 1 else stack.enter_context(_pool(jobs))

        def run(what: str, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
            results: list[Any] = []
            for result in mapped(function, tasks):
                results.append(result)
                if status is not None:
                    status.update(f"{what}: {len(results)} of {len(tasks)}")
            return results

        yield run


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` over processes, which this one alone ends: a terminal's interrupts do not reach them."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))

    def mapped(*arguments: Any) -> Iterable[Any]:
        with without_interrupts():
            return pool.map(*arguments)

    try:
        yield mapped
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)

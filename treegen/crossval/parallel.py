"""Do independent pieces of work in several processes, with results as if they had been done in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Tell = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is done and how much there is."""


class Run(Protocol):
    """`run(what, function, tasks)`: the results of `function` for all tasks, in their order.

    `what` names the work for a person who waits. The function belongs to a module and tasks can be pickled.
    """

    def __call__(
        self, what: str, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> list[Result]: ...


def _silent(what: str, done: int, total: int) -> None:
    """Says nothing."""


@contextlib.contextmanager
def processes(jobs: int, tell: Tell = _silent) -> Iterator[Run]:
    """A `Run` that uses up to `jobs` processes; 1 stays in this one.

    Whatever ends the block early (an error, Ctrl-C) ends the processes, too.
    """
    if jobs == 1:
        yield _told(tell, map)
        return
    before = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_leave_interrupts_to_the_parent)
    try:
        yield _told(tell, pool.map)
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _told(tell: Tell, mapped: Callable[..., Iterable[Any]]) -> Run:
    def run(what: str, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        results: list[Result] = []
        tell(what, 0, len(tasks))
        for result in mapped(function, tasks):
            results.append(result)
            tell(what, len(results), len(tasks))
        return results

    return run


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _proxy(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _reduced_proxy(proxy: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _proxy, (dict(proxy),)


ForkingPickler.register(MappingProxyType, _reduced_proxy)  # specs hold some; pickle alone refuses them

in_order = _told(_silent, map)
"""One after the other, in this process."""

"""Many threads that launch at once, until the time is over or something is wrong."""

import threading
import time
from collections.abc import Callable

from attn_kernels.core.errors import brief

# Takes the numbers of a thread and of a turn; returns how many launches it made, and a line a problem.
Turn = Callable[[int, int], tuple[int, list[str]]]
WAKE_S = 0.1


class Hang(Exception):
    """A thread did not end its turn in time; it still waits."""


def in_threads(
    turn: Turn, threads: int, seconds: float, patience: float = float("inf")
) -> tuple[int, list[str]]:
    """Take turns in each thread, all threads at once; return the number of launches and the problems.

    Args:
        turn: called with numbers that differ between threads; an error that it raises is a problem.
        seconds: no turn begins later, nor after a problem.
        patience: the most seconds of one turn.

    Raises:
        Hang: a turn took longer than ``patience``. The threads are daemons: they end with the process.
    """
    counts = [0] * threads
    problems: list[str] = []
    together = threading.Barrier(threads)
    started = time.monotonic()
    begun = [started] * threads

    def work(number: int) -> None:
        try:
            together.wait()
            index = number
            while (now := time.monotonic()) < started + seconds and not problems:
                begun[number] = now
                count, wrong = turn(number, index)
                counts[number] += count
                problems.extend(f"thread {number}: {line}" for line in wrong)
                index += threads + 1
        except Exception as error:
            problems.append(f"thread {number}: {brief(error)}")

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    for worker in workers:
        worker.start()
    while alive := [number for number, worker in enumerate(workers) if worker.is_alive()]:
        workers[alive[0]].join(WAKE_S)
        slowest = min(alive, key=lambda number: begun[number])
        waited = time.monotonic() - begun[slowest]
        if workers[slowest].is_alive() and waited > patience:
            raise Hang(f"thread {slowest} has waited {waited:.0f} s for its launches")
    return sum(counts), problems

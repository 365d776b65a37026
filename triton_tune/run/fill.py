"""Fill a table: run a search on a bench, with progress, a summary and a clean end."""

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass

from triton_tune.core.bench import Bench
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.run.progress import Progress
from triton_tune.run.summary import lines_of, summarise
from triton_tune.search.loop import tune
from triton_tune.search.search import STRATEGIES
from tuning_table import TableError, TableWriter
from tuning_table.table import Visit

SUMMARY_EVERY_S = 20.0  # how often run.yaml is written while a run measures
INTERRUPTED = 130
ALL_FAILED = 1
GO_ON = "the same command with a larger --budget goes on"


@dataclass(frozen=True)
class SearchPlan:
    """What is searched, how, and how long."""

    problem: SearchProblem
    strategy: str  # of STRATEGIES
    budget: float  # seconds, of all runs of the table


def fill(table: TableWriter, bench: Bench, plan: SearchPlan, begin: Callable[[], None] = lambda: None) -> int:
    """Measure until the budget ends or nothing is left, and print the result.

    begin: is called before the first visit, if there is one to make.
    Returns 0; ALL_FAILED if no config has a time; or INTERRUPTED after Ctrl-C.
    Raises TuningError and TableError; the rows so far are kept.
    """
    problem, budget = plan.problem, plan.budget
    times = Times(table.visits)
    spent = table.header.seconds
    start = written = bench.clock()

    def save(finished: bool) -> dict[str, object]:
        summary = summarise(problem, times, spent + bench.clock() - start, finished)
        table.summarise(summary)
        return summary

    def tick() -> None:
        nonlocal written
        if bench.clock() - written > SUMMARY_EVERY_S:
            written = bench.clock()
            save(False)

    def record(visit: Visit) -> None:
        table.append(visit.scenario, visit.cells, visit.repeat)

    strategy = STRATEGIES[plan.strategy](problem)
    if strategy.next_round(times, min(1.0, spent / budget)) is None:
        summary = summarise(problem, times, spent, True)
        table.summarise(summary)
        print(f"{table.folder}: nothing is left to measure; an earlier run finished. Its result:")
        print("\n".join(lines_of(summary, problem, times)))
        return _status(table, problem, times)
    if spent >= budget:
        print(f"{table.folder}: the budget of {budget:.0f} s is used up; {GO_ON}")
        return 0
    begin()
    try:
        with Progress(budget, spent, tick) as progress:
            finished = tune(strategy, bench, times, record, progress, budget=budget, spent=spent)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not lose the summary
        save(False)
        print(f"\nstopped; {table.folder} keeps {times.num_visits} rows; the same command goes on from there")
        return INTERRUPTED
    except Exception:
        with contextlib.suppress(TableError):
            save(False)
        raise
    summary = save(finished)
    end = "nothing is left to measure" if finished else f"the budget is used up; {GO_ON}"
    print("\n".join([f"{table.folder}: {end}", *lines_of(summary, problem, times)]))
    return _status(table, problem, times)


def _status(table: TableWriter, problem: SearchProblem, times: Times) -> int:
    """The exit code at the end of a search; a line says if it found nothing."""
    if times.num_visits and not any(map(times.medians, problem.scenarios)):
        print(f"{table.folder}: every config failed in every scenario, so there is nothing to build from")
        return ALL_FAILED
    return 0

"""Fill a table: run a search on a bench, with progress, a summary and a clean end."""

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from triton_tune.bench.worker import DISAGREES
from triton_tune.core.bench import Bench
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.run.progress import Progress
from triton_tune.search.check import CheckFirst
from triton_tune.search.loop import tune
from triton_tune.search.rounds import Strategy
from triton_tune.search.strategies import STRATEGIES
from triton_tune.search.worth import ASKED, compared, worth
from tuning_table import TableError, TableWriter, read_run
from tuning_table.command_line import INTERRUPTED
from tuning_table.table import MOST_WITHOUT, Visit

SUMMARY_EVERY_S = 20.0  # how often run.yaml is written while a run measures
MOST_WINNERS, MOST_NAMED = 8, 3  # configs and scenarios that are named
FINISHED = "the search is finished"
GO_ON = "the same command with a larger --budget goes on"


@dataclass
class Filling:
    """A table that a run fills, what it may measure, and the times so far."""

    table: TableWriter
    problem: SearchProblem
    times: Times

    def save(self, seconds: float, finished: bool) -> dict[str, Any]:
        """Write the summary into the table, and return it."""
        summary = summarise(self.problem, self.times, seconds, finished)
        self.table.summarise(summary)
        return summary

    def append(self, visit: Visit) -> None:
        self.table.append(visit.scenario, visit.cells, visit.repeat)

    def without(self) -> list[str]:
        """The scenarios in which no config that was tried has a time."""
        times = self.times
        return [s for s in self.problem.scenarios if times.measured(s) and not times.medians(s)]

    def fails(self) -> bool:
        """Whether more than MOST_WITHOUT of the measured scenarios have no config with a time."""
        seen = sum(bool(self.times.measured(s)) for s in self.problem.scenarios)
        return len(self.without()) > MOST_WITHOUT * seen


def measure(
    search: Strategy,
    bench: Bench,
    times: Times,
    record: Callable[[Visit], None],
    fillings: Callable[[], Iterable[tuple[Filling, bool]]],
    *,
    budget: float,
    spent: float,
) -> tuple[bool, float] | None:
    """Follow a search until the budget ends or nothing is left, and keep the tables' summaries up to date.

    times, record: as of ``search.loop.tune``. fillings: the tables, each with whether its search is
    finished. budget, spent: seconds of all runs, and of earlier ones.
    Returns whether the search is finished, and the seconds of all runs; None after Ctrl-C.
    Raises TuningError and TableError; the rows so far are kept.
    """
    start = written = bench.clock()

    def seconds() -> float:
        return spent + bench.clock() - start

    def tick() -> None:
        nonlocal written
        if bench.clock() - written > SUMMARY_EVERY_S:
            written = bench.clock()
            save_all(fillings(), seconds())

    try:
        with Progress(budget, spent, tick) as progress:
            finished = tune(search, bench, times, record, progress, budget=budget, spent=spent)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not lose the summaries
        stopped = list(fillings())
        for filling, _ in stopped:  # the first may have come between a row and its count
            filling.times = Times(read_run(filling.table.folder).visits)
        save_all(stopped, seconds())
        rows = sum(filling.times.num_visits for filling, _ in stopped)
        keep = f"{stopped[0][0].table.folder} keeps" if len(stopped) == 1 else f"{len(stopped)} tables keep"
        print(f"\nstopped; {keep} {rows} rows; the same command goes on from there")
        return None
    except Exception:
        with contextlib.suppress(TableError):
            save_all(fillings(), seconds())
        raise
    return finished, seconds()


def save_all(fillings: Iterable[tuple[Filling, bool]], seconds: float) -> None:
    """Write all tables' summaries, and divide the seconds among them by the cells that they have."""
    each = list(fillings)
    cells = [1 + filling.times.num_measured() for filling, _ in each]
    for (filling, finished), mine in zip(each, cells, strict=True):
        filling.save(seconds * mine / sum(cells), finished)


def fill(
    table: TableWriter,
    bench: Bench,
    problem: SearchProblem,
    strategy: str,
    budget: float,
) -> int:
    """Measure until the budget ends or nothing is left, and print the result.

    budget: seconds, of all runs of the table.
    Returns 0; 1 if no config has a time in more than MOST_WITHOUT of the scenarios; or 130 after Ctrl-C.
    Raises TuningError and TableError; the rows so far are kept.
    """
    filling = Filling(table, problem, Times(table.visits))
    times, spent = filling.times, table.header.seconds

    def end(summary: Mapping[str, Any], why: str) -> int:
        without = filling.without()
        lines = [f"{table.folder}: {why}", *lines_of(summary, problem, times)]
        lines += lines_about_failing(without, summary, problem, times) if without else []
        print("\n".join([*lines, *lines_about_worth(summary, problem, times)]))
        return int(filling.fails())

    search = CheckFirst(STRATEGIES[strategy](problem), problem)
    if search.next_round(times, min(1.0, spent / budget)) is None:
        summary = filling.save(spent, not search.gave_up)
        return end(summary, f"{search.gave_up or FINISHED}; an earlier run found this:")
    if spent >= budget:
        used_up = f"the budget of {budget:.0f} s is used up; {GO_ON}"
        return end(summarise(problem, times, spent, False), used_up)
    done = measure(
        search, bench, times, filling.append, lambda: [(filling, False)], budget=budget, spent=spent
    )
    if done is None:
        return INTERRUPTED
    finished, seconds = done
    if search.gave_up:
        return end(filling.save(seconds, False), f"stopped early: {search.gave_up}")
    return end(filling.save(seconds, finished), FINISHED if finished else f"the budget is used up; {GO_ON}")


def summarise(problem: SearchProblem, times: Times, seconds: float, finished: bool) -> dict[str, Any]:
    """run.yaml's `summary`.

    Noise is the relative difference between two repeats of a cell; median and percentiles over these cells.
    """
    failures = times.failures()
    summary: dict[str, Any] = {
        "seconds": max(0.1, round(seconds, 1)),  # a table needs a number above 0
        "finished": finished,
        "scenarios": sum(bool(times.measured(scenario)) for scenario in problem.scenarios),
        "rows": times.num_visits,
        "cells_measured": times.num_measured(),
        "cells_possible": problem.possible,
        "cells_failed": sum(failures.values()),
        "failures": failures,
    }
    differences = times.differences()
    if len(differences) > 1:
        cuts = quantiles(differences, n=100, method="inclusive")
        for name, percent in (("noise_median", 50), ("noise_p90", 90), ("noise_p99", 99)):
            summary[name] = round(cuts[percent - 1], 5)
    return summary


def lines_of(summary: Mapping[str, Any], problem: SearchProblem, times: Times) -> list[str]:
    measured, possible = summary["cells_measured"], summary["cells_possible"]
    lines = [
        f"{summary['scenarios']} of {len(problem.scenarios)} scenarios, {summary['rows']} rows, "
        f"{measured} of {possible} cells ({measured / max(1, possible):.0%}), {summary['seconds']} s"
    ]
    if summary["finished"] and measured < possible:
        lines.append("the other cells need no time: their configs were slow in similar scenarios")
    if "noise_median" in summary:
        noise = (f"{summary[key]:.1%}" for key in ("noise_median", "noise_p90", "noise_p99"))
        lines.append("two repeats of a cell differ by {} (median), {} (90%), {} (99%)".format(*noise))
    wins: Counter[str] = Counter()
    for scenario in problem.scenarios:
        medians = times.medians(scenario)
        if medians:
            config = min(medians, key=medians.__getitem__)
            wins[problem.variants[config] or config] += 1
    if wins:
        ranked = wins.most_common(MOST_WINNERS)
        lines.append("fastest: " + ", ".join(f"{winner} in {count}" for winner, count in ranked))
    lines.append(f"failed cells: {summary['cells_failed']}")
    ranked = Counter(summary["failures"]).most_common()
    return [*lines, *(f"  {count}: {reason}" for reason, count in ranked)]


def lines_about_failing(
    scenarios: Sequence[str], summary: Mapping[str, Any], problem: SearchProblem, times: Times
) -> list[str]:
    """Say in which scenarios no config has a time, and why unless the summary has said so already."""
    (reason, _), *_ = Counter(times.failures(scenarios)).most_common()
    of_all = f"of {summary['scenarios']} scenarios"
    untried = [s for s in scenarios if len(times.measured(s)) < len(problem.candidates[s])]
    hopeless = [s for s in scenarios if s not in untried]
    lines = [f"no config works in {len(hopeless)} {of_all}, as in {hopeless[0]}"] if hopeless else []
    if untried:
        lines.append(f"in {len(untried)} {of_all} the configs tried so far fail, as in {untried[0]}")
    lines += [f"  mostly: {reason}"] if len(summary["failures"]) > 1 else []
    if reason.startswith(f"{DISAGREES}: "):
        lines.append("  if that is rounding, let `reference` round as the kernel does, or raise `tolerance`")
    return lines


def lines_about_worth(summary: Mapping[str, Any], problem: SearchProblem, times: Times) -> list[str]:
    """Name scenarios that compare nothing; if the run is not finished, say what its table is worth."""
    some = {s for s in problem.scenarios if times.measured(s) and len(problem.candidates[s]) > 1}
    alone, lines = sorted(some.difference(compared(problem, times))), []
    if alone:
        named = ", ".join(alone[:MOST_NAMED]) + (" and others" if len(alone) > MOST_NAMED else "")
        lines.append(f"{len(alone)} scenarios have one config only, so a build leaves them out: {named}")
    if summary["finished"]:
        return lines
    if (value := worth(problem, times)) is None:
        return [*lines, "too few scenarios compare configs to tell what a module would be worth"]
    measured, seconds = summary["cells_measured"], summary["seconds"]
    more = (problem.possible - measured) * seconds / measured
    return [
        *lines,
        f"expect {value.choice:.2f}x the best times of a module, and {value.single:.2f}x of the best single "
        f"config: so do choices in each of {value.compared} scenarios by the {ASKED} nearest others",
        f"half of these scenarios would give {value.by_half:.2f}x; at the rate so far, all other cells would "
        f"take {more:.0f} s more at most",
    ]

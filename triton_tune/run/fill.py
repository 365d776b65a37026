"""Fill tables: run a search on a bench, with progress, summaries and a clean end."""

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from triton_tune.bench.worker import DISAGREES
from triton_tune.core.problem import Bench, SearchProblem, Times
from triton_tune.run.progress import Progress
from triton_tune.search.loop import Together, tune
from triton_tune.search.race import ASKED, compared, worth
from tuning_table import TableError, TableWriter, read_run
from tuning_table.command_line import INTERRUPTED
from tuning_table.table import MOST_WITHOUT, Visit

SUMMARY_EVERY_S = 20.0  # how often run.yaml is written while a run measures
MOST_WINNERS, MOST_NAMED = 8, 3  # configs and scenarios that are named
FINISHED = "the search is finished"
GO_ON = "the same command with a larger --budget goes on"


@dataclass
class Run:
    """A search for kernels on a bench, and their tables, each of which is made for its first visit."""

    bench: Bench
    problems: Mapping[str, SearchProblem]  # by kernel: what may be measured
    tables: dict[str, TableWriter]  # of earlier runs; others come
    create: Callable[[str], TableWriter]  # the table of a kernel
    weights: Mapping[str, float]  # of the kernels
    strategy: str
    budget: float  # seconds, as is what earlier runs `spent`, and all did so far: `seconds`

    def __post_init__(self) -> None:
        self.times = Times(visit for table in self.tables.values() for visit in table.visits)
        self.spent = self.seconds = sum(table.header.seconds for table in self.tables.values())
        used = min(1.0, self.spent / self.budget)
        self.search = Together(self.problems, self.weights, self.strategy, self.times, used)
        self._owners = {s: name for name, problem in self.problems.items() for s in problem.scenarios}

    def times_of(self, name: str) -> Times:
        return self.times.of(self.problems[name].scenarios)

    def measure(self) -> bool:
        """Follow the search until the budget ends or nothing is left. Returns False after Ctrl-C.

        Raises TuningError and TableError; the rows so far are kept.
        """
        if self.spent >= self.budget or self.search.ended == self.problems.keys():
            return True  # and change nothing
        start = written = self.bench.clock()

        def tick() -> None:
            nonlocal written
            self.seconds = self.spent + self.bench.clock() - start
            if self.bench.clock() - written > SUMMARY_EVERY_S:
                written = self.bench.clock()
                self.save()

        try:
            with Progress(self.budget, self.spent, tick) as progress:
                options = {"budget": self.budget, "spent": self.spent}
                tune(self.search, self.bench, self.times, self._record, progress, **options)
                tick()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not lose the summaries
            # The first may have come between a row and its count.
            folders = [table.folder for table in self.tables.values()]
            self.times = Times(visit for folder in folders for visit in read_run(folder).visits)
            tick()
            self.save()
            keep = f"{folders[0]} keeps" if len(folders) == 1 else f"{len(folders)} tables keep"
            print(f"\nstopped; {keep} {self.times.num_visits} rows; the same command goes on from there")
            return False
        except Exception:
            with contextlib.suppress(TableError):
                tick()
                self.save()
            raise
        return True

    def _record(self, visit: Visit) -> None:
        name = self._owners[visit.scenario]
        if name not in self.tables:
            self.tables[name] = self.create(name)
        self.tables[name].append(visit.scenario, visit.cells, visit.repeat)

    def summary(self, name: str, share: float = 1.0) -> dict[str, Any]:
        """run.yaml's `summary` of a kernel's table, which gets this share of the seconds."""
        finished = name in self.search.finished
        return summarise(self.problems[name], self.times_of(name), self.seconds * share, finished)

    def save(self) -> None:
        """Write all tables' summaries, and divide the seconds among them by the cells that they have."""
        cells = {name: 1 + self.times_of(name).num_measured() for name in self.tables}
        for name, table in self.tables.items():
            table.summarise(self.summary(name, cells[name] / sum(cells.values())))


def without_time(problem: SearchProblem, times: Times) -> list[str]:
    """The scenarios in which no config that was tried has a time."""
    return [s for s in problem.scenarios if times.measured(s) and not times.medians(s)]


def fails(problem: SearchProblem, times: Times) -> bool:
    """Whether more than MOST_WITHOUT of the measured scenarios have no config with a time."""
    seen = sum(bool(times.measured(scenario)) for scenario in problem.scenarios)
    return len(without_time(problem, times)) > MOST_WITHOUT * seen


def fill(table: TableWriter, bench: Bench, problem: SearchProblem, strategy: str, budget: float) -> int:
    """Measure until the budget ends or nothing is left, and print the result.

    budget: seconds, of all runs of the table.
    Returns 0; 1 if no config has a time in more than MOST_WITHOUT of the scenarios; or 130 after Ctrl-C.
    Raises TuningError and TableError; the rows so far are kept.
    """
    name = table.header.kernel
    run = Run(bench, {name: problem}, {name: table}, lambda name: table, {name: 1.0}, strategy, budget)
    if not run.measure():
        return INTERRUPTED
    if gave_up := run.search.gave_up.get(name):
        why = f"stopped early: {gave_up}"
    else:
        why = FINISHED if run.search.finished else f"the budget is used up; {GO_ON}"
    run.save()
    summary, times = run.summary(name), run.times
    lines = [f"{table.folder}: {why}", *lines_of(summary, problem, times)]
    if without := without_time(problem, times):
        lines += lines_about_failing(without, summary, problem, times)
    print("\n".join([*lines, *lines_about_worth(summary, problem, times)]))
    return int(fails(problem, times))


def summarise(problem: SearchProblem, times: Times, seconds: float, finished: bool) -> dict[str, Any]:
    """run.yaml's `summary`. Noise is the relative difference between two repeats of a cell."""
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
        lines.append("the other cells were left out, as their configs were slow in similar scenarios")
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
        f"expect {value.choice:.2f}x the best times so far of a module, and {value.single:.2f}x of the best "
        f"single config: so do choices in each of {value.compared} scenarios by the {ASKED} nearest others",
        f"half of these scenarios would give {value.by_half:.2f}x; at the rate so far, all other cells would "
        f"take {more:.0f} s more at most",
    ]

"""The search: a check, a sweep of a few scenarios, the best configs everywhere; and what a table is worth."""

import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triton_tune.core.problem import PlannedVisit, Round, SearchProblem, ShapeKey, Times
from triton_tune.search.neighbours import Distances

REPEATS = 2
FIRST_ROUND = 2  # scenarios that are checked, and swept; few, as all their configs are compiled first
CHECKED_CONFIGS = 2  # that the check times in each of these
CHECK_SHARE = 0.25  # checking ends at this share of the budget
ASKED_AT_ONCE = 16  # neighbours
# The slowdown of a config without a time in a scenario (it failed, cannot run or was not tried). Greater
# slowdowns count as this one.
ABSENT = 4.0

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]  # numbers of scenarios


@dataclass(frozen=True)
class RaceRules:
    """Limits of a race. A config is hopeless if it was slow in all the nearest scenarios that tried it."""

    # The number of scenarios to sweep first, in rounds of 2, 2, 4, 8, and so on: at least, and at most.
    explore: tuple[int, int] = (4, 64)
    explore_share: float = 0.6  # exploring more than the least ends at this share of the budget
    hopeless: float = 1.15  # a config is slow above this slowdown
    neighbours: int = 5  # the number of nearest scenarios
    portfolio_loss: float = 0.002  # the portfolio is large enough when it loses at most this
    portfolio_size: tuple[int, int] = (2, 32)  # the fewest and the most configs
    again: float = 1.3  # a config of the portfolio is timed again up to this slowdown
    refine: int = 64  # the number of scenarios to sweep in each further round
    verify: int = 32  # of the scenarios to sweep first, those that get the hopeless configs in the end


# Every config in every scenario, and those near the best a second time.
FULL = RaceRules(explore=(sys.maxsize, sys.maxsize), hopeless=math.inf, again=1.15)
STRATEGIES = {"race": RaceRules(), "full": FULL}


class Race:
    """Sweeps a few scenarios that stand for all, and times a portfolio of configs chosen there everywhere.

    First it checks two configs in two scenarios, so that a mistake ends a run in seconds. These configs are
    from the middle of the list, as those at the ends of a space are seldom good. Once every config has failed
    in more than half of these scenarios, nothing further is planned (`gave_up`: why).

    With the remaining time, it sweeps the other scenarios that represent most of the rest, and the portfolio
    grows. In the end the hopeless configs are tried in the scenarios swept first; near those where they are
    fast, they are hopeless no longer. Whenever the budget ends, the table compares configs: each scenario has
    times of all configs that are not hopeless, of the portfolio, or none at all.
    """

    def __init__(self, problem: SearchProblem, rules: RaceRules = STRATEGIES["race"]) -> None:
        self.gave_up = ""
        self._problem, self._rules = problem, rules
        self._seen = Seen(problem)
        self._scenarios = self._seen.scenarios
        self._numbers = {scenario: number for number, scenario in enumerate(self._scenarios)}
        self._distances = Distances(problem)
        self._between = self._distances.matrix(self._scenarios, self._scenarios)
        self._families = self._nearest_of_families()
        spread = self._distances.representatives(self._scenarios, self._rules.explore[1])
        self._first = [self._numbers[scenario] for scenario in spread]

    def next_round(self, times: Times, spent: float) -> Round | None:
        rules, seen = self._rules, self._seen
        seen.update(times)
        untried = seen.candidates & (seen.repeats == 0)
        checked = self._first[:FIRST_ROUND]
        unchecked = [row for row in checked if not seen.repeats[row].any()]
        if unchecked and spent < CHECK_SHARE:
            middle = tuple(PlannedVisit(self._scenarios[row], 1, self._middle(row)) for row in unchecked)
            return Round("a first check", middle, CHECK_SHARE)
        failing = [row for row in checked if not untried[row].any() and not seen.has_time[row]]
        if 2 * len(failing) > len(checked):
            where = f"{len(failing)} of {len(checked)} scenarios, as in {self._scenarios[failing[0]]}"
            self.gave_up = f"no config works in {where}"
            return None
        promising = untried & ~self._hopeless(untried)
        fresh = promising & ((seen.repeats > 0).sum(axis=1, keepdims=True) <= CHECKED_CONFIGS)
        begin, end = 0, FIRST_ROUND
        while begin < len(self._first):
            share = 1.0 if end <= rules.explore[0] else rules.explore_share
            tasks = self._visits(times, fresh, "explore", self._first[begin:end])
            if tasks and spent < share:
                return Round(f"explore {end}", tasks, share)
            begin, end = end, 2 * end
        swept = np.flatnonzero((seen.repeats > 0).any(axis=1) & ~promising.any(axis=1))
        portfolio = self._portfolio(swept)
        for repeat in range(1, REPEATS + 1):
            # Of the portfolio, and of others that may be the best.
            limits = np.where(portfolio, rules.again, min(rules.again, rules.hopeless))
            wanted = portfolio if repeat == 1 else seen.slowdowns <= limits
            due = seen.candidates & wanted & (seen.repeats == repeat - 1)
            tasks = self._visits(times, due, f"portfolio/{repeat}/{len(swept)}")
            if tasks:
                return Round(f"portfolio of {portfolio.sum()}, repeat {repeat}", tasks)
        # Where no config has a time yet, hopeless configs are tried, too.
        left = np.where(seen.has_time[:, None], promising, untried)
        unsure = np.asarray(left.any(axis=1))
        chosen = self._distances.representatives(
            self._names(np.flatnonzero(unsure)), rules.refine, self._names(swept[~unsure[swept]])
        )
        tasks = self._visits(times, left, f"refine/{len(swept)}", [self._numbers[s] for s in chosen])
        # Few scenarios told what is hopeless, so it is tried in the first of them before the search ends.
        tasks = tasks or self._visits(times, untried, "verify", self._first[: rules.verify])
        return Round("refine", tasks) if tasks else None

    def _middle(self, row: int) -> tuple[str, ...]:
        configs = self._problem.candidates[self._scenarios[row]]
        begin = max(0, (len(configs) - CHECKED_CONFIGS) // 2)
        return configs[begin : begin + CHECKED_CONFIGS]

    def _visits(
        self, times: Times, due: Mask, shuffle: str, among: Iterable[int] | None = None
    ) -> tuple[PlannedVisit, ...]:
        """A visit for each scenario with cells that are due, in an order that the seed `shuffle` gives."""
        columns = {config: column for column, config in enumerate(self._seen.configs)}
        tried, tasks = self._seen.repeats > 0, []
        for number in range(len(due)) if among is None else among:
            if due[number].any():
                alone = (due[number] | tried[number]).sum() < 2
                # A single config compares nothing.
                wanted = np.where(alone, due[number] | ~tried[number], due[number])
                scenario = self._scenarios[number]
                configs = (c for c in self._problem.candidates[scenario] if wanted[columns[c]])
                tasks.append(PlannedVisit(scenario, times.next_repeat(scenario), tuple(configs)))
        random.Random(f"{self._problem.seed}/{shuffle}").shuffle(tasks)
        return tuple(tasks)

    def _portfolio(self, swept: Rows) -> Mask:
        """The configs to time everywhere: a cover of the swept scenarios, and each variant's best config."""
        problem, rules, seen = self._problem, self._rules, self._seen
        slowdowns, weights = seen.slowdowns[swept], self._weights(swept)
        possible = np.array(list(problem.configs.values()), dtype=np.int64)
        everywhere = np.flatnonzero((seen.repeats > 0).sum(axis=0) == possible)  # the portfolio so far
        start, loss, (least, most) = everywhere.tolist(), rules.portfolio_loss, rules.portfolio_size
        chosen = list(cover(slowdowns, weights, start=start, loss=loss, most=most))
        variants = [problem.variants[config] for config in seen.configs]
        lost = weights @ np.log(np.minimum(slowdowns, ABSENT))
        others = [column for column in lost.argsort(kind="stable").tolist() if column not in chosen]
        chosen += others[: max(0, least - len(chosen))]
        for variant in dict.fromkeys(variants):
            columns = [column for column, other in enumerate(variants) if other == variant]
            if not set(columns) & set(chosen):
                chosen.append(min(columns, key=lost.__getitem__))
        portfolio = np.zeros(len(seen.configs), dtype=bool)
        portfolio[chosen] = True
        return portfolio

    def _nearest_of_families(self) -> list[tuple[Rows, Rows]]:
        """For each family its scenarios, and for each of these all [scenario, rank], nearest first."""
        families: dict[ShapeKey, list[int]] = {}
        for number, scenario in enumerate(self._scenarios):
            families.setdefault(self._problem.family(scenario), []).append(number)
        nearest = []
        for members in map(np.array, families.values()):
            between = self._between[np.ix_(members, members)]
            nearest.append((members, members[between.argsort(axis=1, kind="stable")]))
        return nearest

    def _hopeless(self, untried: Mask) -> Mask:
        """Which untried configs were slow or failed wherever this family's nearest scenarios tried them."""
        enough = self._rules.neighbours
        tried = self._seen.repeats > 0
        fast = tried & (self._seen.slowdowns <= self._rules.hopeless)
        visited = np.asarray(tried.any(axis=1))
        hopeless = np.zeros_like(untried)
        for members, everyone in self._families:
            nearest = everyone[visited[everyone]].reshape(len(members), -1)
            rows, configs = np.nonzero(untried[members])  # the cells that ask the neighbours
            num_tried = np.zeros(len(rows), dtype=np.intp)  # neighbours that tried the config
            for rank in range(0, nearest.shape[1], ASKED_AT_ONCE):
                asked = nearest[rows, rank : rank + ASKED_AT_ONCE], configs[:, None]
                order = num_tried[:, None] + tried[asked].cumsum(axis=1)
                promising = (fast[asked] & (order <= enough)).any(axis=1)
                num_tried = order[:, -1]
                slow = ~promising & (num_tried >= enough)
                hopeless[members[rows[slow]], configs[slow]] = True
                left = ~promising & ~slow
                rows, configs, num_tried = rows[left], configs[left], num_tried[left]
        return hopeless

    def _weights(self, swept: Rows) -> npt.NDArray[np.float64]:
        """For each swept scenario the number of scenarios to which it is the nearest."""
        nearest = self._between[swept].argmin(axis=0) if len(swept) else np.array([], dtype=np.intp)
        return np.bincount(nearest, minlength=len(swept)).astype(np.float64)

    def _names(self, numbers: Rows) -> Sequence[str]:
        return [self._scenarios[number] for number in numbers]


class Seen:
    """The times so far as arrays [scenario, config]; only rows that have changed are filled again."""

    def __init__(self, problem: SearchProblem) -> None:
        self.scenarios = tuple(s for s in problem.scenarios if problem.candidates[s])
        self.configs = tuple(problem.configs)
        self._columns = {config: column for column, config in enumerate(self.configs)}
        shape = len(self.scenarios), len(self.configs)
        self.candidates = np.zeros(shape, dtype=bool)
        for row, scenario in enumerate(self.scenarios):
            self.candidates[row, self._columns_of(problem.candidates[scenario])] = True
        self.repeats = np.zeros(shape, dtype=np.int32)
        self.slowdowns = np.full(shape, ABSENT)  # ABSENT also for configs that failed
        self.has_time = np.zeros(len(self.scenarios), dtype=bool)
        self._filled: dict[int, Mapping[str, float]] = {}  # by row: the slowdowns that it holds

    def update(self, times: Times) -> None:
        for row, scenario in enumerate(self.scenarios):
            slowdowns = times.slowdowns(scenario)  # another object if the scenario has changed
            if self._filled.get(row) is slowdowns:
                continue
            self._filled[row] = slowdowns
            self.has_time[row] = bool(slowdowns)
            self.repeats[row], self.slowdowns[row] = 0, ABSENT
            measured = times.measured(scenario)
            columns = self._columns_of(measured)
            tried = [self.configs[column] for column in columns]
            self.repeats[row, columns] = [len(measured[config]) for config in tried]
            self.slowdowns[row, columns] = [slowdowns.get(config, ABSENT) for config in tried]

    def _columns_of(self, configs: Iterable[str]) -> list[int]:
        return [self._columns[config] for config in configs if config in self._columns]


def cover(
    slowdowns: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    *,
    start: Sequence[int] = (),
    loss: float,
    most: int,
) -> tuple[int, ...]:
    """Start with `start` and add the config that helps most, until there are `most` configs.

    Args:
        slowdowns: [scenario, config].
        weights: [scenario].
        start: columns, as are the configs that are returned.
        loss: stop once the best of the chosen configs loses at most this, in the weighted geometric mean.

    The greedy choice reaches at least 1 - 1/e of the greatest gain that as many configs can have: Nemhauser,
    Wolsey, Fisher, Mathematical Programming 14, 1978.
    """
    logs = np.log(np.minimum(slowdowns, ABSENT))
    chosen = list(start)
    lost = logs[:, chosen].min(axis=1, initial=math.log(ABSENT))
    enough = math.log1p(loss) * weights.sum()
    while len(chosen) < most and weights @ lost > enough:
        gains = weights @ np.maximum(0.0, lost[:, None] - logs)
        best = int(gains.argmax()) if gains.size else -1
        if best < 0 or gains[best] <= 0:
            break
        chosen.append(best)
        lost = np.minimum(lost, logs[:, best])
    return tuple(chosen)


ASKED = 3  # nearest scenarios; the means then come closest to those of modules on models that were not tuned
PASSES = 20  # of the estimate, which soon converges


@dataclass(frozen=True)
class Worth:
    """Geometric means over the compared scenarios, of the time over the best one measured there."""

    compared: int  # scenarios in which at least two configs have a time or a failure
    choice: float  # of what is best on average in the nearest others
    by_half: float  # the same, if only a half of the scenarios can be asked
    single: float  # of the best single config


def compared(problem: SearchProblem, times: Times) -> list[str]:
    """The scenarios that compare configs; with one cell, a scenario says nothing about any."""
    return [scenario for scenario in problem.scenarios if len(times.measured(scenario)) > 1]


def worth(problem: SearchProblem, times: Times) -> Worth | None:
    """Judge choices by leaving out each scenario; None with fewer than four that compare configs."""
    names = compared(problem, times)
    if len(names) < 4:
        return None
    seen = Seen(problem)
    seen.update(times)
    rows = [seen.scenarios.index(name) for name in names]
    tried = seen.repeats[rows] > 0
    logs = np.log(np.minimum(seen.slowdowns[rows], ABSENT))
    logs = np.where(tried, logs, estimated(logs, tried))
    logs[~seen.candidates[rows]] = math.log(ABSENT)
    distances = Distances(problem).matrix(names, names)
    np.fill_diagonal(distances, math.inf)

    def choice() -> float:
        nearest = distances.argsort(axis=1, kind="stable")[:, :ASKED]
        chosen = np.where(seen.candidates[rows], logs[nearest].mean(axis=1), math.inf).argmin(axis=1)
        return math.exp(logs[np.arange(len(rows)), chosen].mean())

    whole = choice()
    distances[:, random.Random(problem.seed).sample(range(len(rows)), len(rows) // 2)] = math.inf
    return Worth(len(rows), whole, choice(), math.exp(logs.mean(axis=0).min()))


def estimated(logs: npt.NDArray[np.float64], tried: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """[scenarios, configs] the sum of a factor of the scenario and one of the config, by least squares.

    logs: of slowdowns, of which those that were `tried` count. A config that was tried nowhere is ABSENT.
    """
    of_row, of_config = np.zeros((len(logs), 1)), np.zeros(logs.shape[1])
    for _ in range(PASSES):
        of_config = np.where(tried, logs - of_row, 0.0).sum(axis=0) / np.maximum(1, tried.sum(axis=0))
        of_config[~tried.any(axis=0)] = math.log(ABSENT)
        rest = np.where(tried, logs - of_config, 0.0).sum(axis=1, keepdims=True)
        of_row = rest / np.maximum(1, tried.sum(axis=1, keepdims=True))
    return np.maximum(0.0, of_row + of_config)

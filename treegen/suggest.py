"""treegen suggest: search derived features, and print them for the spec."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.errors import InputError, one_line
from treegen.core.files import problem_with_package_name
from treegen.core.problem import UNIT, Problem, with_untimed_penalty
from treegen.core.spec import Budget, Spec
from treegen.crossval.folds import Fold, split_copies
from treegen.fit.costs import copies, losses
from treegen.fit.local_search import grow
from treegen.fit.search import shortlist
from treegen.fit.training_set import TrainingSet, candidate_splits, low_sides
from treegen.read.problem import read_table, spec_problem
from treegen.read.spec import find_spec, read_spec

_FEWEST = 10  # scenarios with different features of a table
_NOTE = (
    "wins: what trees lose without the feature, held out, +- two standard errors; one is enough. "
    "Lines to keep go into the spec, and their names into `split_on` if the kernel has it. "
    "greedy: trees of greedy growth, held out; the figures flatter, as features were selected by them. "
    "`treegen build` prints the held-out figure of the whole fit."
)


def run(spec_path: Path | None, kernel: str | None, device: str | None, most: int, *, raw: bool) -> None:
    """Print suggestions for each selected kernel. Raises InputError.

    raw: ignore the derived features of the spec.
    """
    if not 1 <= most <= 32:
        raise InputError(f"--most {most}", "must be from 1 to 32")
    for name, problems in _selected(read_spec(find_spec(spec_path)), kernel, device):
        if not problems:
            print(f"{name}: no table of at least {_FEWEST} different scenarios", flush=True)
            continue
        if raw:
            problems = [without_derived(problem) for problem in problems]
        devices = ", ".join(problem.device.key for problem in problems)
        print(one_line(f"{name} on {devices}"), flush=True)
        for line in _lines(suggest(problems, most)):
            print(one_line(line), flush=True)
    print(_NOTE)


def _selected(spec: Spec, kernel: str | None, device: str | None) -> list[tuple[str, list[Problem]]]:
    """The kernels with a table, and the problems of their tables that have enough scenarios."""
    selected = []
    for known in spec.selected(kernel):
        folders: dict[Path, str] = {}
        for key, folder in known.tables.items():
            if device in (None, key):
                folders.setdefault(folder, key)
        problems = [
            spec_problem(known, spec.devices[key], read_table(folder)) for folder, key in folders.items()
        ]
        if problems:
            enough = [p for p in problems if int(copies(p.features).max()) + 1 >= _FEWEST]
            selected.append((known.name, enough))
    if not any(problems for _, problems in selected):
        raise InputError(spec.path, f"selects no table of at least {_FEWEST} different scenarios")
    return selected


def without_derived(problem: Problem) -> Problem:
    """The problem as a spec that declares no derived feature makes it. Raises InputError if none is raw."""
    raw = tuple(name for name in problem.names if name in problem.kernel.features)
    if not raw:
        raise InputError(problem.table.folder, "holds no raw feature")
    features = np.stack([problem.column(name) for name in raw], axis=1)
    return replace(problem, names=raw, split_on=raw, features=features)


def _lines(found: Suggestions) -> Iterator[str]:
    if not found.found:
        yield f"  greedy {found.before:.4f} on {len(found.features)} features; nothing helps"
        return
    count = len(found.features)
    yield f"  greedy {found.before:.4f} on {count} features, {found.after:.4f} with {len(found.found)} more:"
    yield "    derived:"
    for one in found.found:
        yield f"      {one.name}: {one.text}  # wins {math.expm1(one.wins):.2%} +- {2 * one.error:.2%}"


Ints = npt.NDArray[np.int64]

MULTIPROCESSORS = "multiprocessors"
"""The limit of devices with which waves are counted."""

_SCALES = (1, 16, 256, 4096)  # a quotient of integers is multiplied by one of them, to keep its digits
_FINE = 8  # most values of a scaled quotient must be at least this
_BLOCKS = (64, 128)  # rows of a tile
_MODULI = (16, 128)
_MOST_BITS = 62
_LONGEST = 60  # characters of a name


@dataclass(frozen=True)
class Candidate:
    """A derived feature. values: [scenarios] int64 of each problem."""

    name: str
    text: str  # the expression, as the spec spells it
    values: tuple[Ints, ...]


Known = Mapping[str, tuple[Ints, ...]]
"""[scenarios] the values of each feature, in each problem."""


def candidates(
    known: Known, limits: Mapping[str, Sequence[int]], fresh: Sequence[str], raw: Sequence[str]
) -> list[Candidate]:
    """Expressions of at most two features, of which one is among `fresh`; the simplest first.

    Left out are names that are taken, and expressions that divide no scenarios or grow beyond 62 bits.

    Args:
        known: the features that expressions may use, except those of one value
        limits: integers that expressions may use, one for each problem
        fresh: the features that are new since the last call; others were tried already
        raw: the features of which remainders, tiles and waves are made, too
    """
    found: dict[str, Candidate] = {}
    for name, text in _texts(known, limits, fresh, raw):
        if name in known or name in found or len(name) > _LONGEST:
            continue
        if problem_with_package_name(name, capitals=True):
            continue
        values = _values(text, known, limits)
        if values is not None and any(len(np.unique(column)) > 1 for column in values):
            found[name] = Candidate(name, text, values)
    return list(found.values())


def _texts(
    known: Known, limits: Mapping[str, Sequence[int]], fresh: Sequence[str], raw: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Names and texts."""
    varied = [name for name, parts in known.items() if any(len(np.unique(part)) > 1 for part in parts)]
    for name in varied:
        if name in fresh and name in raw:
            yield from ((f"{name}_mod_{modulus}", f"{name} % {modulus}") for modulus in _MODULI)
    pairs = [pair for pair in combinations(varied, 2) if set(pair) & set(fresh)]
    for one, other in pairs:
        yield f"{one}_x_{other}", f"{one} * {other}"
    for one, other in permutations(varied, 2):
        if {one, other} & set(fresh):
            scale = _scale(known[one], known[other])
            over = f"{one} // max(1, {other})" if scale == 1 else f"{scale} * {one} // max(1, {other})"
            yield f"{one}_per_{other}", over
    for one, other in pairs:
        for block in _BLOCKS if {one, other} <= {*raw} else ():
            tiles = f"ceil_div({one}, {block}) * ceil_div({other}, {block})"
            yield f"tiles_{block}_{one}_{other}", tiles
            if MULTIPROCESSORS in limits:
                yield f"waves_{block}_{one}_{other}", f"ceil_div({tiles}, max(1, {MULTIPROCESSORS}))"


def _scale(dividend: tuple[Ints, ...], divisor: tuple[Ints, ...]) -> int:
    """The least scale at which most quotients keep their digits; 1 where they are whole."""
    one, other = np.concatenate(dividend), np.maximum(1, np.concatenate(divisor))
    if not (one % other).any():
        return 1
    fine = (scale for scale in _SCALES if np.mean(scale * one.astype(np.float64) / other >= _FINE) > 0.9)
    return next(fine, _SCALES[-1])


def _values(text: str, known: Known, limits: Mapping[str, Sequence[int]]) -> tuple[Ints, ...] | None:
    """The values in each problem; None if one needs more than 62 bits."""
    expression = expr.parse(text)
    if len(text) > expr.MAX_TEXT:
        return None
    parts = []
    for number in range(len(next(iter(known.values())))):
        names = {name: known[name][number].tolist() for name in expr.names(expression) if name in known}
        fixed = {name: values[number] for name, values in limits.items()}
        rows = zip(*names.values(), strict=True)
        values = [expr.evaluate(expression, {**fixed, **dict(zip(names, row, strict=True))}) for row in rows]
        if max(value.bit_length() for value in values) > _MOST_BITS:
            return None
        parts.append(np.array(values, dtype=np.int64))
    return tuple(parts)


Floats = npt.NDArray[np.float64]

_LEAST_GAIN = 0.001  # of the time; a feature that wins less is not worth a line of the spec
_Z = 1.0  # standard errors that a feature must win
_CLOSE = 12  # candidates that are best in two halves held out, which are compared in all folds
_FOLDS, _SHUFFLES = 5, 2
_NEARLY = 0.8  # of the greatest gain; of these candidates the shortest is taken
_MOST_ROWS = 2000  # scenarios of a table that are read, evenly spaced
_MOST_CAP = 4 * UNIT  # a failure counts as e^4 times slower, so that one does not outweigh all times
_SMALLEST_LEAF = 200


@dataclass(frozen=True)
class Suggestion:
    """A feature that was selected."""

    name: str
    text: str
    wins: float  # log slowdown that the others lose without it, held out
    error: float  # one standard error of that over scenarios


@dataclass(frozen=True)
class Suggestions:
    """The result for one kernel."""

    features: tuple[str, ...]  # those that trees may split on without the suggestions
    before: float  # held-out geometric mean slowdown of greedy trees without the suggestions
    after: float  # and with them; optimistic, as they were selected by it
    found: tuple[Suggestion, ...]


@dataclass(frozen=True)
class _Trial:
    """A problem, prepared for many quick trees on different features."""

    loss: Floats  # [scenarios, configs] of the shortlist
    scored: Floats  # [scenarios, configs] costs that count in held-out scenarios
    halves: tuple[Fold, ...]
    folds: tuple[Fold, ...]
    budget: Budget

    def held_out(self, is_low: Floats, folds: Sequence[Fold]) -> Floats:
        """[scenarios] the mean log slowdown of greedy trees that have not seen the scenario.

        is_low: [splits, scenarios]
        """
        total, count = np.zeros(len(self.loss)), np.zeros(len(self.loss))
        for fold in folds:
            known = self._training(is_low, fold.train)
            tree = grow(known, known.best_config(known.all_rows))
            unseen = replace(known, is_low=is_low[:, fold.test], loss=self.scored[fold.test])
            total[fold.test] += unseen.row_losses(tree, unseen.all_rows)
            count[fold.test] += 1
        return np.asarray(total / count / UNIT)

    def _training(self, is_low: Floats, rows: Ints) -> TrainingSet:
        price = round(self.budget.leaf_price * UNIT * len(rows))
        least = max(1, len(rows) // _SMALLEST_LEAF)
        limits = self.budget.max_depth, self.budget.max_leaves
        return TrainingSet(is_low[:, rows], self.loss[rows], least, *limits, price)


class _Search:
    """The search for features that help the trees of some problems of one kernel."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._trials = [_trial(problem) for problem in problems]
        names = [name for name in problems[0].names if all(name in p.names for p in problems)]
        self.split_on = [name for name in problems[0].split_on if name in names]
        self._known: dict[str, tuple[Ints, ...]] = {n: tuple(p.column(n) for p in problems) for n in names}
        limits = [problem.device.limits for problem in problems]
        shared = [name for name in limits[0] if all(name in others for others in limits)]
        self._limits = {name: [limit[name] for limit in limits] for name in shared}
        self._splits = {name: _splits(self._known[name]) for name in self.split_on}
        self.texts: dict[str, str] = {}
        self._candidates: dict[str, Candidate] = {}
        self._pool: list[str] = []
        self._raw = [name for name in names if name in problems[0].kernel.features]
        self._extend(names)

    def step(self, chosen: Sequence[str]) -> str | None:
        """The shortest of the candidates that win most beside the chosen ones; None if none wins enough."""
        tried = [name for name in self._pool if name not in chosen]
        rough = {name: self._rough([*self.split_on, *chosen, name]) for name in tried}
        now = self.held_out(chosen)
        close = sorted(tried, key=lambda name: rough[name])[:_CLOSE]
        gains = {name: difference(now, self.held_out([*chosen, name])) for name in close}
        enough = {name: gain for name, (gain, error) in gains.items() if _is_enough(gain, error)}
        if not enough:
            return None
        nearly = (name for name, gain in enough.items() if gain >= _NEARLY * max(enough.values()))
        best = min(nearly, key=lambda name: len(self.texts[name]))
        self._extend([best])
        return best

    def held_out(self, chosen: Sequence[str]) -> Floats:
        """The held-out log slowdowns of all problems' scenarios."""
        names = [*self.split_on, *chosen]
        trials = enumerate(self._trials)
        return np.concatenate([trial.held_out(self._sides(names, n), trial.folds) for n, trial in trials])

    def _rough(self, names: Sequence[str]) -> float:
        trials = enumerate(self._trials)
        return sum(float(t.held_out(self._sides(names, n), t.halves).mean()) for n, t in trials)

    def _sides(self, names: Sequence[str], problem: int) -> Floats:
        return np.concatenate([self._splits[name][problem] for name in names])

    def _extend(self, fresh: Sequence[str]) -> None:
        """Add the candidates that contain one of these features."""
        self._known |= {name: self._candidates[name].values for name in fresh if name in self.texts}
        more = {c.name: c for c in candidates(self._known, self._limits, fresh, self._raw)}
        self._candidates |= more
        self._pool += more
        self.texts |= {name: candidate.text for name, candidate in more.items()}
        self._splits |= {name: _splits(candidate.values) for name, candidate in more.items()}


def suggest(problems: Sequence[Problem], most: int) -> Suggestions:
    """Search derived features, at most `most`, that help the trees of all these problems of one kernel."""
    search = _Search([_thinned(problem) for problem in problems])
    chosen: list[str] = []
    while len(chosen) < most and (name := search.step(chosen)) is not None:
        chosen.append(name)
    found: list[Suggestion] = []
    while chosen:
        now = search.held_out(chosen)
        gone = {name: _without(name, chosen, search.texts) for name in chosen}
        wins = {name: difference(search.held_out(gone[name]), now) for name in chosen}
        found = [Suggestion(name, search.texts[name], *wins[name]) for name in chosen]
        weak = [name for name in chosen if not _is_enough(*wins[name])]
        if not weak:
            break
        chosen, found = gone[min(weak, key=lambda name: wins[name][0])], []
    before, after = search.held_out([]), search.held_out(chosen)
    return Suggestions(tuple(search.split_on), _geomean(before), _geomean(after), tuple(found))


def with_suggestions(problem: Problem, found: Sequence[Suggestion]) -> Problem:
    """The problem with further features, on which trees may split."""
    columns: dict[str, Ints] = {name: problem.column(name) for name in problem.names}
    for suggestion in found:
        expression, rows = expr.parse(suggestion.text), range(len(problem.cost))
        names = [name for name in expr.names(expression) if name in columns]
        limits = problem.device.limits
        values = [
            expr.evaluate(expression, {**limits, **{n: int(columns[n][r]) for n in names}}) for r in rows
        ]
        columns[suggestion.name] = np.array(values, dtype=np.int64)
    return replace(
        problem,
        names=tuple(columns),
        features=np.stack(list(columns.values()), axis=1),
        split_on=(*problem.split_on, *(suggestion.name for suggestion in found)),
    )


def _without(name: str, chosen: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """The chosen features without one of them and all that are computed from it."""
    derived = {other: expr.parse(texts[other]) for other in chosen}
    return [other for other in chosen if name not in expr.with_parts([other], derived)]


def _is_enough(gain: float, error: float) -> bool:
    return gain > max(_LEAST_GAIN, _Z * error)


def difference(before: Floats, after: Floats) -> tuple[float, float]:
    """The mean drop and its standard error over scenarios."""
    drop = before - after
    return float(drop.mean()), float(drop.std(ddof=1) / math.sqrt(len(drop))) if len(drop) > 1 else 0.0


def _geomean(slowdowns: Floats) -> float:
    return math.exp(float(slowdowns.mean()))


def _thinned(problem: Problem) -> Problem:
    rows = np.unique(np.linspace(0, len(problem.cost) - 1, _MOST_ROWS).round().astype(np.int64))
    return problem.rows(rows)


def _trial(problem: Problem) -> _Trial:
    loss = losses(problem)
    columns = shortlist(loss, UNIT)
    scored = np.minimum(with_untimed_penalty(problem.cost), _MOST_CAP)[:, columns]
    copy = copies(problem.features)
    folds = split_copies(copy, min(_FOLDS, int(copy.max()) + 1), _SHUFFLES)
    floats = loss[:, columns].astype(np.float64), scored.astype(np.float64)
    return _Trial(*floats, split_copies(copy, 2, 1), folds, problem.kernel.budget)


def _splits(values: tuple[Ints, ...]) -> list[Floats]:
    """[splits, scenarios] of one feature, in each problem."""
    columns = [column[:, None] for column in values]
    return [low_sides(candidate_splits(column), column).astype(np.float64) for column in columns]

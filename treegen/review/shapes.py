"""A shape that a user describes: the features that follow, those taken from a scenario, and what is near."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem, broken_invariant
from treegen.review.modules import BITS
from treegen.review.printing import value_words

Floats = npt.NDArray[np.float64]

_APART = 16.0  # doublings between two words
_SAMPLE = 2048  # scenarios whose nearest others are looked up
_FEW = 16  # a feature with at most this many values is a kind of shape, not a size ...
_EACH = 10  # ... if each value has at least this many scenarios on average


@dataclass(frozen=True)
class Shape:
    """A value for every known feature."""

    values: Mapping[str, int]  # in the spec's order
    assumed: tuple[str, ...]  # taken from the scenario `source`
    source: str | None


def doublings(values: npt.ArrayLike, words: Iterable[int] = ()) -> Floats:
    """Positions on an axis where a value twice as large is 1 away.

    words: the integers that stand for words, so far apart that shapes with the same words are nearer.
    """
    if kinds := sorted(words):
        return np.asarray(_APART * np.searchsorted(kinds, values))
    return np.log2(np.maximum(values, 0.5).astype(np.float64))  # 0 is one doubling below 1


class FeatureSpace:
    """The scenarios of a problem as points, in doublings; by default over raw features and `split_on`."""

    def __init__(self, problem: Problem, names: Iterable[str] | None = None) -> None:
        if names is None:
            names = [n for n in problem.names if n in problem.kernel.features or n in problem.split_on]
        self._words = {name: problem.kernel.values.get(name, {}) for name in names}
        columns = [doublings(problem.column(name), words) for name, words in self._words.items()]
        self.points = np.stack(columns, axis=1)  # [scenarios, names]

    def distances(self, values: Mapping[str, int]) -> Floats:
        """[scenarios] Euclidean distance of a shape to each, in steps of 10^-6 so that ties are exact."""
        at = np.array([doublings(values[name], words) for name, words in self._words.items()])
        return np.asarray(np.linalg.norm(self.points - at, axis=1).round(6))

    def usual(self) -> float:
        """The distance within which 99% of the scenarios have another; 0 if there is only one."""
        points = np.unique(self.points, axis=0)
        sample = points[:: 1 + len(points) // _SAMPLE]
        nearest = [np.sort(np.linalg.norm(points - one, axis=1))[:2].max() for one in sample]
        return float(np.quantile(nearest, 0.99, method="inverted_cdf"))


def complete(given: Mapping[str, int], problem: Problem) -> Shape:
    """Find a value for at least every feature that the table holds.

    A feature that is neither given nor implied comes from the scenario that is nearest in the known features;
    of equally near ones, from the one nearest to their median. A scenario with which the shape breaks an
    invariant is passed over. Raises InputError for a feature that is unknown or follows from others, and for
    a shape that breaks an invariant.
    """
    kernel, device = problem.kernel, problem.device
    needed = independent(problem)
    for name, value in given.items():
        if name in kernel.derived and name not in needed:
            parts = ", ".join(kernel.raw_parts([name])) or "other features"
            formula = expr.to_text(kernel.derived[name])
            raise InputError(f"{name}={value}", f"follows from {formula}; give {parts} instead")
        if name not in kernel.features and name not in needed:
            known_names = dict.fromkeys([*kernel.features, *needed])
            raise InputError(shown(name), f"unknown feature; known: {', '.join(known_names)}")
    known, shape = _implied(given, problem), " ".join(f"{name}={value}" for name, value in given.items())
    if (broken := broken_invariant(kernel, device, known)) is not None:
        raise InputError(shape, f"no shape is like this, as it breaks the invariant {shown(broken.text)}")
    if all(name in known for name in needed):
        return Shape(known, (), None)
    for row in _nearest_first(known, problem):
        values, assumed = known, []
        # Raw features first: together with the given ones they may imply a derived column of the table.
        for part in (kernel.features, kernel.derived):
            added = [name for name in part if name in needed and name not in values]
            values = _implied({**values, **{n: int(problem.column(n)[row]) for n in added}}, problem)
            assumed += added
        if (broken := broken_invariant(kernel, device, values)) is None:
            return Shape(values, tuple(assumed), problem.scenarios[row])
    assert broken is not None  # a problem has a row
    what = f"breaks an invariant with every scenario's other features, such as {shown(broken.text)}"
    raise InputError(shape, what)


def independent(problem: Problem) -> tuple[str, ...]:
    """The features that the table holds and that do not follow from its others."""
    held, derived = {*problem.names, *problem.device.limits}, problem.kernel.derived
    return tuple(n for n in problem.names if n not in derived or not expr.names(derived[n]) <= held)


def outside(values: Mapping[str, int], problem: Problem, space: FeatureSpace) -> tuple[str, ...]:
    """Why a shape lies outside the tuned ones, a line for each reason; none if it lies inside."""
    kernel, lines = problem.kernel, []
    for name in problem.names:
        measured, value = np.unique(problem.column(name)), values[name]
        least, greatest = int(measured[0]), int(measured[-1])
        here = f"{name} {value_words(name, value, kernel)}"
        if not least <= value <= greatest:
            ends = dict.fromkeys(value_words(name, end, kernel) for end in (least, greatest))
            lines.append(f"{here}: the table measured {' to '.join(ends)}")
        elif value not in measured and len(measured) <= min(_FEW, len(problem.cost) // _EACH):
            place = int(np.searchsorted(measured, value))
            around = (value_words(name, int(one), kernel) for one in measured[place - 1 : place + 1])
            lines.append(f"{here}: the table measured {' and '.join(around)}, nothing between")
    distance, usual = float(space.distances(values).min()), space.usual()
    if distance > usual > 0:
        others = f"99% of the scenarios have another within {usual:.2f}"
        lines.append(f"the nearest scenario is {distance:.2f} doublings away; {others}")
    return tuple(lines)


def _implied(known: Mapping[str, int], problem: Problem) -> dict[str, int]:
    """The known features and all that follow from them, in the spec's order."""
    kernel, limits = problem.kernel, problem.device.limits
    values = dict(known)
    for name, expression in kernel.derived.items():
        if not expr.names(expression) <= {*values, *limits}:
            continue
        value, formula = expr.evaluate(expression, {**limits, **values}), expr.to_text(expression)
        if value.bit_length() > BITS:
            raise InputError(name, f"{formula} grows beyond {BITS} bits")
        if values.setdefault(name, value) != value:
            raise InputError(f"{name}={values[name]}", f"{formula} is {value}; give only one of them")
    return {name: values[name] for name in (*kernel.features, *kernel.derived) if name in values}


def _nearest_first(known: Mapping[str, int], problem: Problem) -> Iterator[int]:
    """The rows of the problem, nearest first; of equally near ones, first those near the nearest's median."""
    names = [name for name in problem.names if name in known]
    if not names:
        choice = ", ".join(independent(problem))
        raise InputError(problem.table.folder, f"holds none of the given features; give one of {choice}")
    distances = FeatureSpace(problem, names).distances(known)
    points = FeatureSpace(problem).points
    median = np.median(points[distances == distances.min()], axis=0)
    yield from np.lexsort((((points - median) ** 2).sum(axis=1).round(6), distances)).tolist()

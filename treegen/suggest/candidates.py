"""Derived features that may help: products, quotients, remainders, tiles and waves of known features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.names import problem_with_package_name

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

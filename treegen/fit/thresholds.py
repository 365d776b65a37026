"""What a tree may ask: `feature <= threshold`, for thresholds on a logarithmic grid.

The grid does not move with the data, so that another table asks the same; between two measured values lies
one question at most. Where values lie closer than the grid, its own numbers are the thresholds; where they
are far apart, the most readable number well between them generalises better. A feature of few values, such
as a head size, is asked about between all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.fit.round_numbers import readable_between

_FEW = 16  # values
_EVERY = 16  # up to here every integer is on the grid, from here on 2^k and 3 * 2^k; negative ones likewise


@dataclass(frozen=True)
class Question:
    """Whether feature `feature` (a column) is at most `threshold`; no row lies within (below, above)."""

    feature: int
    threshold: int
    below: int
    above: int


def questions(features: npt.NDArray[np.int64]) -> tuple[Question, ...]:
    """All that tell some rows of features [rows, features] from others, by column, then by threshold.

    Of columns that order rows alike (one is another one times a constant), only the first is asked about.
    """
    found: list[Question] = []
    known: set[bytes] = set()
    for feature in range(features.shape[1]):
        column = features[:, feature]
        values = np.unique(column)
        gaps: dict[tuple[int, int], int] = {}
        few = values[:-1].tolist() if len(values) <= _FEW else ()
        for threshold in (*_grid(int(values[0]), int(values[-1])), *few):
            place = int(np.searchsorted(values, threshold, side="right"))
            gaps.setdefault((int(values[place - 1]), int(values[place])), threshold)
        for below, above in sorted(gaps):
            answers = np.packbits(column <= below).tobytes()
            if answers not in known:
                known.add(answers)
                found.append(Question(feature, _threshold(below, above, gaps[below, above]), below, above))
    return tuple(found)


def answers(asked: Sequence[Question], features: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """[questions, rows] whether the answer is yes."""
    return np.array([features[:, q.feature] <= q.threshold for q in asked], dtype=np.bool_).reshape(
        len(asked), len(features)
    )


def _threshold(below: int, above: int, on_grid: int) -> int:
    return readable_between(below, above) if 2 * above > 3 * below >= 0 else on_grid


def _grid(least: int, greatest: int) -> Sequence[int]:
    """The grid's thresholds t with least <= t < greatest."""
    largest = max(abs(least), abs(greatest))
    powers = (m << k for k in range(largest.bit_length() + 1) for m in (2, 3))
    sizes = {*range(_EVERY), *powers}
    return sorted(t for size in sizes for t in {size, -size} if least <= t < greatest)

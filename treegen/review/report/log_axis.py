"""Positions of feature values on an axis that doubles from step to step."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_UNITS = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


def positions(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """0 lies at 0, and the power 2^k at k + 1; negative values mirror them."""
    size = np.abs(values.astype(np.float64))
    return np.asarray(np.sign(values) * np.where(size < 1, 0.0, np.log2(np.maximum(size, 1)) + 1))


def value_at(position: int) -> int:
    """The integer at a whole position."""
    size = 0 if position == 0 else 1 << (abs(position) - 1)
    return size if position >= 0 else -size


def ticks(low: float, high: float, most: int = 7) -> list[int]:
    """At most `most` whole positions from low to high, equally far apart."""
    first, last = math.ceil(low), math.floor(high)
    step = max(1, math.ceil((last - first + 1) / most))
    return list(range(first, last + 1, step))


def label(value: int) -> str:
    """`4K` for 4096: binary units where they are exact, digits elsewhere."""
    for unit, letter in _UNITS:
        if value and value % unit == 0:
            return f"{value // unit}{letter}"
    return str(value)

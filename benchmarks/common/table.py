"""Figures of printed tables."""

import math
from collections.abc import Iterable


def figure(value: float | None, spec: str) -> str:
    """Format a value by a format spec, or return "-" for None."""
    return "-" if value is None else format(value, spec)


def geomean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of positive values; None without any."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None

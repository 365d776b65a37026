"""Figures of printed tables."""

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean


def figure(value: float | None, spec: str) -> str:
    """Format a value by a format spec, or return "-" for None."""
    return "-" if value is None else format(value, spec)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, each column as wide as its widest cell, and all but the first flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [head.ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(cells, widths[1:], strict=True))]
        )
        for head, *cells in rows
    ]


def spread_text(ratios: Iterable[float]) -> str:
    """Return the geometric mean, the 95th percentile and the largest, such as `1.03 1.10 1.30`."""
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return f"{geometric_mean(ordered):5.3f} {high:5.2f} {ordered[-1]:5.2f}"

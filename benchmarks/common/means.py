"""Geometric means over batches: rivals against ours, and our variants against the best of them."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.common.report import Result, ratio

Results = dict[str, Result]


def geomean(values: Iterable[float]) -> float | None:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


def by_kind(batches: Sequence[Results]) -> dict[str, list[Results]]:
    groups: dict[str, list[Results]] = defaultdict(list)
    for results in batches:
        groups[f"kind {results['ours'].kind}"].append(results)
    return dict(groups)


def by_heads(batches: Sequence[Results]) -> dict[str, list[Results]]:
    groups: dict[str, list[Results]] = defaultdict(list)
    for results in batches:
        groups[f"heads {results['ours'].layout}"].append(results)
    return dict(groups)


def cell(members: Sequence[Results], rival: str, mine: str) -> str:
    """`1.234 (8)`: the geometric mean and how many batches it covers."""
    values = [value for results in members if (value := ratio(results, rival, mine))]
    mean = geomean(values)
    return f"{mean:.3f} ({len(values)})" if mean else "-"


def table(title: str, groups: dict[str, list[Results]], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A line a group; a column for each pair (rival, ours): the rival's time over ours."""
    widths = [max(12, len(f"{rival}/{mine}")) for rival, mine in pairs]
    head = "".join(
        f" {f'{rival}/{mine}':>{width}}" for (rival, mine), width in zip(pairs, widths, strict=True)
    )
    lines = ["", title, f"{'':18}{head}"]
    for group, members in groups.items():
        cells = [cell(members, rival, mine) for rival, mine in pairs]
        lines.append(
            f"{group:18}" + "".join(f" {text:>{width}}" for text, width in zip(cells, widths, strict=True))
        )
    return lines


def tables(batches: Sequence[Results], rivals: Sequence[str], variants: Sequence[str]) -> list[str]:
    """All geometric means of a run; those of `best` and of the variants only if there was a sweep."""
    everything = {"all": list(batches)}
    groups = by_kind(batches) | by_heads(batches) | everything
    pairs = [(rival, "best") for rival in rivals] if variants else []
    pairs += [(rival, "ours") for rival in rivals]
    lines = table("rival's time / ours, geometric mean (batches)", groups, pairs)
    if variants:
        slower = [(name, "best") for name in ("ours", *variants)]
        lines += table(
            "our variants' time / best, geometric mean (batches)", by_kind(batches) | everything, slower
        )
    return lines

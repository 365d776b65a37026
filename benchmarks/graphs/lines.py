"""What ``captured`` measured of a batch, and the tables of many."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.common.means import geomean

OURS, EXACT, SAME = "for_capture", "exact", "the same, exact"


@dataclass(frozen=True)
class Row:
    """One batch.

    Attributes:
        batch, kind: its name and set. captured: the graph's maxima. like: the line of the tables.
        context: its class. rows: of the output that were compared.
        config, exact_config: of our graph at the maxima, and of the exact one.
        us: microseconds a layer, by who attended.
    """

    batch: str
    kind: str
    captured: str
    like: str
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    context: str
    rows: int
    config: str
    exact_config: str
    us: dict[str, float]


def spread(ratios: Iterable[float]) -> str:
    """``1.03 1.10 1.30``: geometric mean, 95th percentile and worst."""
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return f"{geomean(ordered):5.3f} {high:5.2f} {ordered[-1]:5.2f}"


def ratios(rows: list[Row], name: str, to: str = EXACT) -> list[float]:
    return [row.us[name] / row.us[to] for row in rows]


def groups(rows: list[Row], key: str) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[getattr(row, key)].append(row)
    return found


def lines(rows: list[Row]) -> list[str]:
    """Tables of each set: time over that of the exact graph of what is chosen for the batch."""
    return [line for kind, members in groups(rows, "kind").items() for line in of_set(kind, members)]


def of_set(kind: str, rows: list[Row]) -> list[str]:
    names = [name for name in rows[0].us if name != EXACT]
    found = ["", f"{kind}: time / exactly captured: geomean, 95th percentile, worst"]
    found += [f"{name:34} {spread(ratios(rows, name))}" for name in names]
    found.append(f"{OURS + ' / ' + SAME:34} {spread(ratios(rows, OURS, SAME))}")
    shown = [name for name in names if name != SAME]
    for title, key in (("captured size", "like"), ("context", "context")):
        found += ["", f"{kind}: geomean by {title}: exact us | " + ", ".join(shown)]
        for group, members in groups(rows, key).items():
            us = geomean(row.us[EXACT] for row in members)
            cells = " ".join(f"{geomean(ratios(members, name)):6.3f}" for name in shown)
            found.append(f"{group:>8} ({len(members):3}) {us:7.1f} | {cells}")
    for title, key in ((OURS, "config"), (EXACT, "exact_config")):
        configs = Counter(getattr(row, key) for row in rows)
        chosen = ", ".join(f"{name} {count}" for name, count in configs.most_common())
        found += ["", f"{kind}: {title}: {chosen}"]
    return found

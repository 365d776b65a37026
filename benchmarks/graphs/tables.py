"""The times that `captured` measures, and tables of their ratios to an exactly captured graph."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.common.table import geomean

# Graphs of ours: captured at the maxima; exactly for the batch; exactly, with the config of the first.
OURS, EXACT, SAME = "for_capture", "exact", "the same, exact"
# Graphs in parts: captured at the maxima; exactly for the batch.
PARTS, EXACT_PARTS = "for_capture in parts", "exact in parts"


@dataclass(frozen=True)
class CapturedTimes:
    """The times of one batch."""

    batch: str
    kind: str
    captured: str  # the graph's maxima
    like: str  # class of the graph
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    context: str  # class of the mean context
    rows: int  # of the output that were compared
    config: str  # of our graph at the maxima
    exact_config: str  # of our exact graph
    us: dict[str, float]  # microseconds a layer by candidate


def time_ratios(times: Sequence[CapturedTimes], name: str, to: str = EXACT) -> list[float]:
    """Return each batch's time of one candidate over that of another."""
    return [batch.us[name] / batch.us[to] for batch in times]


def spread_text(ratios: Iterable[float]) -> str:
    """Return the geometric mean, the 95th percentile and the largest, such as `1.03 1.10 1.30`."""
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return f"{geomean(ordered):5.3f} {high:5.2f} {ordered[-1]:5.2f}"


def grouped(times: Sequence[CapturedTimes], field: str) -> dict[str, list[CapturedTimes]]:
    """Group batches by the value of a field."""
    groups = defaultdict(list)
    for batch in times:
        groups[getattr(batch, field)].append(batch)
    return groups


def lines(times: Sequence[CapturedTimes]) -> list[str]:
    """Return the tables of every kind of batch."""
    return [line for kind, members in grouped(times, "kind").items() for line in lines_of(kind, members)]


def lines_of(kind: str, times: Sequence[CapturedTimes]) -> list[str]:
    """Return the tables of one kind: over all batches, by graph, by context; and the configs."""
    names = [name for name in times[0].us if name != EXACT]
    lines = ["", f"{kind}: time / exactly captured: geomean, 95th percentile, worst"]
    lines += [f"{name:34} {spread_text(time_ratios(times, name))}" for name in names]
    lines.append(f"{OURS + ' / ' + SAME:34} {spread_text(time_ratios(times, OURS, SAME))}")
    shown = [name for name in names if name != SAME]
    for title, field in (("captured size", "like"), ("context", "context")):
        lines += ["", f"{kind}: geomean by {title}: exact us | " + ", ".join(shown)]
        for group, members in grouped(times, field).items():
            us = geomean(batch.us[EXACT] for batch in members)
            cells = " ".join(f"{geomean(time_ratios(members, name)):6.3f}" for name in shown)
            lines.append(f"{group:>8} ({len(members):3}) {us:7.1f} | {cells}")
    for title, field in ((OURS, "config"), (EXACT, "exact_config")):
        configs = Counter(getattr(batch, field) for batch in times)
        chosen = ", ".join(f"{name} {count}" for name, count in configs.most_common())
        lines += ["", f"{kind}: {title}: {chosen}"]
    return lines

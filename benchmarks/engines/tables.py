"""Tables of latency."""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common.table import figure
from benchmarks.engines.turns import Row
from benchmarks.engines.vllm_folder import OURS

SIZES = ("batch", "prompt", "output")
Place = tuple[Any, ...]  # mode, batch, prompt, output
Values = Mapping[Place, float]


def latest(rows: Iterable[Row]) -> dict[str, dict[Place, Row]]:
    """The last row of each place, by backend; ours is the last backend."""
    rows_of: dict[str, dict[Place, Row]] = {}
    for row in rows:
        if row["kind"] == "latency":
            rows_of.setdefault(row["backend"], {})[tuple(row[name] for name in ("mode", *SIZES))] = row
    return dict(sorted(rows_of.items(), key=lambda pair: pair[0] == OURS))


def by_mode(places: Iterable[Place]) -> list[Place]:
    """Places in order, those with graphs first."""
    return sorted(set(places), key=lambda place: (place[0] != "graphs", place[1:]))


def ratio(theirs: float | None, mine: float | None) -> float | None:
    """A ratio of two positive times; None if one is missing or not positive."""
    return theirs / mine if theirs and mine and min(theirs, mine) > 0 else None


def spread_text(times: Sequence[float]) -> str:
    """How much longer the longest took than the shortest."""
    return f"({100 * (max(times) / min(times) - 1):.0f}%)"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns but the first are on the right."""
    bars = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1), *bars]


def hosts(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["text"] for row in rows if row["kind"] == "host"))


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Seconds, decode steps and first tokens, as Markdown."""
    latest_rows = latest(rows)
    *others, ours = latest_rows
    seconds = {
        name: {place: statistics.median(row["seconds"]) for place, row in of.items()}
        for name, of in latest_rows.items()
    }
    lines = [*hosts(rows), "", f"Seconds, median (spread); a ratio above 1 means that {ours} is faster.", ""]
    table = []
    for place in by_mode(place for of in latest_rows.values() for place in of):
        mode, batch, prompt, output = place
        times = [
            f"{seconds[name][place]:.4f} {spread_text(of[place]['seconds'])}" if place in of else "-"
            for name, of in latest_rows.items()
        ]
        ratios = [figure(ratio(seconds[name].get(place), seconds[ours].get(place)), ".3f") for name in others]
        table.append([mode, f"{batch} x {prompt}", str(output), *times, *ratios])
    over = [f"{name} / {ours}" for name in others]
    lines += markdown(["mode", "batch x prompt", "output", *latest_rows, *over], table)
    lines += step_table({name: decode_steps(of) for name, of in seconds.items()})
    return [*lines, "", *token_lines(latest_rows)]


def decode_steps(seconds: Values) -> Values:
    """Milliseconds of a decode step, by mode, batch and prompt, from the two longest outputs."""
    steps = {}
    for place, group in itertools.groupby(sorted(seconds), key=lambda place: place[:3]):
        short, *longer = [one[3] for one in group if one[3] > 1] or [1]
        if longer:
            more = seconds[*place, longer[-1]] - seconds[*place, short]
            steps[place] = 1e3 * more / (longer[-1] - short)
    return steps


def step_table(steps: Mapping[str, Values]) -> list[str]:
    """A table of milliseconds per step, with ratios; empty without steps."""
    *others, ours = steps
    table = []
    for place in by_mode(place for of in steps.values() for place in of):
        values = [figure(of.get(place), ".2f") for of in steps.values()]
        ratios = [figure(ratio(steps[name].get(place), steps[ours].get(place)), ".3f") for name in others]
        table.append([place[0], f"{place[1]} x {place[2]}", *values, *ratios])
    heads = ["mode", "batch x prompt", *steps, *(f"{name} / {ours}" for name in others)]
    title = "Milliseconds per decode step, from two output lengths."
    return ["", title, "", *markdown(heads, table)] if table else []


def token_lines(rows_of: Mapping[str, Mapping[Place, Row]]) -> list[str]:
    """How many prompts' likeliest first token is that of the first backend, and how far others are.

    Two tokens may be equally likely, so correct backends differ in few, and by little.
    """
    first, *others = rows_of
    lines = []
    for name in others:
        below: list[float] = []
        for place in rows_of[name].keys() & rows_of[first].keys():
            pairs = (rows_of[one][place].get("likeliest", []) for one in (name, first))
            for mine, theirs in zip(*pairs, strict=False):
                below.append(theirs[0][1] - dict(map(tuple, theirs)).get(mine[0][0], -math.inf))
        if below:
            same = sum(difference == 0 for difference in below)
            lines.append(
                f"{same} of {len(below)} first tokens of {name} are the likeliest of {first}; "
                f"the others are at most {max(below):.2f} below it (natural logarithm of the probability)."
            )
    return lines

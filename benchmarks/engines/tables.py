"""Tables of latency."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.engines.turns import Row
from benchmarks.engines.vllm_folder import OURS

SIZES = ("batch", "prompt", "output")
Place = tuple[Any, ...]  # batch, prompt, output
Values = Mapping[Place, float]


def latest(rows: Iterable[Row]) -> dict[str, dict[Place, Row]]:
    """The last row of each place, by backend; ours is the last backend."""
    rows_of: dict[str, dict[Place, Row]] = {}
    for row in rows:
        if row["kind"] == "latency":
            rows_of.setdefault(row["backend"], {})[tuple(row[name] for name in SIZES)] = row
    return dict(sorted(rows_of.items(), key=lambda pair: pair[0] == OURS))


def compared(heads: str, values: Mapping[str, Values], text: Callable[[str, Place], str]) -> list[str]:
    """A table of Markdown with a column for each backend, and one for its ratio to the last backend's value.

    text: of a backend's value.
    """
    *others, ours = values
    columns = [*heads.split(", "), *values, *(f"{name} / {ours}" for name in others)]
    lines = [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * (len(columns) - 1)]
    for place in sorted({place for of in values.values() for place in of}):
        batch, prompt, *output = place
        row = [f"{batch} x {prompt}", *map(str, output)]
        row += [text(name, place) if place in of else "-" for name, of in values.items()]
        mine = values[ours].get(place, 0.0)
        for name in others:
            theirs = values[name].get(place, 0.0)
            row.append(f"{theirs / mine:.3f}" if min(theirs, mine) > 0 else "-")
        lines.append(f"| {' | '.join(row)} |")
    return lines


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Seconds and decode steps, as Markdown."""
    rows_of = latest(rows)
    *_, ours = rows_of
    seconds = {
        name: {place: statistics.median(row["seconds"]) for place, row in of.items()}
        for name, of in rows_of.items()
    }

    def with_spread(name: str, place: Place) -> str:
        """The median, and how much longer the longest took than the shortest."""
        times = rows_of[name][place]["seconds"]
        return f"{seconds[name][place]:.4f} ({100 * (max(times) / min(times) - 1):.0f}%)"

    lines = list(dict.fromkeys(row["text"] for row in rows if row["kind"] == "host"))
    lines += ["", f"Seconds, median (spread); a ratio above 1 means that {ours} is faster.", ""]
    lines += compared("batch x prompt, output", seconds, with_spread)
    steps = {name: decode_steps(of) for name, of in seconds.items()}
    if any(steps.values()):
        lines += ["", "Milliseconds per decode step, from two output lengths.", ""]
        lines += compared("batch x prompt", steps, lambda name, place: f"{steps[name][place]:.2f}")
    return lines


def decode_steps(seconds: Values) -> Values:
    """Milliseconds of a decode step, by batch and prompt, from the two longest outputs."""
    steps = {}
    for place, group in itertools.groupby(sorted(seconds), key=lambda place: place[:2]):
        short, *longer = [one[2] for one in group if one[2] > 1] or [1]
        if longer:
            more = seconds[*place, longer[-1]] - seconds[*place, short]
            steps[place] = 1e3 * more / (longer[-1] - short)
    return steps

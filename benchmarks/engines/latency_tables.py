"""Tables and the plot of latencies by output length."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.table import figure, geomean
from benchmarks.engines.command import OURS
from benchmarks.engines.results import SIZES, Row, backends_in, latest, markdown, middle, spread

LONG_PROMPT = 8000  # of the rows that have a geometric mean of their own
COLOURS = {"FLASH_ATTN": "#d55e00", "TRITON_ATTN": "#009e73", OURS: "#0072b2"}
Ratios = dict[tuple[Any, ...], float]


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Return the tables as Markdown: seconds and ratios, decode steps, geometric means, tokens."""
    backends = backends_in(rows, "latency")
    ours = OURS if OURS in backends else backends[0]
    others = [name for name in backends if name != ours]
    found = latest(rows, "latency", ("mode", *SIZES))
    places = sorted({key[1:] for key in found}, key=lambda place: (place[0] != "graphs", *place[1:]))
    lines = list(dict.fromkeys(row["text"] for row in rows if row["kind"] == "host"))
    lines += ["", f"Seconds, median (spread); a ratio above 1 means that {ours} is faster.", ""]
    table = []
    for place in places:
        at = [found.get((name, *place)) for name in backends]
        cells = [
            "-" if row is None else f"{middle(row):.4f} ({100 * spread(row['seconds']):.0f}%)" for row in at
        ]
        ratios = [ratio_at(found, name, ours, place) for name in others]
        mode, batch, prompt, output = place
        table.append([mode, f"{batch} x {prompt}", str(output), *cells, *(figure(r, ".3f") for r in ratios)])
    lines += markdown(
        ["mode", "batch x prompt", "output", *backends, *(f"{o} / {ours}" for o in others)], table
    )

    steps = {name: decode_steps(found, name, "seconds") for name in backends}
    if any(steps.values()):
        lines += ["", "Milliseconds a decode step, from two output lengths.", ""]
        lines += step_table(steps, backends, others, ours)
    cpu = {name: eager_only(decode_steps(found, name, "cpu_seconds")) for name in backends}
    if any(cpu.values()):
        lines += [
            "",
            "CPU milliseconds of an eager decode step, in the main thread of the engine.",
            "",
        ]
        lines += step_table(cpu, backends, others, ours)

    lines += ["", f"Geometric means of the ratios to {ours}.", ""]
    lines += markdown(["rows", *others], list(mean_rows(found, steps, places, others, ours)))
    return [*lines, "", *token_lines(found, places, backends)]


def ratio_at(found: Mapping[Any, Row], name: str, ours: str, place: tuple[Any, ...]) -> float | None:
    """Return another backend's median over ours; None if one is missing."""
    theirs, mine = middle(found.get((name, *place))), middle(found.get((ours, *place)))
    return None if theirs is None or mine is None else theirs / mine


def decode_steps(found: Mapping[Any, Row], name: str, what: str) -> Ratios:
    """Return the milliseconds of a decode step, by mode, batch and prompt, from the two longest outputs."""
    steps = {}
    keys = sorted(key[1:] for key in found if key[0] == name)
    for place, group in itertools.groupby(keys, key=lambda key: key[:3]):
        short, *longer = [place[3] for place in group if place[3] > 1]
        if longer:
            rows = [found[name, *place, output] for output in (short, longer[-1])]
            few, many = (statistics.median(row[what]) for row in rows)
            steps[place] = 1e3 * (many - few) / (longer[-1] - short)
    return steps


def eager_only(steps: Ratios) -> Ratios:
    return {place: value for place, value in steps.items() if place[0] == "eager"}


def step_table(
    steps: Mapping[str, Ratios], backends: Sequence[str], others: Sequence[str], ours: str
) -> list[str]:
    """Return a table of milliseconds a step, with ratios."""
    places = sorted(
        {place for of in steps.values() for place in of}, key=lambda p: (p[0] != "graphs", *p[1:])
    )
    table = []
    for place in places:
        values = [figure(steps[name].get(place), ".2f") for name in backends]
        ratios = [figure(quotient(steps[name].get(place), steps[ours].get(place)), ".3f") for name in others]
        table.append([place[0], f"{place[1]} x {place[2]}", *values, *ratios])
    return markdown(["mode", "batch x prompt", *backends, *(f"{other} / {ours}" for other in others)], table)


def quotient(theirs: float | None, mine: float | None) -> float | None:
    """Return a ratio of two positive times; None if one is missing or not positive."""
    return theirs / mine if theirs and mine and min(theirs, mine) > 0 else None


def mean_rows(
    found: Mapping[Any, Row],
    steps: Mapping[str, Ratios],
    places: Sequence[tuple[Any, ...]],
    others: Sequence[str],
    ours: str,
) -> list[list[str]]:
    """Return, for each mode, the geometric means over all rows, over long prompts, and of decode steps."""
    table = []
    for mode in dict.fromkeys(place[0] for place in places):
        here = [place for place in places if place[0] == mode]
        groups = {"all rows": here, f"prompts of {LONG_PROMPT}": [p for p in here if p[2] == LONG_PROMPT]}
        for title, members in groups.items():
            means = [
                geomean(r for p in members if (r := ratio_at(found, name, ours, p)) is not None)
                for name in others
            ]
            table.append([f"{mode}, {title}", *(figure(mean, ".3f") for mean in means)])
        worst = [
            min((r for p in here if (r := ratio_at(found, name, ours, p)) is not None), default=None)
            for name in others
        ]
        table.append([f"{mode}, the worst row", *(figure(value, ".3f") for value in worst)])
        decode = [
            geomean(
                r
                for p, value in steps[name].items()
                if p[0] == mode and (r := quotient(value, steps[ours].get(p))) is not None
            )
            for name in others
        ]
        table.append([f"{mode}, decode steps", *(figure(mean, ".3f") for mean in decode)])
    return table


def token_lines(
    found: Mapping[Any, Row], places: Sequence[tuple[Any, ...]], backends: Sequence[str]
) -> list[str]:
    """Return how many prompts' likeliest first token is that of the first backend, and how far others are.

    Two tokens may be equally likely, so correct backends differ in few, and by little.
    """
    first, lines = backends[0], []
    for name in backends[1:]:
        below: list[float] = []
        for place in places:
            rows = [found.get((backend, *place), {}).get("likeliest", []) for backend in (name, first)]
            for mine, theirs in zip(*rows, strict=False):
                token, known = mine[0][0], dict(theirs)
                below.append(theirs[0][1] - known.get(token, -math.inf))
        if below:
            same = sum(difference == 0 for difference in below)
            lines.append(
                f"{same} of {len(below)} first tokens of {name} are the likeliest of {first}; "
                f"the others are at most {max(below):.2f} below it (natural logarithm of the probability)."
            )
    return lines


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw how much longer other backends take than ours over output length; needs matplotlib.

    A panel for each mode, batch and prompt.
    """
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = latest(rows, "latency", ("mode", *SIZES))
    backends = backends_in(rows, "latency")
    ours = OURS if OURS in backends else backends[0]
    modes = sorted({key[1] for key in found}, key=lambda mode: mode != "graphs")
    panels = sorted({key[2:4] for key in found})
    figure_, axes = pyplot.subplots(
        len(modes),
        len(panels),
        figsize=(2.6 * len(panels), 2.6 * len(modes)),
        squeeze=False,
        sharey=True,
    )
    for (i, mode), (j, panel) in itertools.product(enumerate(modes), enumerate(panels)):
        axis = axes[i][j]
        places = sorted({key[1:] for key in found if key[1:4] == (mode, *panel)})
        for name in backends:
            ratios = [(place[3], ratio_at(found, name, ours, place)) for place in places]
            points = [(str(output), ratio) for output, ratio in ratios if ratio is not None]
            if points:
                axis.plot(*zip(*points, strict=True), "o-", label=name, color=COLOURS.get(name))
        axis.set_title(f"{mode}: {panel[0]} x {panel[1]}", fontsize=9)
        axis.set_xlabel("tokens generated", fontsize=8)
        axis.grid(alpha=0.3)
    for line in axes:
        line[0].set_ylabel(f"seconds over {ours}'s", fontsize=8)
    axes[0][0].legend(fontsize=7)
    figure_.tight_layout()
    figure_.savefig(path, dpi=120)
    pyplot.close(figure_)

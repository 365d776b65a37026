"""The pictures of a report, each drawn into axes: pages and images share this code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNMEASURED
from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.review.report import theme
from treegen.review.report.palette import Ink
from treegen.review.report.places import label, octaves, places, ticks, value_at
from treegen.review.report.planes import Plane
from treegen.review.report.study import Study, Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SETTINGS: Mapping[str, Any] = {
    "text.parse_math": False,  # words may come from tables
    "axes.unicode_minus": False,
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": theme.INK,
    "axes.titlecolor": theme.INK,
    "axes.labelcolor": theme.INK,
    "axes.edgecolor": theme.MUTED,
    "axes.facecolor": "none",
    "xtick.color": theme.MUTED,
    "ytick.color": theme.MUTED,
    "grid.color": theme.GRID,
    "figure.facecolor": theme.PAPER,
    "savefig.facecolor": theme.PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "treegen report",
}
"""matplotlib's settings under which everything here is drawn."""

CUT = 4.0
"""Slowdown at which curves leave the picture."""

SLOW = 1.2
"""Slowdown from which a point is drawn larger."""

_TICKS = (1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4)
_SIZES = ((SLOW, 14.0), (1.5, 50.0), (math.inf, 110.0))
_UNTIMED = 60.0


@dataclass(frozen=True)
class Curve:
    """A line of the slowdown picture."""

    label: str
    way: Way
    colour: str
    style: str = "-"
    width: float = 2.0


def curves(study: Study) -> list[Curve]:
    """What is compared, worst first as a rule."""
    lines = [
        Curve("fallback everywhere", study.fixed, theme.FIXED),
        Curve("single best config", study.single, theme.SINGLE),
        Curve("this module", study.ours, theme.OURS, width=4.0),
    ]
    if study.unseen is not None:
        lines.append(Curve("this fit, held out", study.unseen, theme.UNSEEN, style="--", width=1.4))
    return lines


def draw_curves(axes: Axes, lines: Sequence[Curve]) -> None:
    """Each way's slowdowns in ascending order over the share of scenarios. A way without a time everywhere
    ends before 100%; what is slower than CUT is not drawn."""
    shown = [line for line in lines if (line.way.cost < UNMEASURED).any()]
    for line in shown:
        timed = np.sort(line.way.cost[line.way.cost < UNMEASURED]) / UNIT
        share = 100 * np.arange(1, len(timed) + 1) / len(line.way.cost)
        drawn = timed <= math.log(CUT) * 1.02
        at = _thinned(timed[drawn])
        axes.plot(
            share[drawn][at],
            timed[drawn][at],
            color=line.colour,
            linestyle=line.style,
            linewidth=line.width,
            label=line.label,
        )
    axes.axhline(0, color=theme.MUTED, linewidth=1)
    axes.set(xlim=(0, 100), ylim=(-0.02, math.log(CUT)))
    axes.set_yticks([math.log(tick) for tick in _TICKS], [f"{tick:g}x" for tick in _TICKS])
    axes.set_xticks([0, 25, 50, 75, 95], ["0", "25", "50", "75", "95%"])
    axes.set_xlabel("share of scenarios, fastest choices first")
    axes.set_ylabel("time over the best time")
    axes.grid(axis="both", linewidth=0.8)
    axes.legend(loc="upper left", frameon=False, fontsize=11, labelcolor=theme.INK, borderaxespad=0.1)


def _thinned(values: npt.NDArray[np.float64], most: int = 250) -> npt.NDArray[np.bool_]:
    """Which points of a rising line to keep: at even distances, and all of its steep end."""
    every = max(1, len(values) // most)
    keep = np.zeros(len(values), dtype=bool)
    keep[::every] = True
    keep[-most // 5 :] = True
    return keep


@dataclass(frozen=True)
class Points:
    """Scenarios drawn alike. rows: of the problem."""

    name: str
    rows: npt.NDArray[np.int64]
    style: Mapping[str, Any]


def points(study: Study, plane: Plane, inks: Mapping[Config, Ink]) -> list[Points]:
    """The points of a map, in groups that are drawn alike, slow ones on top."""
    cost = study.ours.cost[plane.rows]
    found = []
    for place, config in enumerate(sorted({study.launched[row] for row in plane.rows})):
        ink = inks[config]
        own = np.array([study.launched[row] == config for row in plane.rows])
        plain = {"marker": ink.marker, "facecolors": ink.light, "edgecolors": theme.PAPER, "linewidths": 0.4}
        if study.problem.table.cells is Cells.WINNERS:
            missed = {**plain, "facecolors": theme.PAPER, "edgecolors": ink.light, "linewidths": 2.0}
            groups = [(cost == 0, 34.0, plain, "won"), (cost != 0, 60.0, missed, "missed")]
        else:
            slow = {**plain, "edgecolors": theme.INK, "linewidths": 1.0}
            below = -math.inf
            groups = []
            for number, (top, area) in enumerate(_SIZES):
                level = (cost < UNMEASURED) & (cost >= below) & (cost < _steps(top))
                groups.append((level, area, slow if number else plain, "slow" if number else "good"))
                below = _steps(top)
            cross = {"marker": "x", "c": ink.light, "linewidths": 2.0}
            groups.append((cost >= UNMEASURED, _UNTIMED, cross, "untimed"))
        for number, (level, area, style, kind) in enumerate(groups):
            if (level & own).any():
                name = f"{kind}-{place}-{number}"
                found.append(
                    Points(name, plane.rows[level & own], {**style, "s": area, "zorder": 2 + number})
                )
    return found


def _steps(slowdown: float) -> float:
    return slowdown if math.isinf(slowdown) else math.log(slowdown) * UNIT


def draw_map(axes: Axes, study: Study, plane: Plane, inks: Mapping[Config, Ink]) -> None:
    """A point a scenario, coloured by the config launched there, larger where that is slow."""
    x, y = (places(study.problem.column(name)) for name in (plane.x, plane.y))
    for group in points(study, plane, inks):
        axes.scatter(x[group.rows], y[group.rows], gid=group.name, **group.style)
    _frame(axes, study, plane, 0.4)


def draw_counts(axes: Axes, study: Study, plane: Plane) -> None:
    """How many scenarios lie in each cell of one octave by one octave; cells without one stay empty."""
    x, y = (octaves(study.problem.column(name)[plane.rows]) for name in (plane.x, plane.y))
    cells, counts = np.unique(np.stack([x, y], axis=1), axis=0, return_counts=True)
    for (left, bottom), count in zip(cells.tolist(), counts.tolist(), strict=True):
        strength = 0.12 + 0.6 * math.log1p(count) / math.log1p(int(counts.max()))
        box = (left + 0.03, left + 0.97, left + 0.97, left + 0.03)
        side = (bottom + 0.03, bottom + 0.03, bottom + 0.97, bottom + 0.97)
        axes.fill(box, side, color=theme.COUNT, alpha=strength, linewidth=0)
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "color": theme.INK}
        axes.text(left + 0.5, bottom + 0.46, str(count), **style)
    _frame(axes, study, plane, 0)
    axes.set(xlim=(x.min(), x.max() + 1), ylim=(y.min(), y.max() + 1))


def _frame(axes: Axes, study: Study, plane: Plane, margin: float) -> None:
    words = study.problem.kernel.words
    for axis, name in ((axes.xaxis, plane.x), (axes.yaxis, plane.y)):
        at = places(study.problem.column(name)[plane.rows])
        low, high = float(at.min()) - margin, float(at.max()) + margin
        marks = ticks(low, high if margin else math.floor(high) + 1)
        axis.set_ticks(marks, [label(value_at(mark)) for mark in marks])
        axis.set_label_text(words.get(name, name))
        (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
    axes.set_title(f"{plane.title}: {len(plane.rows):,} scenarios")
    axes.grid(linewidth=0.8)
    axes.set_axisbelow(True)


def legend(study: Study, inks: Mapping[Config, Ink]) -> list[Line2D]:
    """A handle for each config launched somewhere, those launched most often first."""
    from matplotlib.lines import Line2D

    counted = {config: study.launched.count(config) for config in sorted(set(study.launched))}
    return [
        Line2D(
            [],
            [],
            linestyle="",
            marker=inks[config].marker,
            markersize=8,
            color=inks[config].light,
            label=f"{study.problem.kernel.constant_name(config)}  {counted[config]}",
        )
        for config in sorted(counted, key=lambda config: -counted[config])
    ]

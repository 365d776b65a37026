"""The pictures of a report, drawn into axes: the page and the images share them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED
from treegen.core.spec import Config
from treegen.review.report import colours
from treegen.review.report.colours import ConfigStyle
from treegen.review.report.log_axis import label, positions, ticks, value_at
from treegen.review.report.planes import FeaturePlane
from treegen.review.report.study import ModuleStudy, ScoredChoices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CUT = 4.0  # slowdown at which curves leave the picture
SLOW = 1.2  # slowdown from which a point is drawn larger
LISTED = ("slow", "untimed", "missed")  # kinds of points that say which scenario they are

_TICKS = (1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4)
_SIZES = ((SLOW, 14.0), (1.5, 50.0), (math.inf, 110.0))  # up to this slowdown, this area
_MOST_POINTS = 250  # of a curve
_MARGIN = 0.4  # of a map, in doublings


@dataclass(frozen=True)
class SlowdownCurve:
    """A line of the slowdown picture."""

    label: str
    way: ScoredChoices
    colour: str
    style: str = "-"
    width: float = 2.0


@dataclass(frozen=True)
class PointGroup:
    """Scenarios that are drawn alike. rows: of the problem. style: matplotlib's."""

    kind: str
    name: str  # of the SVG group
    rows: npt.NDArray[np.int64]
    style: Mapping[str, Any]


def curves(study: ModuleStudy) -> list[SlowdownCurve]:
    """The ways that are compared, usually the worst first."""
    lines = [
        SlowdownCurve("fallback everywhere", study.fixed, colours.FIXED),
        SlowdownCurve("single best config", study.single, colours.SINGLE),
        SlowdownCurve("this module", study.ours, colours.OURS, width=4.0),
    ]
    if study.unseen is not None:
        lines.append(SlowdownCurve("this fit, held out", study.unseen, colours.UNSEEN, "--", 1.4))
    return lines


def draw_curves(axes: Axes, lines: Sequence[SlowdownCurve]) -> None:
    """Draw each way's slowdowns in ascending order over the share of scenarios.

    A line ends before 100% where choices are untimed; slowdowns above CUT are not drawn.
    """
    for line in lines:
        timed = np.sort(line.way.cost[line.way.cost < UNTIMED]) / UNIT
        if not len(timed):
            continue
        share = 100 * np.arange(1, len(timed) + 1) / len(line.way.cost)
        drawn = timed <= math.log(CUT) * 1.02
        share, timed = share[drawn], timed[drawn]
        # Points at even distances, and all of the steep end.
        kept = np.zeros(len(timed), dtype=bool)
        kept[:: max(1, len(timed) // _MOST_POINTS)] = True
        kept[-_MOST_POINTS // 5 :] = True
        look: dict[str, Any] = {"color": line.colour, "linestyle": line.style, "linewidth": line.width}
        axes.plot(share[kept], timed[kept], label=line.label, **look)
    axes.axhline(0, color=colours.MUTED, linewidth=1)
    axes.set(xlim=(0, 100), ylim=(-0.02, math.log(CUT)))
    axes.set_yticks([math.log(tick) for tick in _TICKS], [f"{tick:g}x" for tick in _TICKS])
    axes.set_xticks([0, 25, 50, 75, 95], ["0", "25", "50", "75", "95%"])
    axes.set_xlabel("share of scenarios, fastest choices first")
    axes.set_ylabel("time over the best time")
    axes.grid(axis="both", linewidth=0.8)
    axes.legend(loc="upper left", frameon=False, fontsize=11, labelcolor=colours.INK, borderaxespad=0.1)


def point_groups(
    study: ModuleStudy, plane: FeaturePlane, styles: Mapping[Config, ConfigStyle]
) -> Iterator[PointGroup]:
    """The points of a map, in groups that are drawn alike, slow ones on top."""
    cost = study.ours.cost[plane.rows]
    for place, config in enumerate(sorted({study.launched[row] for row in plane.rows})):
        launched = np.array([study.launched[row] == config for row in plane.rows])
        for number, (kind, inside, style) in enumerate(_kinds(study, cost, styles[config])):
            if (inside & launched).any():
                look = {**style, "zorder": 2 + number}
                yield PointGroup(kind, f"{kind}-{place}-{number}", plane.rows[inside & launched], look)


def _kinds(
    study: ModuleStudy, cost: npt.NDArray[np.int64], style: ConfigStyle
) -> Iterator[tuple[str, npt.NDArray[np.bool_], dict[str, Any]]]:
    """Groups of one config's points by cost, with the style of each."""
    plain = {
        "marker": style.marker,
        "facecolors": style.light,
        "edgecolors": colours.PAPER,
        "linewidths": 0.4,
    }
    if not study.knows_times:
        yield "won", cost == 0, {**plain, "s": 34.0}
        hollow = {"facecolors": colours.PAPER, "edgecolors": style.light, "linewidths": 2.0}
        yield "missed", cost != 0, {**plain, **hollow, "s": 60.0}
        return
    edged = {"edgecolors": colours.INK, "linewidths": 1.0}
    slowdown = np.exp(np.minimum(cost, UNTIMED) / UNIT)
    below = 0.0
    for top, area in _SIZES:
        inside = (cost < UNTIMED) & (slowdown >= below) & (slowdown < top)
        yield (
            ("slow", inside, {**plain, **edged, "s": area})
            if below
            else ("good", inside, {**plain, "s": area})
        )
        below = top
    yield "untimed", cost >= UNTIMED, {"marker": "x", "c": style.light, "linewidths": 2.0, "s": 60.0}


def draw_map(
    axes: Axes, study: ModuleStudy, plane: FeaturePlane, styles: Mapping[Config, ConfigStyle]
) -> None:
    """Draw a point for each scenario, coloured by the launched config and larger where that is slow."""
    x, y = (positions(study.problem.column(name)) for name in (plane.x, plane.y))
    for group in point_groups(study, plane, styles):
        axes.scatter(x[group.rows], y[group.rows], gid=group.name, **group.style)
    _frame(axes, study, plane)


def _frame(axes: Axes, study: ModuleStudy, plane: FeaturePlane) -> None:
    words = study.problem.kernel.words
    for axis, name in ((axes.xaxis, plane.x), (axes.yaxis, plane.y)):
        at = positions(study.problem.column(name)[plane.rows])
        low, high = float(at.min()) - _MARGIN, float(at.max()) + _MARGIN
        marks = ticks(low, high)
        axis.set_ticks(marks, [label(value_at(mark)) for mark in marks])
        axis.set_label_text(words.get(name, name))
        (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
    axes.set_title(f"{plane.title}: {len(plane.rows):,} scenarios")
    axes.grid(linewidth=0.8)
    axes.set_axisbelow(True)

"""Figures around the pictures: one a picture for the page, one with all of them for a README."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.review.report import theme
from treegen.review.report.charts import SETTINGS, SLOW, curves, draw_curves, draw_map, legend
from treegen.review.report.palette import Ink
from treegen.review.report.study import Study
from treegen.review.report.svg import inline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 72  # of an inch: what the page shows as one pixel at its natural size
_PANEL = (400, 300)
_IMAGE_WIDTH, _ROW, _DOTS = 9.0, 3.9, 160


def picture(
    draw: Callable[[Axes], None],
    name: str,
    colours: Mapping[str, str],
    titles: Mapping[str, list[str]] | None = None,
) -> Markup:
    """One picture as inline SVG; see `svg.inline`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(_PANEL[0] / _POINTS, _PANEL[1] / _POINTS), layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
    return inline(out.getvalue(), name, colours, titles or {})


def image(study: Study, inks: Mapping[Config, Ink]) -> bytes:
    """A PNG of slowdowns, maps and what is launched, to be shown 900 pixels wide."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    timed = study.problem.table.cells is Cells.MEASURED
    maps = list(study.planes)
    with matplotlib.rc_context({**SETTINGS}):
        rows = -(-(len(maps) + timed + 1) // 2)
        figure = Figure(
            figsize=(_IMAGE_WIDTH, rows * _ROW + 0.7),
            dpi=_DOTS,
            layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12),
        )
        figure.suptitle(_title(study), x=0.02, ha="left", fontsize=13.5, fontweight="bold")
        places = iter([figure.add_subplot(rows, 2, number + 1) for number in range(len(maps) + timed + 1)])
        if timed:
            axes = next(places)
            draw_curves(axes, curves(study))
            axes.set_title("How far from the best")
        _legend(next(places), study, inks)
        for axes, plane in zip(places, maps, strict=True):
            draw_map(axes, study, plane, inks)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


_NO_METADATA: Mapping[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}


def _title(study: Study) -> str:
    found = study.ours.quality
    if found.slowdown is None:
        return f"{study.title}: {found.agreement:.0%} of {found.choices:,} winners launched"
    unseen = study.unseen.quality.slowdown if study.unseen else None
    held_out = "" if unseen is None else f", {unseen:.3f}x held out"
    return f"{study.title}: {found.slowdown:.3f}x the best time{held_out}"


def _legend(axes: Axes, study: Study, inks: Mapping[Config, Ink]) -> None:
    from matplotlib.lines import Line2D

    axes.set_axis_off()
    axes.set_title("What is launched (scenarios)")
    style: dict[str, Any] = {
        "linestyle": "",
        "marker": "o",
        "color": theme.MUTED,
        "markeredgecolor": theme.INK,
    }
    if study.problem.table.cells is Cells.MEASURED:
        more = [Line2D([], [], **style, markersize=7, label=f"larger, edged: {SLOW:g}x the best or slower")]
        if study.ours.quality.unmeasured + study.ours.quality.failed:
            more.append(
                Line2D([], [], **{**style, "marker": "x"}, markersize=7, label="cross: not timed there")
            )
    else:
        more = [
            Line2D(
                [], [], **{**style, "color": theme.PAPER}, markersize=7, label="hollow: another config won"
            )
        ]
    axes.legend(
        handles=[*legend(study, inks), *more],
        loc="upper left",
        frameon=False,
        fontsize=10.5,
        labelspacing=0.45,
        borderaxespad=0,
    )

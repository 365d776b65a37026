"""Matplotlib figures: one per picture for the page, and one with all pictures as an image."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from treegen.core.spec import Config
from treegen.review.report import colours
from treegen.review.report.charts import SLOW, curves, draw_curves, draw_map
from treegen.review.report.colours import ConfigStyle
from treegen.review.report.study import ModuleStudy
from treegen.review.report.svg import inline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SOFTWARE = "treegen report"
MARK = b"Software\0" + _SOFTWARE.encode()
"""Bytes that every image holds."""

_SETTINGS: Mapping[str, Any] = {
    "text.parse_math": False,  # words may come from tables
    "axes.unicode_minus": False,
    "font.family": "DejaVu Sans",
    "font.size": 11.5,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": colours.INK,
    "axes.titlecolor": colours.INK,
    "axes.labelcolor": colours.INK,
    "axes.edgecolor": colours.MUTED,
    "axes.facecolor": "none",
    "xtick.color": colours.MUTED,
    "ytick.color": colours.MUTED,
    "grid.color": colours.GRID,
    "figure.facecolor": colours.PAPER,
    "savefig.facecolor": colours.PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "treegen report",
}
_NO_METADATA: Mapping[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}
_POINTS = 72  # of an inch: the page shows one as a pixel at natural size
_PANEL = (400, 300)
_IMAGE_WIDTH, _ROW, _DOTS = 9.0, 3.9, 160  # inches, inches, dots an inch


def picture(
    draw: Callable[[Axes], None],
    name: str,
    variables: Mapping[str, str],
    titles: Mapping[str, list[str]] | None = None,
) -> Markup:
    """Draw one picture as inline SVG; the arguments are those of `svg.inline`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(_PANEL[0] / _POINTS, _PANEL[1] / _POINTS), layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
    return inline(out.getvalue(), name, variables, titles or {})


def image(study: ModuleStudy, styles: Mapping[Config, ConfigStyle]) -> bytes:
    """A PNG of slowdowns, launched configs and maps, to be shown 900 pixels wide."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = len(study.planes) + study.knows_times + 1
    rows = -(-panels // 2)
    with matplotlib.rc_context({**_SETTINGS}):
        engine = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(_IMAGE_WIDTH, rows * _ROW + 0.7), dpi=_DOTS, layout=engine)
        figure.suptitle(_title(study), x=0.02, ha="left", fontsize=13.5, fontweight="bold")
        places = iter([figure.add_subplot(rows, 2, number + 1) for number in range(panels)])
        if study.knows_times:
            axes = next(places)
            draw_curves(axes, curves(study))
            axes.set_title("How far from the best")
        _legend(next(places), study, styles)
        for axes, plane in zip(places, study.planes, strict=True):
            draw_map(axes, study, plane, styles)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": _SOFTWARE})
    return out.getvalue()


def _title(study: ModuleStudy) -> str:
    quality = study.ours.quality
    if quality.slowdown is None:
        return f"{study.title}: {quality.agreement:.0%} of {quality.choices:,} winners launched"
    unseen = study.unseen.quality.slowdown if study.unseen else None
    held_out = "" if unseen is None else f", {unseen:.3f}x held out"
    return f"{study.title}: {quality.slowdown:.3f}x the best time{held_out}"


def _legend(axes: Axes, study: ModuleStudy, styles: Mapping[Config, ConfigStyle]) -> None:
    """Draw a handle for each launched config, the most often launched first, and for what points show."""
    from matplotlib.lines import Line2D

    def handle(
        text: str, marker: str, colour: str, size: float = 7, edge: str | None = colours.INK
    ) -> Line2D:
        look: dict[str, Any] = {"linestyle": "", "markersize": size, "markeredgecolor": edge}
        return Line2D([], [], marker=marker, color=colour, label=text, **look)

    handles = []
    for config, count in Counter(sorted(study.launched)).most_common():
        name = study.problem.kernel.constant_name(config)
        handles.append(handle(f"{name}  {count}", styles[config].marker, styles[config].light, 8, None))
    if not study.knows_times:
        handles.append(handle("hollow: another config won", "o", colours.PAPER))
    else:
        handles.append(handle(f"larger, edged: {SLOW:g}x the best or slower", "o", colours.MUTED))
        if study.ours.quality.unmeasured + study.ours.quality.failed:
            handles.append(handle("cross: not timed there", "x", colours.MUTED))
    axes.set_axis_off()
    axes.set_title("What is launched (scenarios)")
    style: dict[str, Any] = {"fontsize": 10.5, "labelspacing": 0.45, "borderaxespad": 0}
    axes.legend(handles=handles, loc="upper left", frameon=False, **style)

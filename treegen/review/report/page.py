"""The page: sections into HTML, through the template beside this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jinja2

from treegen import __version__
from treegen.review.report import theme, wording
from treegen.review.report.charts import CUT, SLOW
from treegen.review.report.palette import Ink
from treegen.review.report.section import Section


def page(sections: Sequence[Section], inks: Sequence[Ink]) -> str:
    """One self-contained HTML page. Everything that is no picture of ours is escaped; the page asks the
    browser for nothing but its inline style."""
    colours = {**theme.VARIABLES, **{ink.variable: (ink.light, ink.dark) for ink in inks}}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("treegen.review.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        sections=sections,
        light=_declarations({name: pair[0] for name, pair in colours.items()}),
        dark=_declarations({name: pair[1] for name, pair in colours.items()}),
        wording=wording,
        version=__version__,
        cut=CUT,
        slow=SLOW,
    )


def _declarations(colours: Mapping[str, str]) -> str:
    return "".join(f"{name}:{value};" for name, value in colours.items())

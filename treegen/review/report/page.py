"""The page: sections into HTML, through the template beside this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jinja2

from treegen import __version__
from treegen.review.printing import value_words
from treegen.review.report import colours, wording
from treegen.review.report.charts import CUT, SLOW
from treegen.review.report.colours import ConfigStyle
from treegen.review.report.section import PageSection

MARK = "Made by <code>treegen report</code>"
"""A text of every page, by which one may be replaced."""


def page(sections: Sequence[PageSection], styles: Sequence[ConfigStyle]) -> str:
    """One self-contained HTML page. Everything but our own pictures is escaped, and nothing is loaded."""
    variables = {**colours.VARIABLES, **{style.variable: (style.light, style.dark) for style in styles}}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("treegen.review.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["value"] = lambda kernel, name, number: value_words(name, number, kernel)
    return environment.get_template("report.html.j2").render(
        sections=sections,
        light=_declarations({name: pair[0] for name, pair in variables.items()}),
        dark=_declarations({name: pair[1] for name, pair in variables.items()}),
        wording=wording,
        mark=MARK,
        version=__version__,
        cut=CUT,
        slow=SLOW,
    )


def _declarations(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}:{value};" for name, value in variables.items())

"""A diff as a pull-request comment in GitHub's Markdown, which a terminal shows as well."""

from __future__ import annotations

import re

import jinja2

from treegen.core.errors import one_line
from treegen.review.diff.changes import Diff
from treegen.review.diff.prices import Price, Verdict
from treegen.review.printing import counted, percent

SHOWN = 12
"""The most changes of a module that are shown; the others are counted."""

_MARKUP = re.compile(
    r"[\\`*{}\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # GitHub leaves _ within a word alone
    r"|(?P<reference>[@#]|:(?=//)|(?<=www)\.|(?<=[Gg][Hh])-(?=[0-9]))"
)
# GitHub finds mentions, issues and links in unescaped text, too; only another character hides them.
_ZERO_WIDTH_SPACE = "&#8203;"


class _Markdown(str):
    """Text that is Markdown already."""


def markdown(diff: Diff) -> str:
    """The whole comment."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("treegen.review.diff", ""),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, _Markdown) else text(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"code": code, "emphasised": _emphasised, "counted": counted, "percent": percent}
    page = templates.get_template("comment.md.j2").render(diff=diff, shown=SHOWN)
    return re.sub("\n{3,}", "\n\n", page).strip() + "\n"


def text(plain: str) -> str:
    """Escape text so that nothing in it is markup, a mention, a reference or a link.

    It must not begin a line.
    """
    return _MARKUP.sub(_escaped, one_line(plain))


def code(name: str) -> str:
    """A name from outside as a code span."""
    return _Markdown(f"`{one_line(name).replace('`', chr(39)) or ' '}`")


def _emphasised(price: Price) -> str:
    return _Markdown(f"**{text(str(price))}**" if price.verdict is Verdict.SLOWER else text(str(price)))


def _escaped(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};{_ZERO_WIDTH_SPACE if match.group('reference') else ''}"

"""Does a page hold markup that came from outside, instead of its text?"""

from __future__ import annotations

import re
from html.parser import HTMLParser

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_IN_MARKDOWN = re.compile(r"<script|<img|<b>|\]\(javascript:|\]\(file:", re.IGNORECASE)


def in_markdown(text: str) -> bool:
    """Whether payloads stand anywhere but in code spans, where GitHub and others show them as they are."""
    return _IN_MARKDOWN.search(_CODE_SPAN.sub("", text)) is not None


def in_html(text: str) -> bool:
    """Whether a payload became an element or an attribute."""
    parser = _Elements()
    parser.feed(text)
    parser.close()
    return parser.found


class _Elements(HTMLParser):
    """Notes handlers of events, addresses that are code or elsewhere, and scripts that are payloads."""

    found = False
    in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_script = tag == "script"
        for name, value in attrs:
            address = name in ("href", "src") and not (value or "").startswith(("#", "data:image/"))
            self.found |= address or name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def handle_data(self, data: str) -> None:
        self.found |= self.in_script and "alert(1)" in data

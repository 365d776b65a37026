"""Read and check what a kernel's spec calls things in reviews: `words` and `regimes`."""

from __future__ import annotations

import re

from treegen.core import expr
from treegen.core.errors import shown
from treegen.core.spec import Regime
from treegen.read.yaml_file import Fields

# Nothing that Markdown, HTML or a terminal takes for more than text.
_PHRASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.%/-]{0,38}[A-Za-z0-9%]|[A-Za-z]")


def words(fields: Fields, known: list[str]) -> dict[str, str]:
    """Phrases by feature or parameter."""
    found = {}
    section = fields.get_as("words", Fields, None)
    for name in section or ():
        if name not in known:
            raise section.error(name, f"is no feature or parameter of this kernel; known: {', '.join(known)}")
        phrase = section.get_as(name, str)
        _check(section, name, phrase)
        found[name] = phrase
    return found


def regimes(fields: Fields, known: list[str]) -> dict[str, Regime]:
    """Regimes by their names, as in `decode: max_query_len <= 1`."""
    found: dict[str, Regime] = {}
    section = fields.get_as("regimes", Fields, None)
    for name in section or ():
        _check(section, name, name)
        try:
            comparison = expr.parse_comparison(section.get_as(name, str))
        except expr.ExpressionError as error:
            raise section.error(name, str(error)) from None
        match comparison:
            case (expr.Name(feature), operator, expr.Number(value)) if feature in known:
                found[name] = _regime(feature, operator, value)
            case (expr.Name(feature), _, expr.Number()):
                raise section.error(name, f"unknown feature {shown(feature)}; known: {', '.join(known)}")
            case _:
                raise section.error(name, "must compare one feature with an integer")
    return found


def _regime(feature: str, operator: str, value: int) -> Regime:
    if operator in ("<=", "<"):
        return Regime(feature, None, value if operator == "<=" else value - 1)
    return Regime(feature, value if operator == ">=" else value + 1, None)


def _check(fields: Fields, key: str, phrase: str) -> None:
    if not _PHRASE.fullmatch(phrase):
        what = "up to 40 letters, digits, spaces and , . % / - that begin with a letter or digit"
        raise fields.error(key, f"{shown(phrase)} is no phrase: {what}")

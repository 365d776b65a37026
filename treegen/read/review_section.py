"""Read and check what a kernel says for reviews: `words`, `values`, `regimes` and `invariants`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.spec import Constraint, Regime
from treegen.read.spec_values import LARGEST
from treegen.read.yaml_file import Fields, Items
from tuning_table.names import is_word

# Nothing that Markdown, HTML or a terminal takes for more than text.
_PHRASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.%/-]{0,38}[A-Za-z0-9%]|[A-Za-z]")


def words(kernel: Fields, known: Collection[str]) -> dict[str, str]:
    """Phrases by the feature or parameter that they stand for. Raises InputError."""
    section = kernel.section("words", optional=True)
    section.refuse_unknown("feature or parameter", section, known)
    phrases = {name: section.get_as(name, str) for name in section}
    _check_phrases(section, phrases.items())
    return phrases


def values(kernel: Fields, known: Collection[str]) -> dict[str, dict[int, str]]:
    """Words by the integers of a feature or parameter, from a list or from `{word: integer}`.

    Raises InputError.
    """
    section = kernel.section("values", optional=True)
    section.refuse_unknown("feature or parameter", section, known)
    result: dict[str, dict[int, str]] = {}
    for name in section:
        listed = section.get_as(name, (list, Fields))
        by_word = (
            {word: listed.number(word, int, -LARGEST, LARGEST) for word in listed}
            if isinstance(listed, Fields)
            else {word: place for place, word in enumerate(section.names(name))}
        )
        for word in by_word:
            if not is_word(word):
                raise section.error(
                    name, f"{shown(word)} is no word (letters, digits, spaces and _ . % / + -)"
                )
        result[name] = {number: word for word, number in by_word.items()}
        if len(result[name]) < len(by_word) or not by_word:
            raise section.error(name, "needs words with different integers")
    return result


def regimes(kernel: Fields, features: Collection[str]) -> dict[str, Regime]:
    """Regimes by their names, as in `decode: max_query_len <= 1`. Raises InputError."""
    section = kernel.section("regimes", optional=True)
    _check_phrases(section, ((name, name) for name in section))
    return {name: _regime(section, name, features) for name in section}


def invariants(kernel: Fields, known: Collection[str]) -> tuple[Constraint, ...]:
    """Comparisons over features and limits that hold for every shape. Raises InputError."""
    items = kernel.get_as("invariants", list, Items())
    result = []
    for text, line in zip(items, items.lines, strict=True):
        if not isinstance(text, str):
            raise kernel.error("invariants", f"holds {shown(text)}, which is not a comparison")
        try:
            left, operator, right = expr.parse_comparison(text, known)
        except expr.ExpressionError as error:
            raise InputError(kernel.path, f"invariant {shown(text)} {error}", line=line) from None
        result.append(Constraint(text, left, operator, right, line))
    return tuple(result)


def _regime(section: Fields, key: str, features: Collection[str]) -> Regime:
    try:
        comparison = expr.parse_comparison(section.get_as(key, str), features)
    except expr.ExpressionError as error:
        raise section.error(key, str(error)) from None
    match comparison:
        case (expr.Name(feature), "<=" | "<" as operator, expr.Number(value)):
            return Regime(feature, None, value if operator == "<=" else value - 1)
        case (expr.Name(feature), operator, expr.Number(value)):
            return Regime(feature, value if operator == ">=" else value + 1, None)
    raise section.error(key, "must compare one feature with an integer")


def _check_phrases(fields: Fields, phrases: Iterable[tuple[str, str]]) -> None:
    for key, phrase in phrases:
        if not _PHRASE.fullmatch(phrase):
            what = "up to 40 letters, digits, spaces and , . % / - that begin with a letter or digit"
            raise fields.error(key, f"{shown(phrase)} is not a phrase: {what}")

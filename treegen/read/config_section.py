"""Read and check what the spec says of a kernel's configs: variants, parameters, constraints, fallback."""

from __future__ import annotations

import re
from collections.abc import Mapping

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.spec import Config, Constraint, Parameter
from treegen.read.spec_values import check_name
from treegen.read.yaml_file import Fields

_TRITON = {"triton", "tl"}


def config_words(fields: Fields, taken: set[str]) -> tuple[list[str], dict[str, Parameter]]:
    """The kernel's variants and launch parameters; `taken` are names that parameters may not have."""
    section = fields.get_as("config", Fields)
    section.only(["variants", "parameters"])
    variants = section.names("variants")
    for variant in variants:
        check_name(section, "variants", variant)
    words = section.get_as("parameters", Fields)
    parameters: dict[str, Parameter] = {}
    for name in words:
        check_name(words, name, name, taken)
        parameter = _parameter(words, name)
        if parameter.letters in {other.letters for other in parameters.values()}:
            raise words.error(name, f"the letters {parameter.letters} are taken by another parameter")
        parameters[name] = parameter
    if not variants or not parameters:
        raise section.error(None, "needs at least one variant and one parameter")
    _refuse_ambiguous_names(section, variants, parameters)
    return variants, parameters


def _parameter(words: Fields, name: str) -> Parameter:
    """A parameter as `LETTERS` or as `{letter: LETTERS, default: VALUE}`."""
    entry: str | Fields = words.get_as(name, (str, Fields))
    default = None
    letters = entry
    if isinstance(entry, Fields):
        entry.only(["letter", "default"])
        letters, default = entry.get_as("letter", str), _launch_parameter(entry, "default")
    assert isinstance(letters, str)
    if not (letters.isascii() and letters.isalpha() and letters.isupper() and len(letters) <= 4):
        raise words.error(name, f"needs one to four capital letters for names, not {shown(letters)}")
    return Parameter(letters, default)


def _launch_parameter(fields: Fields, key: str, default: int | None = None) -> int:
    value: int = fields.get_as(key, int, ... if default is None else default)
    if not 0 <= value < 1 << 31:
        raise fields.error(key, f"{shown(value)} is no launch parameter")
    return value


def _refuse_ambiguous_names(
    section: Fields, variants: list[str], parameters: Mapping[str, Parameter]
) -> None:
    """Names leave out parameters at their default, so a variant `split_m64` would read like `split`."""
    if all(parameter.default is None for parameter in parameters.values()):
        return
    letters = "|".join(parameter.letters for parameter in parameters.values())
    for variant in variants:
        short = variant
        while (shorter := re.sub(f"_({letters})[0-9]+$", "", short, flags=re.IGNORECASE)) != short:
            short = shorter
            if short in variants:
                what = f"{shown(variant)} reads like {short} with a parameter: their constants would clash"
                raise section.error("variants", what)


def in_kernel(fields: Fields, features: list[str], parameters: Mapping[str, Parameter]) -> list[str]:
    """The parameters that Triton kernels choose themselves, from features under these names."""
    names = fields.names("in_kernel") if "in_kernel" in fields else []
    for name in names:
        if name not in parameters:
            what = f"unknown parameter {shown(name)}; known: {', '.join(parameters)}"
            raise fields.error("in_kernel", what)
    for name in (*features, *names) if names else ():
        if name in _TRITON:
            what = f"{shown(name)} is the name of a module that functions for Triton use; rename it"
            raise fields.error("in_kernel", what)
    return names


def constraints(fields: Fields, variants: list[str], known: list[str]) -> list[Constraint]:
    """The kernel's constraints, over the names in `known`."""
    if "constraints" not in fields:
        return []
    items = fields.get_as("constraints", list)
    found: list[Constraint] = []
    for entry, line in zip(items, items.lines, strict=True):
        text, bound = entry, None
        if isinstance(entry, Fields):
            text, bound = _bound_to(entry, variants)
        if not isinstance(text, str):
            raise fields.error("constraints", f"holds {shown(text)}, which is no comparison")
        if text in [other.text for other in found]:
            raise fields.error("constraints", f"names {shown(text)} twice")
        found.append(_constraint(fields, text, line, bound, known))
    return found


def _bound_to(entry: Fields, known: list[str]) -> tuple[str, tuple[str, ...]]:
    """The comparison and the variants of `{holds: COMPARISON, variants: [VARIANT, ...]}`."""
    entry.only(["holds", "variants"])
    text, variants = entry.get_as("holds", str), entry.names("variants")
    for variant in variants:
        if variant not in known:
            raise entry.error("variants", f"unknown variant {shown(variant)}; known: {', '.join(known)}")
    if not variants:
        raise entry.error("variants", "names no variant")
    return text, tuple(variants)


def _constraint(
    fields: Fields, text: str, line: int, variants: tuple[str, ...] | None, known: list[str]
) -> Constraint:
    def wrong(what: str) -> InputError:
        return InputError(fields.path, f"constraint {shown(text)} {what}", line=line)

    try:
        left, operator, right = expr.parse_comparison(text)
    except expr.ExpressionError as error:
        raise wrong(str(error)) from None
    for name in sorted(expr.names(left) | expr.names(right)):
        if name not in known:
            raise wrong(f"uses the unknown name {shown(name)}; known here: {', '.join(known)}")
    return Constraint(text, left, operator, right, line, variants)


def fallback(fields: Fields, variants: list[str], parameters: Mapping[str, Parameter]) -> Config:
    """The fallback config; parameters that it leaves out have their default."""
    fields.only(["variant", *parameters])
    variant = fields.get_as("variant", str)
    if variant not in variants:
        raise fields.error("variant", f"unknown variant {shown(variant)}; known: {', '.join(variants)}")
    values = tuple((name, _launch_parameter(fields, name, p.default)) for name, p in parameters.items())
    return Config(variant, values)

"""Read and check what the spec says about a kernel's configs: variants, parameters, constraints, fallback."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from treegen.core import expr
from treegen.core.errors import InputError, Mistakes, shown
from treegen.core.spec import Config, Constraint, Parameter
from treegen.read.yaml_file import Fields, check_names
from tuning_table.names import is_variant

_TRITON = {"triton", "tl"}
# What functions of the printed module use beside a step's features, and beside those of a model.
_PRINTED_BY_STEP = {"at_most", "config", "for_model", "passed_over", "ranked"}
_PRINTED_BY_MODEL = {"bound", "launched", "step"}
_LARGEST_PARAMETER = (1 << 31) - 1


def variants_and_parameters(
    kernel: Fields, name: str, taken: Collection[str]
) -> tuple[tuple[str, ...], dict[str, Parameter]]:
    """The section `config` of a kernel; its `name` is the only variant if the section names none.

    taken: names that no parameter may have. Raises InputError.
    """
    section = kernel.section("config")
    section.only(["variants", "parameters"])
    variants = section.names("variants") if "variants" in section else [name]
    for variant in variants:  # texts and constants of the module, so they may be words of Python
        if not is_variant(variant):
            what = f"{shown(variant)} must be a word of small letters, digits and underscores"
            raise section.error("variants", what)
    entries = section.section("parameters", optional=True)
    check_names(entries, entries, taken, capitals=True)
    if not entries and len(variants) == 1:
        raise section.error(None, "needs a parameter or at least two variants, to have a choice")
    parameters: dict[str, Parameter] = {}
    mistakes = Mistakes()
    for parameter_name in entries:
        with mistakes.collect():
            parameter = _parameter(entries, parameter_name)
            if parameter.letters in [other.letters for other in parameters.values()]:
                what = f"the letters {parameter.letters} are taken by another parameter"
                raise entries.error(parameter_name, what)
            parameters[parameter_name] = parameter
    mistakes.refuse()
    _refuse_ambiguous_constants(section, variants, parameters)
    return tuple(variants), parameters


def _parameter(entries: Fields, name: str) -> Parameter:
    """A parameter as `LETTERS` or as `{letter: LETTERS, default: VALUE}`."""
    letters, default = entries.get_as(name, (str, dict)), None
    if isinstance(letters, Fields):
        letters.only(["letter", "default"])
        default = letters.number("default", int, 0, _LARGEST_PARAMETER)
        letters = letters.get_as("letter", str)
    if not re.fullmatch("[A-Z]{1,4}", letters):
        raise entries.error(name, f"needs one to four capital letters for names, not {shown(letters)}")
    return Parameter(letters, default)


def _refuse_ambiguous_constants(
    section: Fields, variants: list[str], parameters: Mapping[str, Parameter]
) -> None:
    """Refuse a variant `split_m64` beside `split`: names leave out defaults, so they could share one."""
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


def refuse_printed_names(
    kernel: Fields,
    names: Collection[str],
    variants: Collection[str],
    parameters: Mapping[str, Parameter],
    *,
    of_models: bool = False,
) -> None:
    """Refuse names of features and regimes that the printed module uses itself, as for configs' constants.

    of_models: whether the names stand where those of constants do.
    """
    letters = "|".join(parameter.letters for parameter in parameters.values())
    values = f"(_({letters})[0-9]+)*" if parameters else ""
    constant = re.compile(f"({'|'.join(map(str.upper, variants))}){values}")
    for name in names:
        if name in _PRINTED_BY_STEP or (of_models and name in _PRINTED_BY_MODEL):
            raise kernel.error(None, f"the name {shown(name)} is one that the printed module uses itself")
    for name in (*names, *parameters):
        if constant.fullmatch(name):
            raise kernel.error(None, f"the name {shown(name)} could be that of a config's constant")


def in_kernel(
    kernel: Fields, features: Collection[str], rules: Collection[Constraint], steps: Collection[str]
) -> bool:
    """Whether Triton kernels find the row of a step themselves. Raises InputError."""
    wanted: bool = kernel.get_as("in_kernel", bool, False)
    for name in features if wanted else ():
        if name in _TRITON:
            what = f"{shown(name)} is the name of a module that functions for Triton use; rename it"
            raise kernel.error("in_kernel", what)
    for rule in rules if wanted else ():
        if rule.names & set(steps):
            what = f"the constraint {shown(rule.text)} is about steps; a row does not say what is launched"
            raise kernel.error("in_kernel", what)
    return wanted


def constraints(
    kernel: Fields, key: str, known: Mapping[str, bool], variants: Collection[str] = ()
) -> tuple[Constraint, ...]:
    """The conditions that `key` lists, over the names in `known` (see `expr.parse`). Raises InputError.

    variants: those of which an entry may name some, to bind no others.
    """
    result: list[Constraint] = []
    mistakes = Mistakes()
    for place, entry in enumerate(kernel.get_as(key, list, [])):
        with mistakes.collect():
            text, bound, line = entry, None, kernel.line_of(key, place)
            if isinstance(entry, Fields) and variants:
                text, bound = _text_and_variants(entry, variants)
            if not isinstance(text, str):
                raise kernel.error(key, f"holds {shown(text)}, which is no condition")
            if text in [other.text for other in result]:
                raise kernel.error(key, f"names {shown(text)} twice")
            try:
                test = expr.parse_condition(text, known)
            except expr.ExpressionError as error:
                what = f"{key.removesuffix('s')} {shown(text)} {error}"
                raise InputError(kernel.path, what, line=line) from None
            result.append(Constraint(text, test, line, bound))
    mistakes.refuse()
    return tuple(result)


def _text_and_variants(entry: Fields, known: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """The condition and the variants of `{holds: CONDITION, variants: [VARIANT, ...]}`."""
    entry.only(["holds", "variants"])
    text, variants = entry.get_as("holds", str), entry.names("variants")
    entry.refuse_unknown("variant", variants, known, key="variants")
    return text, tuple(variants)


def fallback(kernel: Fields, variants: Collection[str], parameters: Mapping[str, Parameter]) -> Config:
    """The fallback config; parameters that it leaves out have their default. Raises InputError."""
    fields = kernel.section("fallback")
    fields.only(["variant", *parameters])
    variant = fields.get_as("variant", str, *list(variants)[: len(variants) == 1])
    fields.refuse_unknown("variant", [variant], variants, key="variant")
    mistakes = Mistakes()
    values = []
    for name, p in parameters.items():
        with mistakes.collect():
            values.append((name, fields.number(name, int, 0, _LARGEST_PARAMETER, p.default)))
    mistakes.refuse()
    return Config(variant, tuple(values))

"""Read and check one kernel of the spec, with what it says for reviews."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from treegen.core import expr
from treegen.core.errors import InputError, Mistakes, shown
from treegen.core.spec import (
    Budget,
    Constraint,
    DeviceSpec,
    KernelSpec,
    Objective,
    Parameter,
    Regime,
    Translation,
)
from treegen.read.configs import (
    constraints,
    fallback,
    in_kernel,
    refuse_names_of_constants,
    variants_and_parameters,
)
from treegen.read.yaml_file import LARGEST, Fields, Items, check_names, expression, folder_below, known_names
from tuning_table.names import is_word

_MOST_FEATURES = 256
_REQUIRED = ["features", "config", "fallback", "tree", "tables"]
_OPTIONAL = ["derived", "split_on", "constraints", "trusted_as_measured", "objective", "translate"]
_OPTIONAL += ["in_kernel", "words", "values", "regimes", "invariants", "hook"]


def read_kernel(kernels: Fields, name: str, devices: Mapping[str, DeviceSpec], folder: Path) -> KernelSpec:
    """The kernel `name` of the spec in `folder`. Raises InputError, with all mistakes that can be judged."""
    check_names(kernels, [name])
    fields = kernels.section(name)
    mistakes = Mistakes()
    with mistakes.collect():
        fields.only([*_REQUIRED, *_OPTIONAL])
    with mistakes.collect():
        budget = _budget(fields.section("tree"))
    with mistakes.collect():
        hook = fields.get_as("hook", str, None)
        check_names(fields, [] if hook is None else [hook], key="hook")
    tables: dict[str, Path] = {}
    with mistakes.collect():
        tables, measured_on = _tables(fields, devices, folder)
    any_limit = dict.fromkeys(limit for device in devices.values() for limit in device.limits)
    features: list[str] = []
    with mistakes.collect():
        features = fields.names("features")
        if not features:
            raise fields.error("features", "names no feature")
        check_names(fields, features, any_limit, key="features", capitals=True)
    if not features:
        mistakes.refuse()  # the other sections use these names
    # Expressions may use the limits that every device of this kernel states.
    limits = [limit for limit in any_limit if all(limit in devices[key].limits for key in tables)]
    known = list(features)
    with mistakes.collect():
        known += fields.section("derived", optional=True)
        derived = _derived(fields, features, limits, any_limit)
        if len(known) > _MOST_FEATURES:
            raise fields.error(
                None, f"has {len(known)} features with derived ones; {_MOST_FEATURES} are the most"
            )
    parameters: dict[str, Parameter] = {}
    with mistakes.collect():
        variants, parameters = variants_and_parameters(fields, name, {*known, *any_limit})
        refuse_names_of_constants(fields, [*known, *any_limit], variants, parameters)
    if not parameters:
        mistakes.refuse()
    split_on: tuple[str, ...] = tuple(known)
    with mistakes.collect():
        split_on = known_names(fields, "split_on", "feature", known) if "split_on" in fields else split_on
    with mistakes.collect():
        bounds = constraints(fields, variants, [*known, *limits, *parameters])
    with mistakes.collect():
        trusted = known_names(fields, "trusted_as_measured", "feature", known)
    with mistakes.collect():
        config = fallback(fields, variants, parameters)
    with mistakes.collect():
        translations = _translations(fields, variants, features, [*known, *parameters])
    with mistakes.collect():
        objective = _objective(fields.section("objective", optional=True), [*known, *limits])
    with mistakes.collect():
        phrases = words(fields, [*known, *parameters])
    with mistakes.collect():
        worded = values(fields, [*known, *parameters])
    with mistakes.collect():
        named = regimes(fields, known)
    with mistakes.collect():
        always = invariants(fields, [*known, *limits])
    with mistakes.collect():
        chosen_in_kernel = in_kernel(fields, known, parameters)
    mistakes.refuse()
    return KernelSpec(
        name=name,
        features=tuple(features),
        derived=derived,
        split_on=split_on,
        variants=variants,
        parameters=parameters,
        constraints=bounds,
        trusted_as_measured=trusted,
        fallback=config,
        budget=budget,
        translations=translations,
        tables=tables,
        measured_on=measured_on,
        objective=objective,
        words=phrases,
        values=worded,
        regimes=named,
        invariants=always,
        hook=hook,
        in_kernel=chosen_in_kernel,
    )


def _tables(
    kernel: Fields, devices: Mapping[str, DeviceSpec], folder: Path
) -> tuple[dict[str, Path], dict[str, str]]:
    """The folders of tables by device, and the GPU of those that another GPU measured."""
    section = kernel.section("tables")
    section.refuse_unknown("device", section, devices)
    if not section:
        raise section.error(None, "names no table")
    folders: dict[str, Path] = {}
    measured_on: dict[str, str] = {}
    for key in section:
        if not isinstance(section[key], Fields):
            folders[key] = folder_below(section, key, folder)
            continue
        entry = section.section(key)
        entry.only(["folder", "measured_on"])
        folders[key] = folder_below(entry, "folder", folder)
        measured_on[key] = entry.get_as("measured_on", str)
    return folders, measured_on


def _derived(
    kernel: Fields, features: Collection[str], limits: Collection[str], any_limit: Collection[str]
) -> dict[str, expr.Expression]:
    derived: dict[str, expr.Expression] = {}
    degrees: dict[str, int] = {}
    section = kernel.section("derived", optional=True)
    check_names(section, section, {*features, *any_limit}, capitals=True)
    mistakes = Mistakes()
    for name in section:
        derived[name] = expr.Number(0)  # where it cannot be read
        with mistakes.collect():
            derived[name] = expression(
                section, name, [n for n in (*features, *derived, *limits) if n != name]
            )
            degrees[name] = expr.degree(derived[name], degrees)
            if degrees[name] > expr.MAX_DEGREE:  # the numbers would grow so long that `choose` takes years
                what = f"multiplies {degrees[name]} numbers; {expr.MAX_DEGREE} are the most"
                raise section.error(name, what)
    mistakes.refuse()
    return derived


def _budget(tree: Fields) -> Budget:
    mistakes = Mistakes()
    budget = Budget(1, 1)
    with mistakes.collect():
        tree.only(["max_depth", "max_leaves", "leaf_price", "config_price"])
    with mistakes.collect():
        budget = replace(budget, max_depth=tree.number("max_depth", int, 1, 32))
    with mistakes.collect():
        budget = replace(budget, max_leaves=tree.number("max_leaves", int, 1, 1024))
    with mistakes.collect():
        price = tree.number("leaf_price", float, 0, 1, Budget.leaf_price)
        budget = replace(budget, leaf_price=price)
    with mistakes.collect():
        price = tree.number("config_price", float, 0, 1, Budget.config_price)
        budget = replace(budget, config_price=price)
    mistakes.refuse()
    return budget


def _objective(section: Fields, known: Collection[str]) -> Objective:
    section.only(["weight", "worst_case", "untimed"])
    weight = section.get_as("weight", (str, int), 1)  # YAML does not take an integer for text
    untimed = section.number("untimed", float, 1, 100, Objective.untimed)
    if untimed == 1:
        raise section.error("untimed", "must be above 1")
    return Objective(
        weight=expression(section, "weight", known) if isinstance(weight, str) else expr.Number(weight),
        worst_case=section.number("worst_case", float, 0, 100, Objective.worst_case),
        untimed=untimed,
    )


def _translations(
    kernel: Fields, variants: Collection[str], features: Collection[str], known: Collection[str]
) -> dict[str, Translation]:
    section = kernel.section("translate", optional=True)
    return {name: _translation(section.section(name), variants, features, known) for name in section}


def _translation(
    entry: Fields, variants: Collection[str], features: Collection[str], known: Collection[str]
) -> Translation:
    entry.only(["variant", "rename", "constants"])
    variant = entry.get_as("variant", str, *list(variants)[: len(variants) == 1])
    entry.refuse_unknown("variant", [variant], variants, key="variant")
    columns = entry.section("rename")
    rename: dict[str, str] = {}
    for column in columns:
        name = columns.get_as(column, str)
        columns.refuse_unknown("feature or parameter", [name], known, key=column)
        if name in rename.values():
            raise columns.error(column, f"{shown(name)} already has another source")
        rename[column] = name
    constants = entry.section("constants", optional=True)
    constants.refuse_unknown("feature", constants, features)
    for name in constants:
        if name in rename.values():
            raise constants.error(name, "is renamed from a column, so it is not a constant")
    return Translation(
        variant, rename, {name: constants.number(name, int, -LARGEST, LARGEST) for name in constants}
    )


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

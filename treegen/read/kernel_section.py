"""Read and check one kernel of the spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from treegen.core import expr
from treegen.core.errors import Mistakes, shown
from treegen.core.spec import Budget, DeviceSpec, KernelSpec, Objective, Parameter, Translation
from treegen.read.config_section import (
    constraints,
    fallback,
    in_kernel,
    refuse_names_of_constants,
    variants_and_parameters,
)
from treegen.read.review_section import invariants, regimes, values, words
from treegen.read.spec_values import LARGEST, check_names, expression, folder_below, known_names
from treegen.read.yaml_file import Fields

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

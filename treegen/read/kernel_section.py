"""Read and check one kernel of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from treegen.core import expr
from treegen.core.errors import shown
from treegen.core.spec import Budget, DeviceSpec, KernelSpec, Objective, Translation
from treegen.read.config_section import config_words, constraints, fallback, in_kernel
from treegen.read.review_section import regimes, words
from treegen.read.spec_values import LARGEST, check_name, count, decimal, folder_below
from treegen.read.yaml_file import Fields

_MOST_FEATURES = 256


def read_kernel(kernels: Fields, name: str, devices: Mapping[str, DeviceSpec], folder: Path) -> KernelSpec:
    """The kernel `name` of the spec in `folder`. Raises InputError."""
    check_name(kernels, name, name)
    fields = kernels.get_as(name, Fields)
    fields.only(
        [
            "features",
            "derived",
            "split_on",
            "config",
            "constraints",
            "trusted_as_measured",
            "fallback",
            "tree",
            "objective",
            "translate",
            "tables",
            "words",
            "regimes",
            "hook",
            "in_kernel",
        ]
    )
    features = fields.names("features")
    if not features:
        raise fields.error("features", "names no feature")
    any_limit = {limit for device in devices.values() for limit in device.limits}
    for feature in features:
        check_name(fields, "features", feature, any_limit)
    tables = _tables(fields.get_as("tables", Fields), devices, folder)
    limits = _common_limits(fields, tables, devices)
    derived = _derived(fields, features, limits, any_limit)
    known = [*features, *derived]
    if len(known) > _MOST_FEATURES:
        raise fields.error(
            None, f"has {len(known)} features with derived ones; {_MOST_FEATURES} are the most"
        )
    split_on = _feature_list(fields, "split_on", known) if "split_on" in fields else known
    variants, parameters = config_words(fields, {*known, *any_limit})
    return KernelSpec(
        name=name,
        features=tuple(features),
        derived=MappingProxyType(derived),
        split_on=tuple(split_on),
        variants=tuple(variants),
        parameters=MappingProxyType(parameters),
        constraints=tuple(constraints(fields, variants, [*known, *limits, *parameters])),
        trusted_as_measured=tuple(_feature_list(fields, "trusted_as_measured", known)),
        fallback=fallback(fields.get_as("fallback", Fields), variants, parameters),
        budget=_budget(fields.get_as("tree", Fields)),
        translations=MappingProxyType(_translations(fields, variants, features, [*known, *parameters])),
        tables=MappingProxyType(tables),
        objective=_objective(fields, [*known, *limits]),
        words=MappingProxyType(words(fields, [*known, *parameters])),
        regimes=MappingProxyType(regimes(fields, known)),
        hook=_hook(fields),
        in_kernel=tuple(in_kernel(fields, known, parameters)),
    )


def _hook(fields: Fields) -> str | None:
    name = fields.get_as("hook", str, None)
    return None if name is None else check_name(fields, "hook", name)


def _feature_list(fields: Fields, key: str, known: list[str]) -> list[str]:
    names = fields.names(key) if key in fields else []
    for name in names:
        if name not in known:
            raise fields.error(key, f"unknown feature {shown(name)}; known: {', '.join(known)}")
    return names


def _tables(fields: Fields, devices: Mapping[str, DeviceSpec], folder: Path) -> dict[str, Path]:
    tables = {}
    for key in fields:
        if key not in devices:
            raise fields.error(key, f"is not among the spec's devices ({', '.join(devices)})")
        tables[key] = folder_below(fields, key, folder)
    if not tables:
        raise fields.error(None, "names no table")
    return tables


def _common_limits(
    fields: Fields, tables: Mapping[str, Path], devices: Mapping[str, DeviceSpec]
) -> dict[str, int]:
    """The limits that every device of this kernel states: only those may stand in expressions."""
    keys = list(tables)
    return {n: v for n, v in devices[keys[0]].limits.items() if all(n in devices[k].limits for k in keys)}


def _derived(
    fields: Fields, features: list[str], limits: Mapping[str, int], any_limit: set[str]
) -> dict[str, expr.Expression]:
    derived: dict[str, expr.Expression] = {}
    degrees: dict[str, int] = {}
    section = fields.get_as("derived", Fields, None)
    for name in section or ():
        check_name(section, name, name, {*features, *any_limit})
        derived[name] = _expression(section, name, [*features, *derived, *limits])
        degrees[name] = expr.degree(derived[name], degrees)
        if degrees[name] > expr.MAX_DEGREE:  # or a module that is total might take years
            raise section.error(name, f"multiplies {degrees[name]} numbers; {expr.MAX_DEGREE} are the most")
    return derived


def _expression(fields: Fields, key: str, known: list[str]) -> expr.Expression:
    """The expression of `key`, over the names in `known`."""
    try:
        expression = expr.parse(fields.get_as(key, str))
    except expr.ExpressionError as error:
        raise fields.error(key, str(error)) from None
    for name in sorted(expr.names(expression)):
        if name not in known:
            raise fields.error(key, f"unknown name {shown(name)}; known here: {', '.join(known)}")
    return expression


def _budget(fields: Fields) -> Budget:
    fields.only(["max_depth", "max_leaves", "leaf_price", "config_price"])
    return Budget(
        max_depth=count(fields, "max_depth", 32),
        max_leaves=count(fields, "max_leaves", 1024),
        leaf_price=decimal(fields, "leaf_price", Budget.leaf_price, 0, 1),
        config_price=decimal(fields, "config_price", Budget.config_price, 0, 1),
    )


def _objective(fields: Fields, known: list[str]) -> Objective:
    if "objective" not in fields:
        return Objective()
    section = fields.get_as("objective", Fields)
    section.only(["weight", "worst_case", "untimed"])
    return Objective(
        weight=_weight(section, known),
        worst_case=decimal(section, "worst_case", Objective.worst_case, 0, 100),
        untimed=decimal(section, "untimed", Objective.untimed, 1, 100, above=True),
    )


def _weight(section: Fields, known: list[str]) -> expr.Expression:
    """The weight as an expression or as an integer, which YAML does not take for text."""
    if "weight" not in section:
        return Objective.weight
    value = section.get_as("weight", (str, int))
    return expr.Number(value) if isinstance(value, int) else _expression(section, "weight", known)


def _constants(entry: Fields, features: list[str], rename: Mapping[str, str]) -> dict[str, int]:
    found = {}
    section = entry.get_as("constants", Fields, None)
    for name in section or ():
        if name not in features:
            raise section.error(name, f"is no feature of this kernel; known: {', '.join(features)}")
        if name in rename.values():
            raise section.error(name, "is renamed from a column, so it is no constant")
        found[name] = section.get_as(name, int)
        if abs(found[name]) > LARGEST:
            raise section.error(name, "must be an integer within 62 bits")
    return found


def _translations(
    fields: Fields, variants: list[str], features: list[str], known: list[str]
) -> dict[str, Translation]:
    translations = {}
    section = fields.get_as("translate", Fields, None)
    for kernel in section or ():
        entry = section.get_as(kernel, Fields)
        entry.only(["variant", "rename", "constants"])
        variant = entry.get_as("variant", str)
        if variant not in variants:
            raise entry.error("variant", f"unknown variant {shown(variant)}; known: {', '.join(variants)}")
        words = entry.get_as("rename", Fields)
        rename: dict[str, str] = {}
        for word in words:
            target = words.get_as(word, str)
            if target not in known:
                raise words.error(word, f"{shown(target)} is no feature or parameter of this kernel")
            if target in rename.values():
                raise words.error(word, f"{shown(target)} already has another source")
            rename[word] = target
        constants = _constants(entry, features, rename)
        translations[kernel] = Translation(variant, MappingProxyType(rename), MappingProxyType(constants))
    return translations

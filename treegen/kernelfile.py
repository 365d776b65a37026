"""Read and check one kernel of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from treegen import expr
from treegen.configwords import config_words, constraints, fallback
from treegen.errors import shown
from treegen.spec import Budget, DeviceSpec, KernelSpec, Translation
from treegen.specvalues import check_name, count, folder_below
from treegen.yamlfile import Fields


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
            "translate",
            "tables",
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
    split_on = _feature_list(fields, "split_on", known) if "split_on" in fields else known
    variants, parameters = config_words(fields, {*known, *any_limit})
    budget_fields = fields.get_as("tree", Fields)
    budget_fields.only(["max_depth", "max_leaves"])
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
        budget=Budget(count(budget_fields, "max_depth", 32), count(budget_fields, "max_leaves", 1024)),
        translations=MappingProxyType(_translations(fields, variants, [*known, *parameters])),
        tables=MappingProxyType(tables),
    )


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
    section = fields.get_as("derived", Fields, None)
    for name in section or ():
        check_name(section, name, name, {*features, *any_limit})
        try:
            expression = expr.parse(section.get_as(name, str))
        except expr.ExpressionError as error:
            raise section.error(name, str(error)) from None
        _known_names(section, name, expression, [*features, *derived, *limits])
        derived[name] = expression
    return derived


def _known_names(fields: Fields, key: str, expression: expr.Expression, known: list[str]) -> None:
    for name in sorted(expr.names(expression)):
        if name not in known:
            raise fields.error(key, f"unknown name {shown(name)}; known here: {', '.join(known)}")


def _translations(fields: Fields, variants: list[str], known: list[str]) -> dict[str, Translation]:
    translations = {}
    section = fields.get_as("translate", Fields, None)
    for kernel in section or ():
        entry = section.get_as(kernel, Fields)
        entry.only(["variant", "rename"])
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
        translations[kernel] = Translation(variant, MappingProxyType(rename))
    return translations

"""Read and check the spec, `treegen.yaml`."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType

from treegen import expr
from treegen.errors import InputError, reason, shown
from treegen.files import looked_at
from treegen.names import problem_with_own_name
from treegen.spec import (
    Budget,
    Config,
    Constraint,
    DeviceSpec,
    KernelSpec,
    Spec,
    Translation,
)
from treegen.yamlfile import Fields, load

FORMAT = 1
_LARGEST = 1 << 62
DEFAULT_PATH = Path("treegen.yaml")


def read_spec(path: Path) -> Spec:
    """The spec in the file at `path`; relative paths in it start at its folder.

    Raises InputError, naming the line, for anything unknown, missing or contradictory.
    """
    root = load(path)
    root.only(["format", "output", "devices", "kernels"])
    if root.get_as("format", int) != FORMAT:
        raise root.error("format", f"must be {FORMAT}, the format this treegen reads")
    folder = path.resolve().parent
    output = _inside(root, "output", folder)
    devices = root.get_as("devices", Fields)
    device_specs = {key: _device(devices, key) for key in devices}
    _refuse_shared_names(devices, device_specs)
    kernels = root.get_as("kernels", Fields)
    if not kernels:
        raise root.error("kernels", "names no kernel")
    kernel_specs = {name: _kernel(kernels, name, device_specs, folder) for name in kernels}
    return Spec(path, output, MappingProxyType(device_specs), MappingProxyType(kernel_specs))


def _inside(fields: Fields, key: str, folder: Path) -> Path:
    text: str = fields.get_as(key, str)
    try:
        path: Path = (folder / text).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise fields.error(key, f"{shown(text)} cannot be a folder: {reason(error)}") from None
    if path == folder or not path.is_relative_to(folder):
        raise fields.error(key, f"{shown(text)} must be a folder below the one that holds the spec")
    return path


def _check_name(fields: Fields, key: str | None, name: object, taken: Container[str] = ()) -> str:
    problem = problem_with_own_name(name)
    if problem is not None:
        raise fields.error(key, f"{shown(name)} {problem}")
    if name in taken:
        raise fields.error(key, f"the name {shown(name)} is already taken")
    return str(name)


def _device(devices: Fields, key: str) -> DeviceSpec:
    _check_name(devices, key, key)
    fields = devices.get_as(key, Fields)
    fields.only(["names", "arch", "vendor", "limits"])
    names = fields.names("names") if "names" in fields else []
    limits_fields = fields.get_as("limits", Fields, None)
    limits = {}
    for name in limits_fields or ():
        _check_name(limits_fields, name, name)
        limits[name] = limits_fields.get_as(name, int)
        if abs(limits[name]) > _LARGEST:
            raise limits_fields.error(name, "must be an integer within 62 bits")
    arch = fields.get_as("arch", str, None)
    return DeviceSpec(key, tuple(names), arch, fields.get_as("vendor", str), MappingProxyType(limits))


def _refuse_shared_names(fields: Fields, devices: Mapping[str, DeviceSpec]) -> None:
    owner: dict[str, str] = {}
    for device in devices.values():
        # A model claims its names; a family all other GPUs of its vendor, or those of one architecture.
        for claim in device.names or (f"any {device.arch or device.vendor}",):
            if claim in owner:
                raise fields.error(
                    device.key, f"the GPU name {shown(claim)} already belongs to {owner[claim]}"
                )
            owner[claim] = device.key


def _kernel(kernels: Fields, name: str, devices: Mapping[str, DeviceSpec], folder: Path) -> KernelSpec:
    _check_name(kernels, name, name)
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
        _check_name(fields, "features", feature, any_limit)
    tables = _tables(fields.get_as("tables", Fields), devices, folder)
    limits = _common_limits(fields, tables, devices)
    derived = _derived(fields, features, limits, any_limit)
    known = [*features, *derived]
    split_on = _feature_list(fields, "split_on", known) if "split_on" in fields else known
    variants, parameters = _config_words(fields, {*known, *any_limit})
    budget_fields = fields.get_as("tree", Fields)
    budget_fields.only(["max_depth", "max_leaves"])
    return KernelSpec(
        name=name,
        features=tuple(features),
        derived=MappingProxyType(derived),
        split_on=tuple(split_on),
        variants=tuple(variants),
        parameters=MappingProxyType(parameters),
        constraints=tuple(_constraints(fields, [*known, *limits, *parameters])),
        trusted_as_measured=tuple(_feature_list(fields, "trusted_as_measured", known)),
        fallback=_fallback(fields.get_as("fallback", Fields), variants, parameters),
        budget=Budget(_count(budget_fields, "max_depth", 32), _count(budget_fields, "max_leaves", 1024)),
        translations=MappingProxyType(_translations(fields, variants, [*known, *parameters])),
        tables=MappingProxyType(tables),
    )


def _feature_list(fields: Fields, key: str, known: list[str]) -> list[str]:
    names = fields.names(key) if key in fields else []
    for name in names:
        if name not in known:
            raise fields.error(key, f"unknown feature {shown(name)}; known: {', '.join(known)}")
    return names


def _count(fields: Fields, key: str, most: int) -> int:
    value = fields.get_as(key, int)
    if not 1 <= value <= most:
        raise fields.error(key, f"must be between 1 and {most}, not {shown(value)}")
    return int(value)


def _tables(fields: Fields, devices: Mapping[str, DeviceSpec], folder: Path) -> dict[str, Path]:
    tables = {}
    for key in fields:
        if key not in devices:
            raise fields.error(key, f"is not among the spec's devices ({', '.join(devices)})")
        tables[key] = _inside(fields, key, folder)
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
        _check_name(section, name, name, {*features, *any_limit})
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


def _config_words(fields: Fields, taken: set[str]) -> tuple[list[str], dict[str, str]]:
    section = fields.get_as("config", Fields)
    section.only(["variants", "parameters"])
    variants = section.names("variants")
    for variant in variants:
        _check_name(section, "variants", variant)
    words = section.get_as("parameters", Fields)
    parameters: dict[str, str] = {}
    for name in words:
        _check_name(words, name, name, taken)
        letters = words.get_as(name, str)
        if not (letters.isascii() and letters.isalpha() and letters.isupper() and len(letters) <= 4):
            raise words.error(name, f"needs one to four capital letters for names, not {shown(letters)}")
        if letters in parameters.values():
            raise words.error(name, f"the letters {letters} are taken by another parameter")
        parameters[name] = letters
    if not variants or not parameters:
        raise section.error(None, "needs at least one variant and one parameter")
    return variants, parameters


def _constraints(fields: Fields, known: list[str]) -> list[Constraint]:
    if "constraints" not in fields:
        return []
    fields.names("constraints")
    items = fields["constraints"]
    return [_constraint(fields, text, line, known) for text, line in zip(items, items.lines, strict=True)]


def _constraint(fields: Fields, text: str, line: int, known: list[str]) -> Constraint:
    def wrong(what: str) -> InputError:
        return InputError(fields.path, f"constraint {shown(text)} {what}", line=line)

    try:
        left, operator, right = expr.parse_comparison(text)
    except expr.ExpressionError as error:
        raise wrong(str(error)) from None
    for name in sorted(expr.names(left) | expr.names(right)):
        if name not in known:
            raise wrong(f"uses the unknown name {shown(name)}; known here: {', '.join(known)}")
    return Constraint(text, left, operator, right, line)


def _fallback(fields: Fields, variants: list[str], parameters: Mapping[str, str]) -> Config:
    fields.only(["variant", *parameters])
    variant = fields.get_as("variant", str)
    if variant not in variants:
        raise fields.error("variant", f"unknown variant {shown(variant)}; known: {', '.join(variants)}")
    values = tuple((name, fields.get_as(name, int)) for name in parameters)
    for name, value in values:
        if not 0 <= value < 1 << 31:
            raise fields.error(name, f"{shown(value)} is no launch parameter")
    return Config(variant, values)


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


def find_spec(path: Path | None) -> Path:
    """The spec to use: `path`, or `treegen.yaml` in this folder."""
    found = path or DEFAULT_PATH
    if not looked_at(found, Path.is_file):
        raise InputError(
            found, "no such spec; name one with --spec FILE or run in the folder that holds treegen.yaml"
        )
    return found

"""Read and check one kernel of the spec, with its regimes and classes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from treegen.core import expr
from treegen.core.errors import Mistakes, shown
from treegen.core.spec import (
    Budget,
    Constraint,
    DeviceSpec,
    KernelSpec,
    ModelClass,
    Parameter,
    Regime,
    Translation,
    fixed_features,
)
from treegen.read.configs import (
    constraints,
    fallback,
    in_kernel,
    refuse_printed_names,
    variants_and_parameters,
)
from treegen.read.yaml_file import (
    LARGEST,
    Fields,
    check_names,
    expression,
    folder_below,
    known_names,
)

_MOST_FEATURES = 256
_REQUIRED = ["features", "config", "fallback", "tables"]
MOST_ROWS = 12  # of a regime: a tree that a person reads
_OPTIONAL = ["derived", "constants", "split_on", "regimes", "classes", "tree", "hold_out_by"]
_OPTIONAL += ["constraints", "objective", "translate"]
_OPTIONAL += ["in_kernel", "values", "invariants", "hook", "invariant_to", "function"]
OTHERWISE = "otherwise"
_UNREADABLE = expr.Call("<=", (expr.Number(0), expr.Number(0)))
"""Stands for a derived feature that cannot be read: a condition may stand wherever a number may."""


def read_kernel(kernels: Fields, name: str, devices: Mapping[str, DeviceSpec], folder: Path) -> KernelSpec:
    """The kernel `name` of the spec in `folder`. Raises InputError, with all mistakes that can be judged."""
    check_names(kernels, [name])
    fields = kernels.section(name)
    fields.only([*_REQUIRED, *_OPTIONAL])
    mistakes = Mistakes()
    with mistakes.collect():
        budget = _budget(fields.section("tree", optional=True))
    with mistakes.collect():
        hook = fields.get_as("hook", str, None)
        check_names(fields, [] if hook is None else [hook], key="hook")
    function: str | None = None
    with mistakes.collect():
        function = fields.get_as("function", str, None)
        if function is not None and not re.fullmatch(r"[\w.]+:[\w.]+", function):
            raise fields.error("function", f"must be `module:function`, not {shown(function)}")
    tables: dict[str, Path] = {}
    with mistakes.collect():
        tables, measured_on = _tables(fields, devices, folder)
    any_limit = dict.fromkeys(limit for device in devices.values() for limit in device.limits)
    features: list[str] = []
    with mistakes.collect():
        features = fields.names("features")
        check_names(fields, features, any_limit, key="features", capitals=True)
    if not features:
        mistakes.refuse()  # the other sections use these names
    # Expressions may use the limits that every device of this kernel states.
    shared = (limit for limit in any_limit if all(limit in devices[key].limits for key in tables))
    limits = dict.fromkeys(shared, False)
    derived: dict[str, expr.Expression] = {}
    with mistakes.collect():
        derived = _derived(fields, features, limits, any_limit, mistakes)
        if (count := len(features) + len(derived)) > _MOST_FEATURES:
            raise fields.error(None, f"has {count} features with derived ones; {_MOST_FEATURES} are the most")
    known = dict.fromkeys(features, False) | {name: expr.is_condition(e) for name, e in derived.items()}
    variants: tuple[str, ...] = ()
    parameters: dict[str, Parameter] = {}
    with mistakes.collect():
        variants, parameters = variants_and_parameters(fields, name, {*known, *any_limit})
        refuse_printed_names(fields, [*known, *any_limit], variants, parameters)
    if not variants:
        mistakes.refuse()
    constants: tuple[str, ...] = ()
    with mistakes.collect():
        constants = known_names(fields, "constants", "raw feature", features)
        if len(constants) == len(features):
            raise fields.error("constants", "leaves no feature that changes from step to step")
    fixed = {name: known[name] for name in fixed_features(features, constants, derived)}
    steps = {name: known[name] for name in known if name not in fixed or derived.get(name) is _UNREADABLE}
    invariant_to: tuple[str, ...] = ()
    with mistakes.collect():
        invariant_to = known_names(fields, "invariant_to", "raw feature of steps", set(features) & set(steps))
    deciding = [name for name in steps if set(invariant_to).isdisjoint(expr.with_parts([name], derived))]
    named_regimes: tuple[Regime, ...] = ()
    with mistakes.collect():
        named_regimes = regimes(fields, steps, deciding)
        for regime in named_regimes:
            if not {regime.name, regime.name.upper(), f"{regime.name}_row"}.isdisjoint(known):
                what = f"the regime {shown(regime.name)} and a feature would share a name"
                raise fields.error("regimes" if "regimes" in fields else None, what)
        of_models = [*fixed, *(name for r in named_regimes for name in (r.name, r.name.upper()))]
        refuse_printed_names(fields, of_models, variants, parameters, of_models=True)
    with mistakes.collect():
        model_classes = classes(fields, fixed)
    with mistakes.collect():
        hold_out_by = known_names(fields, "hold_out_by", "feature", known) or constants
    bounds: tuple[Constraint, ...] = ()
    with mistakes.collect():
        names = {**known, **limits, **dict.fromkeys(parameters, False)}
        bounds = constraints(fields, "constraints", names, variants)
    with mistakes.collect():
        config = fallback(fields, variants, parameters)
    with mistakes.collect():
        translations = _translations(fields, variants, features, [*known, *parameters])
    with mistakes.collect():
        weight = _weight(fields.section("objective", optional=True), known | limits)
    with mistakes.collect():
        worded = values(fields, [*known, *parameters])
    with mistakes.collect():
        always = constraints(fields, "invariants", known | limits)
    with mistakes.collect():
        chosen_in_kernel = in_kernel(fields, known, bounds, steps)
        if chosen_in_kernel and invariant_to:
            raise fields.error(
                "invariant_to", "is proved of Python modules alone, so in_kernel must be false"
            )
    with mistakes.collect():
        asking = {f"regime {shown(r.name)}": [*r.split_on, *names_in(r.when)] for r in named_regimes}
        asking |= {f"constraint {shown(rule.text)}": [*rule.names] for rule in bounds}
        for what, questions in asking.items():
            for name in (one for one in steps if one in questions and one not in deciding):
                source = next(one for one in invariant_to if one in expr.with_parts([name], derived))
                because = "" if source == name else f", which depends on {shown(source)}"
                raise fields.error("invariant_to", f"the {what} asks about {shown(name)}{because}")
    mistakes.refuse()
    return KernelSpec(
        name=name,
        features=tuple(features),
        derived=derived,
        constants=constants,
        regimes=named_regimes,
        classes=model_classes,
        hold_out_by=hold_out_by,
        variants=variants,
        parameters=parameters,
        constraints=bounds,
        fallback=config,
        budget=budget,
        translations=translations,
        tables=tables,
        measured_on=measured_on,
        weight=weight,
        values=worded,
        invariants=always,
        hook=hook,
        function=function,
        in_kernel=chosen_in_kernel,
        invariant_to=invariant_to,
    )


def names_in(when: expr.Call | None) -> frozenset[str]:
    return frozenset() if when is None else expr.names(when)


def _tables(
    kernel: Fields, devices: Mapping[str, DeviceSpec], folder: Path
) -> tuple[dict[str, Path], dict[str, str]]:
    """The folders of tables by device, and the GPU of those that another GPU measured."""
    section = kernel.section("tables")
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
    section.refuse_unknown("device", section, devices)
    return folders, measured_on


def _derived(
    kernel: Fields,
    features: Collection[str],
    limits: dict[str, bool],
    any_limit: Collection[str],
    mistakes: Mistakes,
) -> dict[str, expr.Expression]:
    """The derived features; what is wrong with them goes into `mistakes`."""
    derived: dict[str, expr.Expression] = {}
    degrees: dict[str, int] = {}
    section = kernel.section("derived", optional=True)
    with mistakes.collect():
        check_names(section, section, {*features, *any_limit}, capitals=True)
    known = dict.fromkeys(features, False)
    for name in section:
        derived[name] = _UNREADABLE
        with mistakes.collect():
            derived[name] = expression(section, name, known | limits)
            degrees[name] = expr.degree(derived[name], degrees)
            if degrees[name] > expr.MAX_DEGREE:  # the numbers would grow so long that `choose` takes years
                what = f"multiplies {degrees[name]} numbers; {expr.MAX_DEGREE} are the most"
                raise section.error(name, what)
        known[name] = expr.is_condition(derived[name])
    return derived


def _budget(tree: Fields) -> Budget:
    limits = {"max_depth": (1, 4), "max_rows": (1, MOST_ROWS), "max_configs": (1, 64)}
    tree.only([*limits, "row_price", "cell_price"])
    mistakes = Mistakes()
    budget = Budget()
    for name, (least, most) in limits.items():
        with mistakes.collect():
            budget = replace(budget, **{name: tree.number(name, int, least, most, getattr(budget, name))})
    for name in ("row_price", "cell_price"):
        with mistakes.collect():
            budget = replace(budget, **{name: tree.number(name, float, 0, 1, getattr(budget, name))})
    mistakes.refuse()
    return budget


def _weight(section: Fields, known: Mapping[str, bool]) -> expr.Expression:
    section.only(["weight"])
    weight = section.get_as("weight", (str, int), 1)  # YAML does not take an integer for text
    return expression(section, "weight", known) if isinstance(weight, str) else expr.Number(weight)


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


def values(kernel: Fields, known: Collection[str]) -> dict[str, dict[int, str]]:
    """Words by the integers of a feature or parameter, from a list or from `{word: integer}`.

    Raises InputError.
    """
    section = kernel.section("values", optional=True)
    section.refuse_unknown("feature or parameter", section, known)
    return {name: section.by_number(name) for name in section}


def regimes(kernel: Fields, steps: Mapping[str, bool], deciding: Collection[str]) -> tuple[Regime, ...]:
    """The kinds of steps, as in `decode: {when: max_query_len <= 1, split_on: [...]}`; one by default.

    steps: the features that are not fixed. deciding: those of them about which trees ask by default. Raises
    InputError.
    """
    default = known_names(kernel, "split_on", "feature of steps", steps) or tuple(deciding)
    section = kernel.section("regimes", optional=True)
    check_names(section, section)
    result = []
    for name in section:
        entry = section[name]
        if isinstance(entry, Fields):
            entry.only(["when", "split_on", "max_rows"])
            own = known_names(entry, "split_on", "feature of steps", steps) or default
            when = _condition(entry, "when", steps, last=name == [*section][-1])
            most = entry.number("max_rows", int, 1, MOST_ROWS) if "max_rows" in entry else None
        else:
            own, most = default, None
            when = _condition(section, name, steps, last=name == [*section][-1])
        result.append(Regime(name, when, own, most))
    return tuple(result) or (Regime("steps", None, default),)


def classes(kernel: Fields, fixed: Mapping[str, bool]) -> tuple[ModelClass, ...]:
    """The kinds of models, as in `fp8: kv_element_size <= 1`; one by default. Raises InputError."""
    section = kernel.section("classes", optional=True)
    check_names(section, section)
    found = [
        ModelClass(name, _condition(section, name, fixed, last=name == [*section][-1])) for name in section
    ]
    return tuple(found) or (ModelClass("all", None),)


def _condition(fields: Fields, key: str, known: Mapping[str, bool], *, last: bool) -> expr.Call | None:
    """A condition; None for `otherwise`, which the last entry of a section must be, and no other may be."""
    text = fields.get_as(key, str)
    if (text == OTHERWISE) != last:
        what = "the last one must be" if last else "only the last one may be"
        raise fields.error(key, f"{what} {OTHERWISE!r}, so that each has exactly one")
    try:
        return None if last else expr.parse_condition(text, known)
    except expr.ExpressionError as error:
        raise fields.error(key, str(error)) from None

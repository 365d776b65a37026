"""A table and the spec become a problem: features computed, scenarios weighed, configs priced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNMEASURED, Problem, holds
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.table import Cells, Table, median_times


def build_problem(kernel: KernelSpec, device: DeviceSpec, table: Table) -> Problem:
    """Translate the table's words, compute derived features, weigh scenarios, price every config in each.

    Raises InputError where table and spec do not fit together.
    """
    columns, configs = _translated(kernel, table)
    values = _feature_values(kernel, device, columns, table.folder)
    split_on = tuple(name for name in kernel.split_on if name in values)
    if not split_on:
        raise InputError(table.folder, f"holds none of the features that {kernel.name} may split on")
    for name in kernel.trusted_as_measured:
        if name not in values:
            raise InputError(table.folder, f"does not hold {name}, which the spec trusts only as measured")
    weight = _weights(kernel, device, table, values)
    allowed = _allowed(kernel, device, configs, values, len(table.scenarios))
    cost, told = _price(table, allowed)
    if not told.any():
        raise InputError(
            table.folder, f"the constraints of {kernel.name} leave no scenario with a config to choose"
        )
    # Folds go by position: an order that depends on content alone makes that of the files irrelevant.
    by_config = sorted(range(len(configs)), key=lambda c: configs[c])
    configs, cost = tuple(configs[c] for c in by_config), cost[:, by_config]
    features = np.stack(list(values.values()), axis=1)
    order = np.lexsort(np.concatenate([features, cost], axis=1).T[::-1])
    kept = order[told[order]]
    left_out = int(np.sum(~told))
    return Problem(
        kernel,
        device,
        table,
        tuple(values),
        split_on,
        features[kept],
        configs,
        cost[kept],
        left_out,
        tuple(table.scenarios[row] for row in kept),
        weight[kept],
        tuple(by_config),
    )


def _translated(
    kernel: KernelSpec, table: Table
) -> tuple[dict[str, npt.NDArray[np.int64]], tuple[Config, ...]]:
    translation = kernel.translations.get(table.kernel)
    if translation is None and table.kernel != kernel.name:
        what = (
            f"measured the kernel {shown(table.kernel)}, which the spec does not translate for {kernel.name}"
        )
        raise InputError(table.folder, what)
    rename = translation.rename if translation else {}
    words = {*table.feature_names, *table.configs[0].parameters}
    for word in rename:
        if word not in words:
            raise InputError(
                table.folder,
                f"has no {shown(word)}, which the spec translates; it has {', '.join(sorted(words))}",
            )
    names = [rename.get(name, name) for name in (*table.feature_names, *table.configs[0].parameters)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(table.folder, f"has two columns called {name} once its words are translated")
    columns = {name: table.features[:, i] for i, name in enumerate(names[: len(table.feature_names)])}
    for name, value in (translation.constants if translation else {}).items():
        if name in columns:
            raise InputError(table.folder, f"has a column {name}, which the spec says it leaves out")
        columns[name] = np.full(len(table.scenarios), value, dtype=np.int64)
    defaults = {n: p.default for n, p in kernel.parameters.items() if p.default is not None}
    configs: dict[Config, str] = {}
    for entry in table.configs:
        own = {rename.get(name, name): value for name, value in entry.parameters.items()}
        parameters = {**defaults, **own}
        missing = [name for name in kernel.parameters if name not in parameters]
        if missing:
            raise InputError(
                table.folder, f"config {entry.id} lacks the parameter {missing[0]} of {kernel.name}"
            )
        variant = translation.variant if translation else entry.variant
        if variant not in kernel.variants:
            raise InputError(
                table.folder,
                f"config {entry.id} has variant {shown(variant)}; known: {', '.join(kernel.variants)}",
            )
        config = Config(variant, tuple((name, parameters[name]) for name in kernel.parameters))
        if config in configs:
            raise InputError(
                table.folder,
                f"configs {configs[config]} and {entry.id} differ only in parameters unknown to the spec",
            )
        configs[config] = entry.id
    return columns, tuple(configs)


def _feature_values(
    kernel: KernelSpec, device: DeviceSpec, columns: Mapping[str, npt.NDArray[np.int64]], folder: Path
) -> dict[str, npt.NDArray[np.int64]]:
    """Every feature the table measures, or that follows from what it measures.

    A derived feature may also be a column itself: a foreign table can hold an average without its parts.
    """
    values = {name: columns[name] for name in (*kernel.features, *kernel.derived) if name in columns}
    for name, expression in kernel.derived.items():
        if not expr.names(expression) - set(device.limits) <= set(values):
            continue
        results = _evaluated(expression, device, values, len(next(iter(columns.values()))))
        if any(result.bit_length() > 62 for result in results):
            raise InputError(folder, f"derived feature {name} grows beyond 62 bits on a measured scenario")
        computed = np.array(results, dtype=np.int64)
        if name in values and (values[name] != computed).any():
            raise InputError(
                folder, f"column {name} is not what the spec derives from the table's other columns"
            )
        values[name] = computed
    return values


def _evaluated(
    expression: expr.Expression,
    device: DeviceSpec,
    values: Mapping[str, npt.NDArray[np.int64]],
    scenarios: int,
) -> list[int]:
    """An expression's value in every scenario."""
    parts = {name: values[name].tolist() for name in expr.names(expression) - set(device.limits)}
    rows = ({name: part[i] for name, part in parts.items()} for i in range(scenarios))
    return [expr.evaluate(expression, {**device.limits, **row}) for row in rows]


def _weights(
    kernel: KernelSpec, device: DeviceSpec, table: Table, values: Mapping[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    """[scenarios] how much each counts."""
    expression = kernel.objective.weight
    for name in sorted(expr.names(expression) - set(device.limits)):
        if name not in values:
            raise InputError(
                table.folder, f"does not hold {name}, which weighs the scenarios of {kernel.name}"
            )
    weights = _evaluated(expression, device, values, len(table.scenarios))
    for scenario, weight in zip(table.scenarios, weights, strict=True):
        if not 1 <= weight <= GREATEST_WEIGHT:
            what = f"scenario {scenario} gets the weight {shown(weight)}"
            raise InputError(table.folder, f"{what}; a weight is a whole number from 1 to {GREATEST_WEIGHT}")
    return np.array(weights, dtype=np.int64)


def _allowed(
    kernel: KernelSpec,
    device: DeviceSpec,
    configs: tuple[Config, ...],
    values: Mapping[str, npt.NDArray[np.int64]],
    scenarios: int,
) -> npt.NDArray[np.bool_]:
    """[scenarios, configs] whether every constraint that the table's features can tell holds."""
    allowed = np.ones((scenarios, len(configs)), dtype=bool)
    for constraint in kernel.constraints:
        needed = (expr.names(constraint.left) | expr.names(constraint.right)) & {
            *kernel.features,
            *kernel.derived,
        }
        if not needed <= set(values):
            continue
        parts = sorted(needed)
        shapes, which = np.unique(
            np.stack([values[name] for name in parts] or [np.zeros(scenarios, np.int64)], axis=1),
            axis=0,
            return_inverse=True,
        )
        for c, config in enumerate(configs):
            if not constraint.binds(config):
                continue
            fixed = {**device.limits, **dict(config.parameters)}
            verdicts = np.array(
                [
                    holds(constraint, {**fixed, **dict(zip(parts, row, strict=False))})
                    for row in shapes.tolist()
                ]
            )
            allowed[:, c] &= verdicts[which.ravel()]
    return allowed


def _price(
    table: Table, allowed: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Costs, and [scenarios] whether the table tells which allowed config is best there."""
    times = median_times(table)
    finite = np.isfinite(times)
    cost = np.full(times.shape, FORBIDDEN, dtype=np.int64)
    if table.cells is Cells.WINNERS:
        least = np.min(np.where(finite, times, np.inf), axis=1, keepdims=True, initial=np.inf)
        winner = finite & (times == least)
        launchable = allowed & ~np.isinf(times)
        cost[launchable] = np.where(winner, 0, UNIT)[launchable]
        return cost, np.asarray((winner & allowed).any(axis=1))
    usable = finite & allowed
    best = np.min(np.where(usable, times, np.inf), axis=1, keepdims=True, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        slowdown = np.log(times / best)
    cost[allowed & np.isnan(times)] = UNMEASURED
    cost[usable] = np.rint(slowdown[usable] * UNIT).astype(np.int64)
    return cost, np.asarray(usable.any(axis=1))

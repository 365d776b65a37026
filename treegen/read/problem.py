"""A problem from a table and the spec: translated names, computed features, weights and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tuning_table
from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.launches import as_columns, fitting, with_derived
from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNTIMED, Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec, Translation, is_model
from treegen.core.table import Cells, Table, median_times
from tuning_table.table import MOST_WITHOUT, Cell, RecordedTable


def read_table(folder: Path) -> Table:
    """The table in `folder`.

    Raises InputError, naming file and row, for anything missing, malformed or contradictory.
    """
    return as_table(folder, tuning_table.read(folder))


def as_table(folder: Path, recorded: RecordedTable) -> Table:
    """What was read from a folder as arrays; scenarios that no row reached are left out."""
    header, ids = recorded.header, [config.id for config in recorded.header.configs]
    reached = {visit.scenario for visit in recorded.visits}
    scenarios = [scenario for scenario in recorded.scenarios if scenario in reached]
    position = {scenario: i for i, scenario in enumerate(scenarios)}
    return Table(
        folder=folder,
        kernel=header.kernel,
        device_name=header.device_name,
        cells=header.cells,
        feature_names=header.features,
        configs=header.configs,
        scenarios=tuple(scenarios),
        features=np.array([recorded.scenarios[scenario] for scenario in scenarios], dtype=np.int64),
        row_scenario=np.array([position[visit.scenario] for visit in recorded.visits], dtype=np.int64),
        row_repeat=np.array([visit.repeat for visit in recorded.visits], dtype=np.int64),
        times=np.array([[_time(visit.cells.get(config)) for config in ids] for visit in recorded.visits]),
        listed=len(recorded.scenarios),
        provenance=header.provenance,
        words=header.words,
    )


def _time(cell: Cell | None) -> float:
    """Microseconds; NaN if the config was not measured, and inf if it failed."""
    return math.nan if cell is None else cell if isinstance(cell, float) else math.inf


Columns = Mapping[str, npt.NDArray[np.int64]]  # [scenarios] values by feature


def build_problem(kernel: KernelSpec, device: DeviceSpec, table: Table) -> Problem:
    """The problem of a table, seen through a kernel and a device of the spec.

    Raises InputError where table and spec contradict each other.
    """
    translation = _translation(kernel, table)
    values = _feature_values(kernel, device, _columns(kernel, table, translation), table.folder)
    known = {**device.limits, **as_columns(values)}
    _check_invariants(kernel, table, known)
    configs = _configs(kernel, table, translation)
    split_on = tuple(name for name in kernel.split_on if name in values)
    if kernel.split_on and not split_on:
        raise InputError(table.folder, f"has no column of `split_on` of {kernel.name}")
    weight = _weights(kernel, table, known)
    allowed = _allowed(kernel, device, configs, values)
    times = median_times(table)
    compared = _compared(table, times)
    if not compared.any():
        what = "no scenario has a time or a failure of two configs, so there is nothing to compare"
        raise InputError(table.folder, f"{what}. Tune for longer")
    cost, has_best = _costs(table, times, allowed)
    has_best &= compared
    if not has_best.any():
        what = f"the constraints of {kernel.name} leave no scenario with a config to choose"
        raise InputError(table.folder, what)
    # Folds go by position, so the order must depend on content alone, not on the order of the files.
    by_config = sorted(range(len(configs)), key=lambda c: configs[c])
    cost, allowed = cost[:, by_config], allowed[:, by_config]
    features = np.stack(list(values.values()), axis=1)
    order = np.lexsort(np.concatenate([features, cost], axis=1).T[::-1])
    kept = order[has_best[order]]
    return Problem(
        kernel,
        device,
        table,
        names=tuple(values),
        split_on=split_on,
        features=features[kept],
        configs=tuple(configs[c] for c in by_config),
        cost=cost[kept],
        allowed=allowed[kept],
        left_out=table.all_failed + int(np.sum(~has_best)),
        uncompared=int(np.sum(~compared)),
        all_forbidden=int(np.sum(compared & ~allowed.any(axis=1))),
        without_time=table.all_failed
        + int(np.sum(compared & allowed.any(axis=1) & ~np.isfinite(times).any(axis=1))),
        scenarios=tuple(table.scenarios[row] for row in kept),
        weight=weight[kept],
        table_columns=tuple(by_config),
    )


def spec_problem(kernel: KernelSpec, device: DeviceSpec, table: Table) -> Problem:
    """`build_problem` for a table that the spec names for a device. Raises InputError for another GPU's."""
    refuse_other_gpu(kernel, device, table)
    return build_problem(kernel, device, table)


def refuse_other_gpu(kernel: KernelSpec, device: DeviceSpec, table: Table) -> None:
    """Raise InputError if another GPU ran a device's table, and the spec does not state that it is meant."""
    stated, name = kernel.measured_on.get(device.key), table.device_name
    if stated is not None and stated != name:
        raise InputError(table.folder, f"was measured on {shown(name)}; the spec states {shown(stated)}")
    if stated is None and device.names and not any(is_model(name, model) for model in device.names):
        meant = f"{device.key}: {{folder: ..., measured_on: {name}}}"
        what = f"was measured on {shown(name)}, which is no name of {device.key}"
        raise InputError(table.folder, f"{what}. If that is meant, write `{meant}` under tables")


def refuse_failing(problem: Problem) -> None:
    """Raise InputError if no config has a time in more than MOST_WITHOUT of the measured scenarios."""
    without, scenarios = problem.without_time, len(problem.cost) + problem.left_out
    if without > MOST_WITHOUT * scenarios:
        what = f"no config has a time in {without:,} of {scenarios:,} scenarios; failures.csv may say why"
        raise InputError(problem.table.folder, f"{what}. Leave out shapes that the kernel cannot run")


def _translation(kernel: KernelSpec, table: Table) -> Translation | None:
    """The spec's translation of the table; None for a table of the kernel itself that needs none."""
    translation = kernel.translations.get(table.kernel)
    if translation is None and table.kernel != kernel.name:
        what = f"the kernel {shown(table.kernel)}, which the spec does not translate for {kernel.name}"
        raise InputError(table.folder, f"measured {what}")
    rename = kernel.renamed(table.kernel)
    given = [*table.feature_names, *table.configs[0].parameters]
    if absent := [name for name in rename if name not in given]:
        what = f"{shown(absent[0])}, which the spec translates; it has {', '.join(sorted(given))}"
        raise InputError(table.folder, f"has no {what}")
    names = [rename.get(name, name) for name in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(table.folder, f"has two columns called {twice[0]} once its words are translated")
    return translation


def _columns(kernel: KernelSpec, table: Table, translation: Translation | None) -> Columns:
    rename = kernel.renamed(table.kernel)
    columns = {}
    for place, column in enumerate(table.feature_names):
        name = rename.get(column, column)
        columns[name] = table.features[:, place]
        if name in kernel.features or name in kernel.derived:  # words of other columns need no integers
            values = _spec_integers(kernel, table, column, name, columns[name].tolist())
            columns[name] = np.array(values, np.int64)
    if translation is None:
        _refuse_other_names(kernel, table.folder, list(columns))
    for name, value in (translation.constants if translation else {}).items():
        if name in columns:
            raise InputError(table.folder, f"has a column {name}, which the spec says it leaves out")
        columns[name] = np.full(len(table.scenarios), value, dtype=np.int64)
    return columns


def _refuse_other_names(kernel: KernelSpec, folder: Path, columns: Sequence[str]) -> None:
    """Raise InputError if the table lacks a feature and has a column that the spec lacks: one is misspelt."""
    unknown = [name for name in columns if name not in kernel.features and name not in kernel.derived]
    parts = [expr.names(kernel.derived[name]) for name in columns if name in kernel.derived]
    missing = [name for name in kernel.features if name not in {*columns, *frozenset().union(*parts)}]
    if unknown and missing:
        what = f"has a column {unknown[0]}, which is no feature of {kernel.name}, and none for {missing[0]}"
        raise InputError(folder, what)


def _spec_integers(
    kernel: KernelSpec, table: Table, column: str, name: str, values: Sequence[int]
) -> Sequence[int]:
    """A table's integers as the spec's, where they stand for words.

    A parameter's integer without a word stands for itself.

    column: a feature or parameter, as the table calls it. name: as the spec calls it.
    """
    own = kernel.values.get(name, {})
    by_word = {word: number for number, word in own.items()}
    words = table.words.get(column, {})
    # Where the spec has a word for an absent parameter, no value of the table may be taken for it.
    if not words and not (name in kernel.parameters and "absent" in by_word):
        return values
    for word in words.values():
        if word not in by_word:
            hint = f"; known: {', '.join(by_word)}" if by_word else f" {name}: [{', '.join(words.values())}]"
            what = f"column {column} has the word {shown(word)}, which `values` of {kernel.name} must name"
            raise InputError(table.folder, f"{what}{hint}")
    for number in values:
        if number not in words and (name not in kernel.parameters or number in own):
            what = f"column {column} has the value {shown(number)}, but names {len(words)} words"
            raise InputError(table.folder, what)
    return [by_word[words[number]] if number in words else number for number in values]


def _configs(kernel: KernelSpec, table: Table, translation: Translation | None) -> tuple[Config, ...]:
    rename = kernel.renamed(table.kernel)
    defaults = {n: p.default for n, p in kernel.parameters.items() if p.default is not None}
    columns: dict[str, Sequence[int]] = {}
    for column in table.configs[0].parameters:
        if (name := rename.get(column, column)) in kernel.parameters:
            values = [entry.parameters[column] for entry in table.configs]
            columns[name] = _spec_integers(kernel, table, column, name, values)
    configs: dict[Config, str] = {}
    for place, entry in enumerate(table.configs):
        parameters = defaults | {name: values[place] for name, values in columns.items()}
        if missing := [name for name in kernel.parameters if name not in parameters]:
            what = f"config {entry.id} lacks the parameter {missing[0]} of {kernel.name}"
            raise InputError(table.folder, what)
        variant = translation.variant if translation else entry.variant
        if variant is None and len(kernel.variants) == 1:
            variant = kernel.variants[0]
        if variant not in kernel.variants:
            what = f"config {entry.id} has variant {shown(variant)}; known: {', '.join(kernel.variants)}"
            raise InputError(table.folder, what)
        config = Config(variant, tuple((name, parameters[name]) for name in kernel.parameters))
        if (other := configs.setdefault(config, entry.id)) != entry.id:
            what = f"configs {other} and {entry.id} are equal in all parameters of the spec"
            raise InputError(table.folder, what)
    return tuple(configs)


def _feature_values(kernel: KernelSpec, device: DeviceSpec, columns: Columns, folder: Path) -> Columns:
    """Every feature that the table measures, or that follows from what it measures.

    A derived feature can also be a column itself: a foreign table can hold an average without its parts.
    """
    count = len(next(iter(columns.values())))
    values = {name: columns[name] for name in (*kernel.features, *kernel.derived) if name in columns}
    found = with_derived(kernel, device.limits, as_columns(values))
    for name in kernel.derived:
        if name in found:
            computed = np.broadcast_to(found[name], count).tolist()
            if any(value.bit_length() > 62 for value in computed):
                raise InputError(folder, f"the derived feature {name} grows beyond 62 bits on a scenario")
            if name in values and values[name].tolist() != computed:
                what = f"column {name} is not what the spec derives from the table's other columns"
                raise InputError(folder, what)
            values[name] = np.array(computed, dtype=np.int64)
    return values


def _check_invariants(kernel: KernelSpec, table: Table, known: Mapping[str, Any]) -> None:
    """Refuse a table with a shape that breaks an invariant: the table or the spec is wrong.

    known: the limits of the device, and the columns of features.
    """
    for rule in kernel.invariants:
        if rule.names <= known.keys():
            held = np.asarray(expr.evaluate_columns(rule.test, known), dtype=np.bool_)
            held = np.broadcast_to(held, len(table.scenarios))
            if not held.all():
                what = f"scenario {table.scenarios[held.argmin()]} breaks the invariant {shown(rule.text)}"
                raise InputError(table.folder, f"{what} of {kernel.name} (line {rule.line} of the spec)")


def _weights(kernel: KernelSpec, table: Table, known: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """[scenarios] how much each counts. known: as of `_check_invariants`."""
    if missing := sorted(expr.names(kernel.weight) - known.keys()):
        what = f"does not hold {missing[0]}, which weighs the scenarios of {kernel.name}"
        raise InputError(table.folder, what)
    weights = np.broadcast_to(expr.evaluate_columns(kernel.weight, known), len(table.scenarios))
    for scenario, weight in zip(table.scenarios, weights.tolist(), strict=True):
        if not 1 <= weight <= GREATEST_WEIGHT:
            what = f"scenario {scenario} gets the weight {shown(weight)}"
            raise InputError(table.folder, f"{what}; a weight is a whole number from 1 to {GREATEST_WEIGHT}")
    return weights.astype(np.int64)


def _allowed(
    kernel: KernelSpec, device: DeviceSpec, configs: tuple[Config, ...], values: Columns
) -> npt.NDArray[np.bool_]:
    """[scenarios, configs] whether all constraints hold that the table's features decide."""
    asked = sorted({name for rule in kernel.constraints for name in rule.names & values.keys()} or values)
    # Many scenarios share a point.
    columns = np.stack([values[name] for name in asked], axis=1)
    points, which = np.unique(columns, axis=0, return_inverse=True)
    known = {**device.limits, **as_columns(dict(zip(asked, points.T, strict=True)))}
    allowed = [fitting(kernel, config, known, len(points)) for config in configs]
    return np.stack(allowed, axis=1)[which.ravel()]


def _compared(table: Table, times: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """[scenarios] whether the table compares configs there: two have a time or failed, or all there are.

    The only time of a scenario says nothing of its config. A winner was compared by whoever named it.
    """
    if table.cells is Cells.WINNERS:
        return np.ones(len(times), dtype=bool)
    return np.asarray((~np.isnan(times)).sum(axis=1) >= min(2, len(table.configs)))


def _costs(
    table: Table, times: npt.NDArray[np.float64], allowed: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """[scenarios, configs] costs, and [scenarios] whether the table knows the best config that is allowed."""
    finite, winners = np.isfinite(times), table.cells is Cells.WINNERS
    usable = finite & allowed
    best = np.min(np.where(finite if winners else usable, times, np.inf), axis=1, keepdims=True)
    cost = np.full(times.shape, FORBIDDEN, dtype=np.int64)
    if winners:
        winner = finite & (times == best)
        launchable = allowed & ~np.isinf(times)
        cost[launchable] = np.where(winner, 0, UNIT)[launchable]
        return cost, np.asarray((winner & allowed).any(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        slowdown = np.log(times / best)
    cost[allowed & np.isnan(times)] = UNTIMED
    cost[usable] = np.rint(slowdown[usable] * UNIT).astype(np.int64)
    return cost, np.asarray(usable.any(axis=1))

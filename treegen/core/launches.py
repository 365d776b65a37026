"""What a module launches for many shapes at once: `heuristic.choose` over columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.heuristic import Heuristic, Split, StepTree
from treegen.core.problem import Problem
from treegen.core.spec import Config, KernelSpec, ModelClass, Regime

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]
"""By feature, [shapes] Python's own integers (dtype object), so that nothing overflows."""

UNKNOWN = -1
ABSENT = -1
"""Stands for a config that a problem lacks."""


class Launches(NamedTuple):
    """What is launched for shapes; UNKNOWN where a feature that is asked about has no value."""

    configs: tuple[Config, ...]  # that may be launched, the fallback first
    config: Ints  # [shapes] places in `configs`
    regime: Ints  # [shapes] places in the heuristic's regimes
    row: Ints  # [shapes]
    kind: Ints  # [shapes] places in the kernel's classes

    def place(self, kernel: KernelSpec, heuristic: Heuristic, shape: int) -> str:
        """The cell of a shape, such as `decode, row 5, fp8_256`; the class only where there are several."""
        if not heuristic.regimes:
            return "the fallback"
        name, row = heuristic.regimes[self.regime[shape]].name, int(self.row[shape])
        of_class = f", {kernel.classes[self.kind[shape]].name}" if len(kernel.classes) > 1 else ""
        return f"{name}, row {row}{of_class}"


def as_columns(values: Mapping[str, Sequence[int] | Ints]) -> dict[str, npt.NDArray[Any]]:
    """Integers as columns."""
    return {name: np.array(column, dtype=object) for name, column in values.items()}


def with_derived(kernel: KernelSpec, limits: Mapping[str, int], columns: Columns) -> dict[str, Any]:
    """The columns, limits, and derived features that follow; what cannot be computed stays a column."""
    result: dict[str, Any] = {**columns, **limits}
    for name, formula in kernel.derived.items():
        if expr.names(formula) <= result.keys():
            result[name] = expr.evaluate_columns(formula, result)
    return result


def launches(
    kernel: KernelSpec, limits: Mapping[str, int], heuristic: Heuristic, columns: Columns, count: int
) -> Launches:
    """What a module launches for `count` shapes.

    columns: raw features, and derived ones that cannot be computed from these. The module's own derived
    features, regimes, classes, constraints and fallback decide.
    """
    configs = (kernel.fallback, *(c for c in heuristic.configs if c != kernel.fallback))
    place = {config: number for number, config in enumerate(configs)}
    if not heuristic.regimes:
        zeros = np.zeros(count, dtype=np.int64)
        return Launches(configs, zeros, zeros, zeros, zeros)
    known = with_derived(kernel, limits, columns)
    shapes = {n: np.broadcast_to(np.array(column, dtype=object), count) for n, column in known.items()}
    kind, regime_of = first_of(kernel.classes, shapes, count), first_of(kernel.regimes, shapes, count)
    config, row_of = np.full(count, UNKNOWN), np.full(count, UNKNOWN)
    names = [regime.name for regime in heuristic.regimes]
    numbers = np.array([names.index(regime.name) for regime in kernel.regimes] + [UNKNOWN])
    regime_of = numbers[regime_of]
    for number, regime in enumerate(heuristic.regimes):
        for row, rows in leaves(regime.tree, np.flatnonzero(regime_of == number), shapes):
            row_of[rows] = row
            for k, entry in enumerate(kernel.classes):
                left = rows[kind[rows] == k]
                config[left] = 0
                for candidate in regime.rows[row].candidates(entry.name):
                    if not len(left):
                        break
                    values = {n: column[left] for n, column in shapes.items()}
                    fits = fitting(kernel, candidate, values, len(left))
                    config[left[fits]] = place[candidate]
                    left = left[~fits]
    return Launches(configs, config, regime_of, row_of, kind)


def fitting(
    kernel: KernelSpec, config: Config, columns: Mapping[str, Any], count: int
) -> npt.NDArray[np.bool_]:
    """[shapes] whether a config meets all constraints that the known values decide, as `heuristic.fits`.

    columns: as of `with_derived`.
    """
    fits = np.ones(count, dtype=np.bool_)
    values = {**columns, **dict(config.parameters)}
    for rule in kernel.constraints:
        if rule.binds(config) and rule.names <= values.keys():
            fits &= np.asarray(expr.evaluate_columns(rule.test, values), dtype=np.bool_)
    return fits


def first_of(entries: Sequence[Regime | ModelClass], columns: Columns, count: int) -> Ints:
    """[shapes] the place of the first entry whose condition holds; UNKNOWN where one cannot be decided."""
    place, left = np.full(count, UNKNOWN), np.arange(count)
    for number, entry in enumerate(entries):
        if entry.when is None:
            place[left] = number
            break
        if not expr.names(entry.when) <= columns.keys():
            break
        values = {name: np.broadcast_to(columns[name], count)[left] for name in expr.names(entry.when)}
        holds = np.asarray(expr.evaluate_columns(entry.when, values), dtype=np.bool_)
        holds = np.broadcast_to(holds, len(left))
        place[left[holds]] = number
        left = left[~holds]
    return place


def leaves(tree: StepTree, shapes: Ints, columns: Columns) -> Iterator[tuple[int, Ints]]:
    """The shapes of each row; those about which a question cannot be answered are in none."""
    if not isinstance(tree, Split):
        yield tree, shapes
    elif tree.feature in columns:
        low = np.asarray(columns[tree.feature][shapes] <= tree.threshold, dtype=np.bool_)
        yield from leaves(tree.low, shapes[low], columns)
        yield from leaves(tree.high, shapes[~low], columns)


def columns_in(problem: Problem, configs: tuple[Config, ...], chosen: Ints) -> Ints:
    """[choices] columns of the problem's configs, or ABSENT. chosen: [choices] places in `configs`."""
    place = {config: column for column, config in enumerate(problem.configs)}
    columns: Ints = np.array([*(place.get(problem.kernel.own(config), ABSENT) for config in configs), ABSENT])
    return columns.take(np.where(chosen == UNKNOWN, len(configs), chosen))

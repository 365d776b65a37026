"""The shape to explain: the given features, those that follow, and those taken from a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem, broken_invariant
from treegen.core.spec import DeviceSpec, KernelSpec
from treegen.review.explain.feature_space import feature_space
from treegen.review.modules import BITS


@dataclass(frozen=True)
class CompletedShape:
    """A value for every known feature."""

    values: Mapping[str, int]  # in the spec's order
    given: tuple[str, ...]  # by the user
    assumed: tuple[str, ...]  # taken from the scenario `source`
    source: str | None
    not_in_table: tuple[str, ...]  # features that the table neither holds nor implies


def complete(given: Mapping[str, int], problem: Problem) -> CompletedShape:
    """Find a value for at least every feature that the table holds.

    A feature that is neither given nor implied comes from the scenario that is nearest in the known features.
    If several are equally near, it comes from the one nearest to their medians. A scenario with which the
    shape breaks an invariant is passed over. Raises InputError for a feature that is unknown or follows from
    others, and for a shape that breaks an invariant.
    """
    kernel, device = problem.kernel, problem.device
    for name, value in given.items():
        _check_name(name, value, problem)
    known = _with_implied(given, kernel, device, "")
    if (broken := broken_invariant(kernel, device, known)) is not None:
        shape = " ".join(f"{name}={value}" for name, value in given.items())
        raise InputError(shape, f"no shape is like this, as it breaks the invariant {shown(broken.text)}")
    assumed: tuple[str, ...] = ()
    source = None
    if any(name not in known for name in independent(problem)):
        known, assumed, row = _nearest_possible(known, problem)
        source = problem.scenarios[row]
    order = [*kernel.features, *kernel.derived]
    return CompletedShape(
        {name: known[name] for name in order if name in known},
        tuple(name for name in order if name in given),
        assumed,
        source,
        tuple(name for name in order if name not in problem.names),
    )


def _nearest_possible(
    known: Mapping[str, int], problem: Problem
) -> tuple[dict[str, int], tuple[str, ...], int]:
    """The shape completed from the nearest scenario whose features break no invariant beside the known ones.

    Returns all features, the names of those that were taken, and the scenario's row.
    """
    kernel, device, needed = problem.kernel, problem.device, independent(problem)
    for row in _nearest_first(known, problem):
        values, assumed = dict(known), []
        # Raw features first: together with the given ones they may imply a derived column of the table.
        for part in (kernel.features, tuple(kernel.derived)):
            added = [name for name in part if name in needed and name not in values]
            taken = {name: int(problem.column(name)[row]) for name in added}
            where = f" with the features taken from {problem.scenarios[row]}"
            values = _with_implied({**values, **taken}, kernel, device, where)
            assumed += added
        broken = broken_invariant(kernel, device, values)
        if broken is None:
            return values, tuple(assumed), row
    shape = " ".join(f"{name}={value}" for name, value in known.items() if name not in kernel.derived)
    assert broken is not None  # a problem has a row
    what = f"breaks an invariant with every scenario's other features, such as {shown(broken.text)}"
    raise InputError(shape, what)


def independent(problem: Problem) -> tuple[str, ...]:
    """The features that the table holds and that do not follow from its others."""
    kernel, device, held = problem.kernel, problem.device, set(problem.names)
    return tuple(n for n in problem.names if n not in kernel.derived or not _parts(n, kernel, device) <= held)


def _parts(name: str, kernel: KernelSpec, device: DeviceSpec) -> frozenset[str]:
    return expr.names(kernel.derived[name]) - set(device.limits)


def _check_name(name: str, value: int, problem: Problem) -> None:
    kernel, allowed = problem.kernel, independent(problem)
    if name in kernel.features or name in allowed:
        return
    if name not in kernel.derived:
        known = [*kernel.features, *(n for n in allowed if n in kernel.derived)]
        raise InputError(shown(name), f"unknown feature; known: {', '.join(known)}")
    formula = expr.to_text(kernel.derived[name])
    parts = ", ".join(kernel.raw_parts([name]))
    raise InputError(f"{name}={value}", f"follows from {formula}; give {parts or 'other features'} instead")


def _with_implied(
    known: Mapping[str, int], kernel: KernelSpec, device: DeviceSpec, where: str
) -> dict[str, int]:
    """The known features and all that follow from them."""
    values = dict(known)
    for name, expression in kernel.derived.items():
        if not _parts(name, kernel, device) <= set(values):
            continue
        value = expr.evaluate(expression, {**device.limits, **values})
        formula = expr.to_text(expression)
        if value.bit_length() > BITS:
            raise InputError(name, f"{formula} grows beyond {BITS} bits{where}")
        if values.setdefault(name, value) != value:
            raise InputError(f"{name}={values[name]}", f"{formula} is {value}{where}; give only one of them")
    return values


def _nearest_first(known: Mapping[str, int], problem: Problem) -> Iterator[int]:
    """The rows of the problem, nearest first; of equally near ones, first those near to their median."""
    names = [name for name in problem.names if name in known]
    if not names:
        choice = ", ".join(independent(problem))
        raise InputError(problem.table.folder, f"holds none of the given features; give one of {choice}")
    space = feature_space(problem, names)
    distances = space.distances(space.at(known))
    all_points = feature_space(problem).points
    for distance in np.unique(distances):
        tied = np.flatnonzero(distances == distance)
        points = all_points[tied]
        from_median = ((points - np.median(points, axis=0)) ** 2).sum(axis=1)
        yield from tied[np.argsort(from_median.round(6), kind="stable")].tolist()

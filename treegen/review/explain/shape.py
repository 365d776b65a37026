"""The shape to explain: what was given, what follows from it, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core import expr
from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem
from treegen.core.spec import DeviceSpec, KernelSpec
from treegen.review.explain.request import BITS
from treegen.review.explain.space import space_of


@dataclass(frozen=True)
class Shape:
    """values: every feature that is known, in the spec's order. given: those that the user gave. assumed:
    those taken from the scenario `source`. unheld: features that the table neither holds nor implies."""

    values: Mapping[str, int]
    given: tuple[str, ...]
    assumed: tuple[str, ...]
    source: str | None
    unheld: tuple[str, ...]


def complete(given: Mapping[str, int], problem: Problem) -> Shape:
    """A value for every feature that the table holds, at least.

    What is neither given nor follows comes from the scenario that is nearest in what is known; of several,
    from the one nearest to their medians. Raises InputError for features that may not be given.
    """
    kernel, device = problem.kernel, problem.device
    for name, value in given.items():
        _check_known(name, value, problem)
    known = _closed(given, kernel, device, "")
    order = [*kernel.features, *kernel.derived]
    needed = independent(problem)
    assumed: list[str] = []
    source = None
    if any(name not in known for name in needed):
        row = _nearest(known, problem)
        source = problem.scenarios[row]
        # Raw features first: with what is given they may imply a column that has no other parts in the table.
        for part in (kernel.features, tuple(kernel.derived)):
            added = [name for name in part if name in needed and name not in known]
            taken = {name: int(problem.column(name)[row]) for name in added}
            known = _closed({**known, **taken}, kernel, device, f" with what was taken from {source}")
            assumed += added
    return Shape(
        {name: known[name] for name in order if name in known},
        tuple(name for name in order if name in given),
        tuple(assumed),
        source,
        tuple(name for name in order if name not in problem.names),
    )


def independent(problem: Problem) -> tuple[str, ...]:
    """The features that the table holds and that do not follow from its others."""
    return tuple(name for name in problem.names if not _follows(name, problem))


def _follows(name: str, problem: Problem) -> bool:
    if name not in problem.kernel.derived:
        return False
    return _parts(name, problem.kernel, problem.device) <= set(problem.names)


def raw_parts(name: str, kernel: KernelSpec) -> tuple[str, ...]:
    """The raw features that a feature comes from, in the spec's order; a raw one comes from itself."""
    found: set[str] = set()
    waiting = {name}
    while waiting:
        part = waiting.pop()
        waiting |= expr.names(kernel.derived[part]) if part in kernel.derived else set()
        found.add(part)
    return tuple(feature for feature in kernel.features if feature in found)


def _parts(name: str, kernel: KernelSpec, device: DeviceSpec) -> frozenset[str]:
    return expr.names(kernel.derived[name]) - set(device.limits)


def _check_known(name: str, value: int, problem: Problem) -> None:
    kernel = problem.kernel
    if name in kernel.features or name in independent(problem):
        return
    if name not in kernel.derived:
        known = [*kernel.features, *(n for n in independent(problem) if n in kernel.derived)]
        raise InputError(shown(name), f"unknown feature; known: {', '.join(known)}")
    formula = expr.to_text(kernel.derived[name])
    parts = ", ".join(raw_parts(name, kernel))
    raise InputError(f"{name}={value}", f"follows from {formula}; give {parts or 'other features'} instead")


def _closed(known: Mapping[str, int], kernel: KernelSpec, device: DeviceSpec, where: str) -> dict[str, int]:
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


def _nearest(known: Mapping[str, int], problem: Problem) -> int:
    names = [name for name in problem.names if name in known]
    if not names:
        choice = ", ".join(independent(problem))
        raise InputError(problem.table.folder, f"holds none of the given features; give one of {choice}")
    there = space_of(problem, names)
    distances = there.distances(there.at(known))
    tied = np.flatnonzero(distances == distances.min())
    points = space_of(problem).points[tied]
    from_middle = ((points - np.median(points, axis=0)) ** 2).sum(axis=1)
    return int(tied[np.argmin(from_middle.round(6))])

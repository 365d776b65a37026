"""The values that features can have in a region of a tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from treegen.core import expr
from treegen.core.interval import Interval, enclosure, intersection, interval, is_empty
from treegen.core.spec import KernelSpec
from treegen.core.tree import Region

_MOST_EVALUATIONS = 4096  # of definitions, to find a feature's values; with more, they are enclosed

Definitions = tuple[tuple[str, expr.Expression], ...]


def feature_intervals(region: Region, kernel: KernelSpec, known: Mapping[str, int]) -> dict[str, Interval]:
    """The values of every feature in a region; an empty interval if the region holds no shape.

    A derived feature is narrowed to what its definition gives. It is left out if that needs a limit that is
    not in `known`.
    """
    box = {name: interval(*region.get(name, (None, None))) for name in kernel.features}
    definitions: dict[str, expr.Expression] = {}
    for name, expression in kernel.derived.items():
        definition = expr.substitute(expression, known)
        bounds = interval(*region.get(name, (None, None)))
        if any(map(is_empty, box.values())):
            box[name] = bounds
        elif expr.names(definition) <= box.keys():
            definitions[name] = definition
            parts = expr.with_parts([name], definitions)
            values = enclosure(definition, box)
            if exact := _values(
                tuple((n, d) for n, d in definitions.items() if n in parts),
                tuple((n, box[n]) for n in kernel.features if n in parts),
            ):
                values = intersection(values, exact)
            box[name] = intersection(bounds, values)
    return box


@lru_cache(maxsize=4096)  # leaves that differ in other features ask for the same
def _values(definitions: Definitions, box: tuple[tuple[str, Interval], ...]) -> Interval | None:
    """The least and the greatest value of the last feature in a box; None if it has too many points.

    An enclosure is wider: each occurrence of a name varies independently there, as in `x - x // 64 * 64`.
    """
    if math.prod(last - first + 1 for _, (first, last) in box) * len(definitions) > _MOST_EVALUATIONS:
        return None
    found = []
    for point in product(*(range(int(first), int(last) + 1) for _, (first, last) in box)):
        values = {name: value for (name, _), value in zip(box, point, strict=True)}
        for name, definition in definitions:
            values[name] = expr.evaluate(definition, values)
        found.append(values[definitions[-1][0]])
    return min(found), max(found)

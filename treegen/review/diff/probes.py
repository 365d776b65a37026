"""Where two modules launch other configs, measured or not.

Rows and conditions that are equal launch the same for every integer. All else is compared in the scenarios,
at random shapes, and on both sides of each place where either module's choice changes along a feature's axis.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from treegen.core.launches import UNKNOWN, Columns, Launches, as_columns, launches
from treegen.core.problem import Problem, broken_invariant
from treegen.core.spec import KernelSpec
from treegen.crossval.score import Ints
from treegen.review.modules import Module, numbers

_BASES = 16  # scenarios from which every feature is moved
_RANDOM = 4096
_KEPT = 20  # shapes of one comparison that are kept as examples
_RUNGS = {round(2 ** (step / 4)) for step in range(4 * 31)} | {-1, 0}

Shape = Mapping[str, int]


def other_config(kernel: KernelSpec, old: Launches, new: Launches) -> npt.NDArray[np.bool_]:
    """[shapes] whether two modules launch other configs of a kernel; not where one cannot be asked."""
    configs = [[kernel.own(config) for config in side.configs] for side in (old, new)]
    names = {config: number for number, config in enumerate(dict.fromkeys([*configs[0], *configs[1]]))}
    numbers = [np.array([names[config] for config in side]) for side in configs]
    differ = numbers[0][old.config] != numbers[1][new.config]
    return np.asarray(differ & (old.config != UNKNOWN) & (new.config != UNKNOWN))


def difference(old: Module, new: Module, problem: Problem) -> Shape | None:
    """A shape for which two modules launch other configs; None if none was found.

    problem: its scenarios are where the search begins. Of the shapes found, one that the spec's invariants
    allow comes first.
    """
    features = list(dict.fromkeys([*new.kernel.features, *old.kernel.features]))
    count = len(problem.scenarios)
    known = {
        name: problem.column(name).tolist() if name in problem.names else [1] * count for name in features
    }
    draw, most = random.Random(0), {name: max(1, *column) for name, column in known.items()}
    found: list[Shape] = []

    def choices(shapes: Columns) -> Ints:
        """[shapes, 2] both modules' choices; shapes where they differ are noted."""
        sides = [_asked(module, shapes) for module in (old, new)]
        for place in np.flatnonzero(other_config(new.kernel, *sides))[:_KEPT]:
            found.append({name: int(column[place]) for name, column in shapes.items()})
        return np.stack([side.config for side in sides], axis=1)

    drawn = {
        name: [int(2 ** draw.uniform(0, math.log2(2 * greatest))) for _ in range(_RANDOM)]
        for name, greatest in most.items()
    }
    choices(as_columns(drawn))
    places = sorted({number * (count - 1) // (_BASES - 1) for number in range(_BASES)})
    bases = [{name: column[place] for name, column in known.items()} for place in places]
    bases += [{name: column[place] for name, column in drawn.items()} for place in range(_BASES // 2)]
    near = {number + step for module in (old, new) for number in numbers(module) for step in (-1, 0, 1)}
    rungs = np.array(sorted(_RUNGS | near), dtype=object)
    for axis in features:
        walks = {
            name: np.repeat(as_columns({name: [b[name] for b in bases]})[name], len(rungs))
            for name in features
        }
        walks[axis] = np.tile(rungs, len(bases))
        chosen = choices(walks)
        changes = (chosen[1:] != chosen[:-1]).any(axis=1)
        changes[len(rungs) - 1 :: len(rungs)] = False  # where another walk begins
        ends = np.flatnonzero(changes)
        low, high, start = walks[axis][ends], walks[axis][ends + 1], chosen[ends]
        while len(ends) and (high - low > 1).any():  # two neighbours between which a choice changes
            middle = (low + high) // 2
            at = choices({**{name: column[ends] for name, column in walks.items()}, axis: middle})
            same = (at == start).all(axis=1)
            low, high = np.where(same, middle, low), np.where(same, high, middle)
    return min(found, key=lambda shape: _impossible(new, shape), default=None)


def _asked(module: Module, columns: Columns) -> Launches:
    count = len(next(iter(columns.values())))
    return launches(module.kernel, module.device.limits, module.heuristic, columns, count)


def _impossible(module: Module, shape: Shape) -> bool:
    known = module.kernel.with_derived({**module.device.limits, **shape})
    return broken_invariant(module.kernel, module.device, known) is not None

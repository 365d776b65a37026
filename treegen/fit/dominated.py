"""Which configs a leaf may take at all: the fewer, the faster the fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.problem import Problem, charged


def undominated(problem: Problem) -> npt.NDArray[np.int64]:
    """The indices of all configs but those that another one matches or beats in every single scenario.

    Whatever scenarios a leaf holds, the other one's total there is no higher, so it can stand in. Of equal
    totals a leaf takes the config that is best overall, which is the other one, too.
    """
    cost = charged(problem.cost)
    overall = cost.sum(axis=0)
    kept: list[int] = []
    for c in sorted(range(len(problem.configs)), key=lambda c: (overall[c], problem.configs[c])):
        if not (cost[:, kept] <= cost[:, [c]]).all(axis=0).any():
            kept.append(c)
    return np.array(sorted(kept))

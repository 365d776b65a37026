"""How far the rows of a table differ from one another: Gini impurity when costs are 0 or 1 (Breiman et al.,
Classification and Regression Trees, 1984, section 4.3).

It must tell what is fast apart, not what was measured: a search measures every config in some scenarios and
a few of them in the others. So only configs that were measured nearly everywhere count, compared to the best
of themselves, and a cell of theirs that is missing has no part in any sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.problem import UNIT, UNMEASURED

_STEPS = 1_000
_CAP = 4 * _STEPS
_TENTH = 10

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spread:
    """What `scatter` needs the sums of, over scenarios. cost: [scenarios, configs], in thousandths of a unit;
    square: [scenarios, 1], over all configs; count: cells there are, [scenarios, configs], or [scenarios, 1]
    where none is missing.
    """

    cost: Ints
    square: Ints
    count: Ints


def spread_of(cost: Ints) -> Spread:
    """Of the configs that lack a tenth of the scenarios at most, beyond those that the config lacks that was
    timed most often."""
    known = cost != UNMEASURED
    missing, timed = (~known).sum(axis=0), (cost < UNMEASURED).sum(axis=0)
    unavoidable = missing[timed == timed.max()].min()
    counted = (missing - unavoidable) * _TENTH <= len(cost)
    cost, known = cost[:, counted], known[:, counted]
    # Where more was measured, the best is better and every cost higher: that tells no configs apart.
    least = cost.min(axis=1, keepdims=True)
    capped = np.minimum((cost - np.where(least < UNMEASURED, least, 0)) // (UNIT // _STEPS), _CAP)
    capped[~known] = 0
    count = np.ones_like(least) if known.all() else known.astype(np.int64)
    return Spread(capped, (capped**2).sum(axis=1, keepdims=True), count)


def scatter(total: Ints, square: Ints, count: Ints) -> Ints:
    """[splits] squared distance of rows to their mean row, averaged over configs, from sums of a `Spread`."""
    return np.asarray((square[:, 0] - (total**2 // np.maximum(count, 1)).sum(axis=1)) // total.shape[1])

"""The configs that leaves may take: few, so that the search is fast and near-equals do not take turns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST = 24
_ENOUGH = 1.0005  # stop once another config saves less than this factor of the time


def shortlist(loss: npt.NDArray[np.int64], unit: int) -> npt.NDArray[np.int64]:
    """Columns of loss [rows, configs], the most useful first: each saves most beside those before it.

    Greedy is within 1 - 1/e of the best saving that as many columns can have (Nemhauser, Wolsey, Fisher,
    Mathematical Programming 14, 1978). Of equal savings the column that is better on its own wins, then
    the first. unit: steps of one natural log.
    """
    alone = loss.sum(axis=0)
    rank = np.lexsort([np.arange(loss.shape[1]), alone])
    chosen = [int(rank[0])]
    now = loss[:, chosen[0]].copy()
    least = round(np.log(_ENOUGH) * unit * len(loss))
    while len(chosen) < min(MOST, loss.shape[1]):
        left = np.array([np.minimum(now, loss[:, column]).sum() for column in rank])
        best = int(left.argmin())
        if int(now.sum()) - int(left[best]) <= least:
            break
        chosen.append(int(rank[best]))
        now = np.minimum(now, loss[:, chosen[-1]])
    return np.array(chosen)

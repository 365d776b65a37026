"""The configs that leaves may hold: few, so that the search is fast and near-equals do not alternate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST = 24
_SMALLEST_GAIN = 1.0005  # no further config is taken that saves less than this factor of the time


def shortlist(loss: npt.NDArray[np.int64], unit: int) -> npt.NDArray[np.int64]:
    """Columns of loss [rows, configs], each the one that saves most beside those before it.

    The greedy choice saves at least 1 - 1/e of what the best set of as many columns saves (Nemhauser, Wolsey,
    Fisher, Mathematical Programming 14, 1978). Of equal savings the column of least total loss wins, then the
    first. unit: the steps of one natural log.
    """
    rank = np.lexsort([np.arange(loss.shape[1]), loss.sum(axis=0)])
    chosen = [int(rank[0])]
    now = loss[:, chosen[0]].copy()
    least = round(np.log(_SMALLEST_GAIN) * unit * len(loss))
    while len(chosen) < min(MOST, loss.shape[1]):
        left = np.array([np.minimum(now, loss[:, column]).sum() for column in rank])
        best = int(left.argmin())
        if int(now.sum()) - int(left[best]) <= least:
            break
        chosen.append(int(rank[best]))
        now = np.minimum(now, loss[:, chosen[-1]])
    return np.array(chosen)

"""Rows between measured ones: where a table is thin, no leaf should hang on a single scenario.

Between a scenario and each of its nearest others lies one more row, whose losses are mixed from theirs as
its features are: mixup (Zhang et al., ICLR 2018, section 2) among neighbours. Nothing of this is taken for a
measurement: it only shapes the search, and every tree is judged on what was measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEIGHBOURS = 4
_SHARE = 1 / 3  # of the other scenario; where two are each other's nearest there are rows at both thirds
_FEW = 16  # a feature of so few values is a kind of scenario, not a size: nothing lies between its values
_ENOUGH = 4096  # so many rows need no others


def between(
    features: npt.NDArray[np.int64], loss: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Further rows [rows, columns] of features and losses; none where a table is dense or has no neighbours.

    Features are mixed on the logarithmic scale, all with the same share, which keeps every order among them
    (query tokens stay at least as many as sequences) and every product and ratio.
    """
    pairs = _pairs(features if len(features) <= _ENOUGH else features[:0])
    one, other = pairs.T
    logs = np.log(np.maximum(features, 1))
    mixed = np.rint(np.exp(logs[one] * (1 - _SHARE) + logs[other] * _SHARE)).astype(np.int64)
    ends = np.sort([features[one], features[other]], axis=0)
    mixed = np.clip(mixed, *ends)  # the logarithm is neither exact nor for values below 1
    return mixed, np.rint(loss[one] * (1 - _SHARE) + loss[other] * _SHARE).astype(np.int64)


def _pairs(features: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[pairs, 2] rows and their nearest others of the same kind; distances on the logarithmic scale."""
    kinds = np.array([len(np.unique(column)) <= _FEW for column in features.T])
    _, kind = np.unique(features[:, kinds], axis=0, return_inverse=True)
    # Whole hundredths: ties break by position, the same on every machine.
    points = np.rint(100 * np.log2(np.maximum(features[:, ~kinds], 1))).astype(np.int64)
    found = []
    for group in range(int(kind.max(initial=-1)) + 1):
        rows = np.flatnonzero(kind.ravel() == group)
        for row in rows:
            distance = ((points[rows] - points[row]) ** 2).sum(axis=1)
            nearest = rows[np.argsort(distance, kind="stable")]
            nearest = nearest[(features[nearest] != features[row]).any(axis=1)][:NEIGHBOURS]
            found += [(int(row), int(near)) for near in nearest]
    return np.array(found, dtype=np.int64).reshape(-1, 2)

"""Rows between measured scenarios, so that no leaf of a sparse table depends on a single scenario.

One more row lies between a scenario and each of its nearest neighbours. Its features and losses are mixed
from both, as in mixup (Zhang et al., ICLR 2018, section 2), but among neighbours only. These rows only guide
the search. They never count as measurements: every tree is scored on measured scenarios.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NEIGHBOURS = 4
_SHARE = 1 / 3  # of the neighbour; mutual neighbours get rows at both thirds
_FEW = 16  # a feature with so few values is a kind of scenario; nothing lies between its values
_DENSE = 4096  # a table with more scenarios needs no rows between them


def interpolate(
    features: npt.NDArray[np.int64], loss: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Features and losses of further rows; none if the table is dense or no scenario has a neighbour.

    features: [rows, features]; loss: [rows, configs]. All features are mixed on the logarithmic scale with
    the same share. This keeps every order among them (such as sequences <= query tokens), every product and
    every ratio.
    """
    row, neighbour = _pairs(features if len(features) <= _DENSE else features[:0]).T
    logs = np.log(np.maximum(features, 1))
    mixed = np.rint(np.exp(logs[row] * (1 - _SHARE) + logs[neighbour] * _SHARE)).astype(np.int64)
    ends = np.sort([features[row], features[neighbour]], axis=0)
    mixed = np.clip(mixed, *ends)  # the logarithm is inexact, and undefined for values below 1
    return mixed, np.rint(loss[row] * (1 - _SHARE) + loss[neighbour] * _SHARE).astype(np.int64)


def _pairs(features: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[pairs, 2] each row with its nearest rows of the same kind, by distance on the logarithmic scale."""
    is_kind = np.array([len(np.unique(column)) <= _FEW for column in features.T])
    _, kind = np.unique(features[:, is_kind], axis=0, return_inverse=True)
    # Whole hundredths: ties break by position, the same on every machine.
    points = np.rint(100 * np.log2(np.maximum(features[:, ~is_kind], 1))).astype(np.int64)
    pairs = []
    for group in range(int(kind.max(initial=-1)) + 1):
        rows = np.flatnonzero(kind.ravel() == group)
        for row in rows:
            distance = ((points[rows] - points[row]) ** 2).sum(axis=1)
            nearest = rows[np.argsort(distance, kind="stable")]
            nearest = nearest[(features[nearest] != features[row]).any(axis=1)][:NEIGHBOURS]
            pairs += [(int(row), int(near)) for near in nearest]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)

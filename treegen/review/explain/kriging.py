"""A quantity at a shape, forecast from the scenarios around it.

Universal kriging: a Gaussian process with a linear trend over the logarithms of the features, because times
scale with work, and with a Matérn 3/2 covariance around it (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006: equation 4.17, section 2.7), over a moving neighbourhood (Cressie, Statistics for
Spatial Data, 1993, section 3.4). The constants were settled on two tables by leave-one-out;
`benchmarks.trees.explain_error` measures what they give.

The range is no claim of the model but a measurement: each scenario of the neighbourhood is forecast from the
others (section 5.4.2 there, in closed form), and the range is as wide as it had to be, relative to the
deviation that the model states, to hold 80% of the nearest ones (locally weighted conformal inference: Lei
et al., Distribution-Free Predictive Inference for Regression, JASA 2018, section 5.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SHARE = 0.8
"""Of the truths that a range is meant to hold."""

LEAST = 8
"""Fewer scenarios give no forecast."""

NEAR = 32
"""So many of the nearest scenarios tell how wide a range must be."""

_NEIGHBOURS = 96  # more tell no more, and linear algebra spreads larger matrices over busy processors
_LENGTH = 16.0  # of the covariance, in doublings
_NOISE = 0.05  # deviation of what the features do not tell, in natural logarithms
_MEAN = 100.0  # variance of the mean: not known beforehand
_WIDEST = math.log(16)  # a range from a sixteenth to sixteen times says nothing
_MOST = 700.0  # e^710 is no float

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """A natural logarithm, half the width of its 80% range, and how many scenarios gave it."""

    value: float
    margin: float
    scenarios: int


def forecast(points: Floats, values: Floats, at: Floats) -> Forecast | None:
    """The quantity at a point; None where there are too few values, or where the range would say nothing.

    points: [scenarios, features], in doublings. values: [scenarios], natural logarithms; NaN where there is
    none.
    """
    rows = np.flatnonzero(np.isfinite(values))
    if len(rows) < LEAST:
        return None
    away = points[rows] - at
    distances = np.sqrt((away**2).sum(axis=1))
    order = np.argsort(distances.round(6), kind="stable")[:_NEIGHBOURS]  # ties are ties on every machine
    away, values = away[order], values[rows[order]]
    between = np.sqrt(((away[:, None, :] - away[None, :, :]) ** 2).sum(axis=2))
    inverse = np.linalg.inv(_matern(between) + away @ away.T + _MEAN + _NOISE**2 * np.eye(len(order)))
    here = _matern(distances[order]) + _MEAN
    weighted = inverse @ values
    variance = max(_NOISE**2, 1 + _MEAN + _NOISE**2 - float(here @ inverse @ here))
    # Each scenario from the others: residual over stated deviation.
    errors = np.abs(weighted) / np.sqrt(np.diag(inverse))
    margin = _quantile(errors[:NEAR]) * math.sqrt(variance)
    value = float(here @ weighted)
    return Forecast(value, margin, len(order)) if margin <= _WIDEST and abs(value) + margin < _MOST else None


def _matern(distance: Floats) -> Floats:
    scaled = distance * (math.sqrt(3) / _LENGTH)
    return np.asarray((1 + scaled) * np.exp(-scaled))


def _quantile(errors: Floats) -> float:
    """What SHARE of further errors stay below, if they are like these."""
    rank = math.ceil(SHARE * (len(errors) + 1))
    return float(np.sort(errors)[min(rank, len(errors)) - 1])

"""Predict a quantity at a shape from the scenarios around it.

The method is universal kriging: a Gaussian process with a linear trend and a Matérn 3/2 covariance (Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, section 2.7 and equation 4.17). The trend is over
the logarithms of the features, because times scale with work. It is fitted to a moving neighbourhood
(Cressie, Statistics for Spatial Data, 1993, section 3.4). The constants were settled on two tables by
leave-one-out errors; `benchmarks.trees.explain_error` measures what they give.

The model does not state the range; the range is measured. Each scenario of the neighbourhood is predicted
from the others (Rasmussen and Williams, section 5.4.2, in closed form). The range is a multiple of the
deviation that the model states: the least multiple that holds 80% of the nearest scenarios. This is locally
weighted conformal inference (Lei et al., Distribution-Free Predictive Inference for Regression, JASA 2018,
section 5.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treegen.review.explain.feature_space import Floats

SHARE = 0.8  # of the true values, which a range should hold
FEWEST = 8  # scenarios that a prediction needs
NEAR = 32  # the nearest scenarios, which determine the width of a range

_NEIGHBOURS = 96  # more add nothing, and linear algebra spreads larger matrices over busy processors
_LENGTH = 16.0  # of the covariance, in doublings
_NOISE = 0.05  # deviation that the features do not explain, in natural logarithms
_MEAN = 100.0  # variance of the mean: not known beforehand
_WIDEST = math.log(16)  # a range from a sixteenth to sixteen times the value says nothing
_LARGEST = 700.0  # e^710 is no float


@dataclass(frozen=True)
class LogPrediction:
    """A predicted natural logarithm."""

    value: float
    margin: float  # half the width of its 80% range
    scenarios: int  # that it was predicted from


def predict(points: Floats, values: Floats, at: Floats) -> LogPrediction | None:
    """The quantity at a point; None where there are too few values, or where the range would say nothing.

    points: [scenarios, features], in doublings. values: [scenarios], natural logarithms; NaN where unknown.
    """
    rows = np.flatnonzero(np.isfinite(values))
    if len(rows) < FEWEST:
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
    if margin > _WIDEST or abs(value) + margin >= _LARGEST:
        return None
    return LogPrediction(value, margin, len(order))


def _matern(distance: Floats) -> Floats:
    scaled = distance * (math.sqrt(3) / _LENGTH)
    return np.asarray((1 + scaled) * np.exp(-scaled))


def _quantile(errors: Floats) -> float:
    """The error that SHARE of further errors stay below, if they are like these."""
    rank = math.ceil(SHARE * (len(errors) + 1))
    return float(np.sort(errors)[min(rank, len(errors)) - 1])

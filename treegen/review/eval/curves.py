"""Learning curves: how the held-out slowdown falls with the number of scenarios, and where that leads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from treegen.core.problem import Problem
from treegen.crossval.choices import Fit
from treegen.crossval.folds import SEED, Fold, nested
from treegen.crossval.parallel import ParallelMap
from treegen.review.eval.ways import FOREST, OURS, FoldTask, WayScore, score_fold, scores

TARGET = 1.015  # the slowdown that the extrapolation looks for
HORIZON = 100  # a law is not followed beyond this many times the scenarios that it was fitted to
_PARTS = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
_FEWEST = 4  # a point of a curve needs this many training scenarios


class TargetStatus(StrEnum):
    """A forecast of whether more scenarios would reach a target slowdown."""

    THERE = "there already"
    MORE = "more scenarios"
    NEVER = "not by more scenarios alone"
    TOO_FEW = "too few points"


@dataclass(frozen=True)
class PowerLaw:
    """loss = scale * n ** -exponent."""

    scale: float
    exponent: float

    def at(self, n: float) -> float:
        return self.scale * math.pow(n, -self.exponent)


@dataclass(frozen=True)
class Extrapolation:
    """The result of following a power law to the target."""

    reach: TargetStatus
    scenarios: int | None  # about how many are needed, for TargetStatus.MORE
    law: PowerLaw | None


@dataclass(frozen=True)
class CurvePoint:
    """Held-out figures of a way that was trained on part of the scenarios, as in Quality."""

    scenarios: float  # for training, mean over the folds
    slowdown: float | None
    agreement: float


@dataclass(frozen=True)
class LearningCurve:
    """One way's points, ascending by scenarios."""

    way: str
    points: tuple[CurvePoint, ...]
    extrapolation: Extrapolation | None  # to TARGET; None for a table of winners


def learning_curves(
    problem: Problem, folds: Sequence[Fold], full: Sequence[WayScore], fit: Fit, run: ParallelMap, what: str
) -> tuple[LearningCurve, ...]:
    """The curves of our tree and of the forest.

    full: the scores on the same folds after training on all training scenarios.
    """
    fewest = min(len(fold.train) for fold in folds)
    parts = [part for part in _PARTS if fewest * part >= _FEWEST]
    tasks = [
        FoldTask(problem, smaller, fit, (FOREST,))
        for number, fold in enumerate(folds)
        for smaller in nested(fold, parts, SEED + number)
    ]
    choices = run(what, score_fold, tasks)
    points: list[tuple[float, Sequence[WayScore]]] = []
    for place in range(len(parts)):
        trained = sum(len(task.fold.train) for task in tasks[place :: len(parts)]) / len(folds)
        points.append((trained, scores(choices[place :: len(parts)], problem.table.cells)))
    points.append((sum(len(fold.train) for fold in folds) / len(folds), full))
    return tuple(_curve(way, points) for way in (OURS, FOREST))


def _curve(way: str, by_size: Sequence[tuple[float, Sequence[WayScore]]]) -> LearningCurve:
    points = []
    for scenarios, scored in by_size:
        quality = next(score.quality for score in scored if score.way == way)
        points.append(CurvePoint(scenarios, quality.slowdown, quality.agreement))
    losses = [(p.scenarios, math.log(p.slowdown)) for p in points if p.slowdown is not None]
    return LearningCurve(way, tuple(points), extrapolate(losses, math.log(TARGET)) if losses else None)


def fit_law(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Least squares on both logarithms, over the points (n, loss) with a positive loss.

    None where these have fewer than two different n.
    """
    logs = [(math.log(n), math.log(loss)) for n, loss in points if loss > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x = math.fsum(x for x, _ in logs) / len(logs)
    mean_y = math.fsum(y for _, y in logs) / len(logs)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in logs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    return PowerLaw(math.exp(mean_y - slope * mean_x), -slope)


def extrapolate(points: Sequence[tuple[float, float]], target: float) -> Extrapolation:
    """The n at which the loss reaches `target`, by the law through the points (n, loss), ascending by n.

    The law ignores noise, and differences that the features do not describe.
    """
    law = fit_law(points)
    last, loss = points[-1]
    if loss <= target:
        return Extrapolation(TargetStatus.THERE, None, law)
    if law is None:
        return Extrapolation(TargetStatus.TOO_FEW, None, None)
    if law.at(HORIZON * last) > target:
        return Extrapolation(TargetStatus.NEVER, None, law)
    needed = math.exp(math.log(law.scale / target) / law.exponent)
    return Extrapolation(TargetStatus.MORE, math.ceil(max(needed, last)), law)

"""Learning curves: what more scenarios would bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from treegen.core.problem import Problem
from treegen.crossval.choices import Fit
from treegen.crossval.folds import SEED, Fold, nested
from treegen.crossval.parallel import ParallelMap
from treegen.review.eval.compare import FOREST, OURS, FoldTask, Row, judge_fold, rows
from treegen.review.eval.powerlaw import Extrapolation, extrapolate

PARTS = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
TARGET = 1.015
"""The slowdown that the extrapolation asks for."""

_FEWEST = 4  # scenarios: fewer tell nothing of a curve


@dataclass(frozen=True)
class Point:
    """scenarios: learnt from, on average over the folds. One of slowdown and agreement, as in Quality."""

    scenarios: float
    slowdown: float | None
    agreement: float


@dataclass(frozen=True)
class Curve:
    """Points ascend by scenarios. extrapolation: to TARGET; None for a table of winners."""

    way: str
    points: tuple[Point, ...]
    extrapolation: Extrapolation | None


def curves(
    problem: Problem, folds: Sequence[Fold], full: Sequence[Row], fit: Fit, run: ParallelMap, what: str
) -> tuple[Curve, ...]:
    """Our tree's and the forest's curves; `full` are the rows of the same folds with all they train on."""
    least = min(len(fold.train) for fold in folds)
    parts = [part for part in PARTS if least * part >= _FEWEST]
    tasks = [
        FoldTask(problem, smaller, fit, (FOREST,))
        for number, fold in enumerate(folds)
        for smaller in nested(fold, parts, SEED + number)
    ]
    outcomes = run(what, judge_fold, tasks)
    found: list[tuple[float, Sequence[Row]]] = []
    for place in range(len(parts)):
        trained = sum(len(task.fold.train) for task in tasks[place :: len(parts)]) / len(folds)
        found.append((trained, rows(outcomes[place :: len(parts)], problem.table.cells)))
    found.append((sum(len(fold.train) for fold in folds) / len(folds), full))
    return tuple(_curve(way, found) for way in (OURS, FOREST))


def _curve(way: str, found: Sequence[tuple[float, Sequence[Row]]]) -> Curve:
    points = []
    for scenarios, judged in found:
        (row,) = [row for row in judged if row.way == way]
        points.append(Point(scenarios, row.quality.slowdown, row.quality.agreement))
    losses = [(p.scenarios, math.log(p.slowdown)) for p in points if p.slowdown is not None]
    return Curve(way, tuple(points), extrapolate(losses, math.log(TARGET)) if losses else None)

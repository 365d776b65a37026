"""Compare greedy trees and treegen's search with proven optimal trees, on the same splits and configs.

    python -m benchmarks.fit.optimal tuning_data/unified_attention/nvidia_h100

The figures are in sample: slowdowns on the scenarios that each tree was fitted to. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal import optimal, total
from treegen.core.problem import UNIT, Problem
from treegen.fit.costs import losses
from treegen.fit.local_search import grow, local_search
from treegen.fit.search import feature_columns, shortlist
from treegen.fit.training_set import CandidateSplit, TrainingSet, candidate_splits, low_sides
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec


def main() -> None:
    """Print a line per depth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument(
        "--device", default="nvidia_h100", help="whose constraints hold (default: nvidia_h100)"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--thresholds", type=int, default=11, help="at most, of each feature (default: 11)")
    options = parser.parse_args()
    spec = read_spec(Path("treegen.yaml"))
    table = read_table(options.table)
    problem = build_problem(spec.kernels[table.kernel], spec.devices[options.device], table)
    is_low, loss = matrices(problem, options.thresholds)
    print(f"{len(loss)} scenarios, {len(is_low)} splits, {loss.shape[1]} configs; geometric mean slowdown")
    print("depth  leaves   greedy  treegen  optimal  proven  seconds of the proof")
    for depth in options.depths:
        print(_line(is_low, loss, depth), flush=True)


def matrices(
    problem: Problem, thresholds: int | None = None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """[splits, rows] and [rows, configs]: sides and losses.

    thresholds: the most of each feature; None for all.
    """
    features, loss = feature_columns(problem), losses(problem)
    every = candidate_splits(features)
    splits = every if thresholds is None else _thinned(every, thresholds)
    return low_sides(splits, features), loss[:, shortlist(loss, UNIT)]


def unpriced(
    is_low: npt.NDArray[np.bool_], loss: npt.NDArray[np.int64], depth: int, leaves: int
) -> TrainingSet:
    """What the search reads where it pays no prices, and a leaf may hold one row."""
    return TrainingSet(is_low.astype(np.float64), loss.astype(np.float64), 1, depth, leaves, 0)


def slowdown(cost: int, rows: int) -> float:
    """Geometric mean slowdown of a tree's total cost over so many rows."""
    return math.exp(cost / rows / UNIT)


def _thinned(splits: Sequence[CandidateSplit], most: int) -> list[CandidateSplit]:
    """At most so many splits per feature, evenly spaced among them."""
    kept = []
    for feature in sorted({split.feature for split in splits}):
        group = [split for split in splits if split.feature == feature]
        kept += [group[i] for i in np.unique(np.linspace(0, len(group) - 1, most).round().astype(int))]
    return kept


def _line(is_low: npt.NDArray[np.bool_], loss: npt.NDArray[np.int64], depth: int) -> str:
    training = unpriced(is_low, loss, depth, 1 << depth)
    grown = grow(training, training.best_config(training.all_rows))
    ours = local_search(training, grown)
    start = time.perf_counter()
    best = optimal(is_low, loss, max_depth=depth, start=ours)
    seconds = time.perf_counter() - start
    figures = [total(grown, is_low, loss), total(ours, is_low, loss), best.cost]
    slowdowns = "".join(f"{slowdown(figure, len(loss)):9.4f}" for figure in figures)
    return f"{depth:5d}{1 << depth:8d}{slowdowns}  {'yes' if best.proven else 'no':>6s}{seconds:9.1f}"


if __name__ == "__main__":
    main()

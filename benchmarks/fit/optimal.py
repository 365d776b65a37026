"""How far greedy trees and treegen's search are from proven optimal trees, on the same questions and configs.

    python -m benchmarks.fit.optimal tuning_data/unified_attention/nvidia_h100

In sample: what each tree loses on the scenarios that it was found on. Needs no GPU and no torch.
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
from treegen.fit.growth import grow
from treegen.fit.local_search import improve
from treegen.fit.objective import losses
from treegen.fit.search import asked_features
from treegen.fit.shortlist import shortlist
from treegen.fit.thresholds import Question, answers, questions
from treegen.fit.training_set import TrainingSet
from treegen.read.build_problem import build_problem
from treegen.read.spec_file import read_spec
from treegen.read.table_file import read_table


def main() -> None:
    """Print a line a depth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument(
        "--device", default="nvidia_h100", help="whose constraints hold (default: nvidia_h100)"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--thresholds", type=int, default=11, help="at most, of each feature (default: 11)")
    options = parser.parse_args()
    spec = read_spec(Path("treegen.yaml"))
    (kernel,) = spec.kernels.values()
    problem = build_problem(kernel, spec.devices[options.device], read_table(options.table))
    yes, loss = _matrices(problem, options.thresholds)
    print(f"{len(loss)} scenarios, {len(yes)} questions, {loss.shape[1]} configs; geometric mean slowdown")
    print("depth  leaves   greedy  treegen  optimal  proven  seconds of the proof")
    for depth in options.depths:
        print(_line(yes, loss, depth), flush=True)


def _matrices(problem: Problem, thresholds: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    features, loss = asked_features(problem), losses(problem)
    return answers(_thinned(questions(features), thresholds), features), loss[:, shortlist(loss, UNIT)]


def _thinned(asked: Sequence[Question], most: int) -> list[Question]:
    """At most so many questions a feature, evenly among its own."""
    kept = []
    for feature in sorted({question.feature for question in asked}):
        own = [question for question in asked if question.feature == feature]
        kept += [own[i] for i in np.unique(np.linspace(0, len(own) - 1, most).round().astype(int))]
    return kept


def _line(yes: npt.NDArray[np.bool_], loss: npt.NDArray[np.int64], depth: int) -> str:
    sample = TrainingSet(yes.astype(np.float64), loss.astype(np.float64), 1, depth, 1 << depth, 0)
    grown = grow(sample, sample.best_config(sample.every))
    ours = improve(sample, grown)
    start = time.perf_counter()
    best = optimal(yes, loss, max_depth=depth, start=ours)
    seconds = time.perf_counter() - start
    figures = [total(grown, yes, loss), total(ours, yes, loss), best.cost]
    slowdowns = "".join(f"{math.exp(figure / len(loss) / UNIT):9.4f}" for figure in figures)
    return f"{depth:5d}{1 << depth:8d}{slowdowns}  {'yes' if best.proven else 'no':>6s}{seconds:9.1f}"


if __name__ == "__main__":
    main()

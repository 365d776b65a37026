"""What a table's times are worth: how well they predict what to launch where nothing was timed."""

import math
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.neighbours import Distances
from triton_tune.search.race import ABSENT, Seen

ASKED = 3  # nearest scenarios; the means then come closest to those of modules on models that were not tuned
PASSES = 20  # of the estimate, which soon converges


@dataclass(frozen=True)
class Worth:
    """Geometric means over the compared scenarios, of the time over the best one measured there."""

    compared: int  # scenarios in which at least two configs have a time or a failure
    choice: float  # of what is best on average in the nearest others
    by_half: float  # the same, if only a half of the scenarios can be asked
    single: float  # of the best single config


def compared(problem: SearchProblem, times: Times) -> list[str]:
    """The scenarios that compare configs; with one cell, a scenario says nothing about any."""
    return [scenario for scenario in problem.scenarios if len(times.measured(scenario)) > 1]


def worth(problem: SearchProblem, times: Times) -> Worth | None:
    """Judge choices by leaving out each scenario; None with fewer than four that compare configs."""
    names = compared(problem, times)
    if len(names) < 4:
        return None
    seen = Seen(problem)
    seen.update(times)
    rows = [seen.scenarios.index(name) for name in names]
    tried = seen.repeats[rows] > 0
    logs = np.log(np.minimum(seen.slowdowns[rows], ABSENT))
    logs = np.where(tried, logs, estimated(logs, tried))
    logs[~seen.candidates[rows]] = math.log(ABSENT)
    distances = Distances(problem).matrix(names, names)
    np.fill_diagonal(distances, math.inf)

    def choice() -> float:
        nearest = distances.argsort(axis=1, kind="stable")[:, :ASKED]
        chosen = np.where(seen.candidates[rows], logs[nearest].mean(axis=1), math.inf).argmin(axis=1)
        return math.exp(logs[np.arange(len(rows)), chosen].mean())

    whole = choice()
    distances[:, random.Random(problem.seed).sample(range(len(rows)), len(rows) // 2)] = math.inf
    return Worth(len(rows), whole, choice(), math.exp(logs.mean(axis=0).min()))


def estimated(logs: npt.NDArray[np.float64], tried: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """[scenarios, configs] the sum of a factor of the scenario and one of the config, by least squares.

    logs: of slowdowns, of which those that were `tried` count. A config that was tried nowhere is ABSENT.
    """
    of_row, of_config = np.zeros((len(logs), 1)), np.zeros(logs.shape[1])
    for _ in range(PASSES):
        of_config = np.where(tried, logs - of_row, 0.0).sum(axis=0) / np.maximum(1, tried.sum(axis=0))
        of_config[~tried.any(axis=0)] = math.log(ABSENT)
        rest = np.where(tried, logs - of_config, 0.0).sum(axis=1, keepdims=True)
        of_row = rest / np.maximum(1, tried.sum(axis=1, keepdims=True))
    return np.maximum(0.0, of_row + of_config)

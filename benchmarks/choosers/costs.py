"""What a choice costs where it must not be launched: alike for all ways."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNTIMED, Problem
from treegen.crossval.score import Ints, costs_of
from treegen.fit.decide import ABSENT

NONE_CHOSEN = ABSENT - 1
"""Stands for no config, beside ABSENT for one that the table lacks."""


def launch_costs(problem: Problem) -> Ints:
    """[scenarios, configs + 1] what is launched costs where a config is chosen, last where none is.

    The fallback is launched where a config failed in the table, breaks a constraint, or is none: a server
    must launch something. No constraint binds the fallback itself.
    """
    count, kernel = len(problem.cost), problem.kernel
    column = problem.configs.index(kernel.fallback) if kernel.fallback in problem.configs else ABSENT
    fallback = costs_of(np.full(count, column), problem)[:, None]
    cost = np.where(problem.cost >= FORBIDDEN, fallback, problem.cost)
    return np.concatenate([cost, fallback], axis=1)


def charged(chosen: Ints, problem: Problem) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """[scenarios] the costs of choices, and whether the fallback was launched in the place of another choice.

    chosen: [scenarios] columns of the problem's configs, ABSENT or NONE_CHOSEN.
    """
    rows = np.arange(len(chosen))
    column = np.where(chosen == NONE_CHOSEN, len(problem.configs), chosen)
    cost = np.where(chosen == ABSENT, UNTIMED, launch_costs(problem)[rows, column])
    is_fallback = np.array([*(config == problem.kernel.fallback for config in problem.configs), False])
    barred = np.concatenate([problem.cost >= FORBIDDEN, np.ones((len(rows), 1), dtype=bool)], axis=1)
    return cost, (chosen != ABSENT) & barred[rows, column] & ~is_fallback[column]

"""The search strategies by name; `race.py` has them."""

from collections.abc import Callable

from triton_tune.core.problem import SearchProblem
from triton_tune.search.rounds import Strategy


def race(problem: SearchProblem) -> Strategy:
    """Times promising configs in more and more scenarios."""
    from triton_tune.search.race import Race  # needs NumPy, which the help of commands does without

    return Race(problem)


def full(problem: SearchProblem) -> Strategy:
    """Times every candidate in every scenario, and those near the best a second time."""
    from triton_tune.search.race import FULL, Race

    return Race(problem, FULL)


STRATEGIES: dict[str, Callable[[SearchProblem], Strategy]] = {"race": race, "full": full}

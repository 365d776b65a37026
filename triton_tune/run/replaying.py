"""Run a strategy on a recorded table, without a GPU."""

from pathlib import Path

from triton_tune.bench.replay import ReplayBench, loss_of, problem_of
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import ANY_FEATURES, Likeness, Times
from triton_tune.run.progress import Silent
from triton_tune.search.loop import tune
from triton_tune.search.search import STRATEGIES
from tuning_table import read_run


def replay(folder: Path, strategy: str, budget: float, likeness: Likeness = ANY_FEATURES) -> list[str]:
    """Describe in lines what the strategy finds in `budget` seconds. Raises TuningError and TableError."""
    recorded = read_run(folder)
    problem = problem_of(recorded, likeness)
    if not problem.possible:
        raise TuningError(f"{folder}: holds no rows; replay a table that a run has measured")
    bench = ReplayBench(recorded, problem)
    times = Times()
    finished = tune(STRATEGIES[strategy](problem), bench, times, lambda visit: None, Silent(), budget=budget)
    loss = loss_of(times, Times(recorded.visits), problem.scenarios)
    measured = times.num_measured()
    return [
        f"{folder}: {len(problem.scenarios)} scenarios, {problem.possible} cells",
        f"strategy {strategy}: {measured} cells ({measured / problem.possible:.1%}) in {bench.clock():.0f} s "
        f"by the replay's clock; {'nothing is left to measure' if finished else 'the budget is used up'}",
        f"slowdown of the best config found: {loss.geomean:.4f} (geometric mean), {loss.p95:.3f} (95%), "
        f"{loss.most:.3f} (worst)",
    ]

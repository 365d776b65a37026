"""`attn-tune --replay`: run a strategy on a recorded table."""

from pathlib import Path

from attn_kernels.tuning.bench.replay import ReplayBench, loss_of, problem_of
from attn_kernels.tuning.cli.progress import Silent
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.search.loop import tune
from attn_kernels.tuning.search.search import STRATEGIES
from tuning_table import read_run


def replay(folder: Path, strategy: str, budget: float) -> list[str]:
    """Describe in lines what the strategy finds in `budget` seconds. Raises TuningError and TableError."""
    recorded = read_run(folder)
    problem = problem_of(recorded)
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

"""`attn-tune --replay`: strategies compared on a recorded table."""

from pathlib import Path

from attn_kernels.tuning.bench.replay import ReplayBench, loss_of, problem_of
from attn_kernels.tuning.cli.progress import Silent
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.search.loop import tune
from attn_kernels.tuning.search.search import STRATEGIES
from tuning_table import read_run


def replay(folder: Path, strategy: str, budget: float) -> list[str]:
    """What the strategy would have found in `budget` seconds, as lines. Raises TuningError and TableError."""
    recorded = read_run(folder)
    problem = problem_of(recorded)
    if not problem.possible:
        raise TuningError(f"{folder}: holds no rows: replay a table that a run has measured")
    bench = ReplayBench(recorded, problem)
    times = Times()
    finished = tune(STRATEGIES[strategy](problem), bench, times, lambda visit: None, Silent(), budget=budget)
    loss = loss_of(times, Times(recorded.visits), problem.scenarios)
    measured = times.num_measured()
    return [
        f"{folder}: {len(problem.scenarios)} scenarios, {problem.possible} cells",
        f"strategy {strategy}: {measured} cells ({measured / problem.possible:.1%}) in {bench.clock():.0f} s "
        f"of the replay's clock, {'nothing left' if finished else 'budget used up'}",
        f"best config found against the table's best: {loss.geomean:.4f} (geomean), {loss.p95:.3f} (95%), "
        f"{loss.most:.3f} (worst)",
    ]

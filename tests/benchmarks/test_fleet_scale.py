"""The simulation of fleets: the rows of one run, and never faster than the ideal."""

import pytest

from benchmarks.fleet.scale import Case, ideal, simulate
from benchmarks.fleet.simulated import SimulatedWorker

TABLE = "tuning_data/unified_attention/untuned_nvidia_h200"


@pytest.mark.parametrize("compiling", [False, True])
@pytest.mark.parametrize("strategy", ["race", "full"])
def test_a_simulated_fleet(strategy: str, compiling: bool) -> None:
    found = simulate(Case(TABLE, 1, strategy, 12, 0.4, compiling, seed=1))
    assert found["same"] is True
    assert found["makespan"] > found["ideal"] > 0
    assert found["while_waiting"] >= 1.0


def test_the_ideal_counts_who_is_there() -> None:
    workers = [
        SimulatedWorker("a", speed=2.0),
        SimulatedWorker("b", joins=5.0),
        SimulatedWorker("c", dies=3.0),
    ]
    assert ideal(workers, 9.0) == pytest.approx(3.0)  # 3 x (2 + 1)
    assert ideal(workers, 9.0 + 4.0) == pytest.approx(5.0)
    assert ideal(workers, 9.0 + 4.0 + 6.0) == pytest.approx(7.0)

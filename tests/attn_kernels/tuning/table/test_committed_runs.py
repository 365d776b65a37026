"""The committed tables of our own: whole runs, within their ten minutes, of the named scenario sets."""

from collections import Counter
from pathlib import Path

import pytest

from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.results import Recorded
from attn_kernels.tuning.scenarios.scenario import FEATURES, digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.candidates import find_possible, gpu_of
from attn_kernels.tuning.space.space import declared
from attn_kernels.tuning.table.folder import read_folder

FOLDER = Path(__file__).parents[4] / "tuning_data/unified_attention"
TABLES = sorted(path.parent.name for path in FOLDER.glob("*/run.yaml"))
TUNED = [name for name in TABLES if not name.startswith("untuned")]


@pytest.fixture(scope="module", params=TABLES)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return read_folder(FOLDER / request.param)


def test_there_are_two_runs_of_h100_one_of_h200_and_sweeps_to_judge_them() -> None:
    assert TUNED == ["nvidia_h100", "nvidia_h100_second", "nvidia_h200"]
    assert set(TABLES) - set(TUNED) == {"untuned_nvidia_h100", "untuned_nvidia_h200"}


def test_it_holds_the_scenarios_of_its_named_set(recorded: Recorded) -> None:
    header = recorded.header
    scenarios = SETS[header.scenario_set](header.seed)
    assert header.scenarios_digest == digest(scenarios)
    expected = {s.id: tuple(s.batch.features[name] for name in FEATURES) for s in scenarios}
    assert dict(recorded.scenarios) == expected
    assert len(expected) >= (300 if header.scenario_set == "serving" else 40)


def test_it_took_ten_minutes_at_most(recorded: Recorded) -> None:
    assert 0 < recorded.seconds <= 600


def test_it_is_a_whole_run(recorded: Recorded) -> None:
    times = Times(recorded.visits)
    variants = {entry.id: entry.variant for entry in recorded.header.configs}
    timed = Counter(variants[config] for s in recorded.scenarios for config in times.medians(s))
    assert set(timed) == set(VARIANTS) - {"stream_k"}  # of captured graphs
    assert all(times.next_repeat(scenario) > 2 for scenario in recorded.scenarios)
    seen_once = 0  # a config that a late round found best, when the time was over
    for scenario in recorded.scenarios:
        medians = times.medians(scenario)
        best = min(medians, key=medians.__getitem__)
        seen_once += len(times.measured(scenario)[best]) < 2
    assert seen_once <= len(recorded.scenarios) // 20


def test_what_may_be_measured_is_what_todays_rules_leave(recorded: Recorded) -> None:
    """The rules that chose the cells are those of the repository."""
    header = recorded.header
    scenarios = SETS[header.scenario_set](header.seed)
    problem = find_possible(scenarios, declared("nvidia"), gpu_of(header.device)).problem
    measured = Times(recorded.visits)
    for scenario, candidates in problem.candidates.items():
        assert measured.measured(scenario).keys() <= set(candidates)
        if header.strategy == "full":
            assert measured.measured(scenario).keys() == set(candidates)

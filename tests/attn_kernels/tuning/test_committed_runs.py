"""The committed tables of our own are whole runs of the named scenario sets."""

from pathlib import Path

import pytest

from attn_kernels.choose.mixed import SEPARATE
from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.tuning.kernels import MIXED, UNIFIED
from attn_kernels.tuning.scenarios.scenario import FEATURES, digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.space import find_possible, gpu_of
from triton_tune.core.problem import Times
from tuning_table import read_run
from tuning_table.table import RecordedTable

FOLDER = Path(__file__).parents[3] / "tuning_data/unified_attention"
TABLES = sorted(path.parent.name for path in FOLDER.glob("*/run.yaml"))


@pytest.fixture(scope="module", params=TABLES)
def recorded(request: pytest.FixtureRequest) -> RecordedTable:
    return read_run(FOLDER / request.param)


def drawn_again(recorded: RecordedTable) -> tuple[Batch, ...]:
    """The scenarios of the set that the table says it was measured on."""
    run = recorded.header.provenance
    name = run["scenario_set"].split()[0]
    scenarios = SETS[name](run["seed"])
    assert run["scenario_set"] == f"{name} (digest {digest(scenarios)})"
    return scenarios


def test_it_holds_the_scenarios_of_its_named_set(recorded: RecordedTable) -> None:
    expected = {s.name: tuple(s.features[name] for name in FEATURES) for s in drawn_again(recorded)}
    assert dict(recorded.scenarios) == expected


def test_what_may_be_measured_is_what_todays_rules_leave(recorded: RecordedTable) -> None:
    """The rules that chose the cells are those of the repository."""
    run = recorded.header.provenance
    configs = [Config.parse(entry.id) for entry in recorded.header.configs]
    assert configs == list(UNIFIED.configs("nvidia"))
    problem, _ = find_possible(drawn_again(recorded), configs, gpu_of(run["device"]))
    measured = Times(recorded.visits)
    for scenario, candidates in problem.candidates.items():
        assert measured.measured(scenario).keys() <= set(candidates)
    if run["strategy"] == "full":
        cells = sum(len(measured.measured(scenario)) for scenario in problem.candidates)
        assert cells >= 0.98 * sum(map(len, problem.candidates.values()))


# Of the H200, measured on earlier definitions of their sets: their digests, and numbers of scenarios.
EARLIER = {"steps (digest 5fd765fef2cd)": 240, "untuned_steps (digest 53fff21772e0)": 48}


@pytest.mark.parametrize("folder", sorted(FOLDER.with_name(MIXED.name).glob("*/run.yaml")), ids=str)
def test_tables_of_mixed_batches_are_whole_runs(folder: Path) -> None:
    recorded = read_run(folder.parent)
    run = recorded.header.provenance
    name = run["scenario_set"].split()[0]
    assert name == ("untuned_steps" if folder.parent.name.startswith("untuned") else "steps")
    if run["scenario_set"] in EARLIER:
        assert len(recorded.scenarios) == EARLIER[run["scenario_set"]]
    else:
        scenarios = MIXED.sets[name](run["seed"])
        assert run["scenario_set"] == f"{name} (digest {digest(scenarios)})"
        assert dict(recorded.scenarios) == {s.name: tuple(s.mixed_features.values()) for s in scenarios}
    assert recorded.header.features == MIXED.features
    measured = Times(recorded.visits)
    everything = {config.id for config in recorded.header.configs}
    assert str(SEPARATE) in everything
    assert all(measured.measured(scenario).keys() == everything for scenario in recorded.scenarios)

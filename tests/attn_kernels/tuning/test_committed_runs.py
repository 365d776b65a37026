"""The committed tables of our own are whole runs of the named scenario sets.

A set's definition may have changed since a table was measured. The digest in run.yaml tells; then the table's
scenarios cannot be drawn again, and only what the table itself holds is checked.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from attn_kernels.choose.mixed import SERIES
from attn_kernels.core.config import Config
from attn_kernels.tuning.kernels import MIXED, UNIFIED
from attn_kernels.tuning.scenarios.scenario import FEATURES, Scenario, digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.space import find_possible, gpu_of
from triton_tune.core.problem import Times
from tuning_table import read_run
from tuning_table.table import RecordedRun

FOLDER = Path(__file__).parents[3] / "tuning_data/unified_attention"
TABLES = sorted(path.parent.name for path in FOLDER.glob("*/run.yaml"))


@pytest.fixture(scope="module", params=TABLES)
def recorded(request: pytest.FixtureRequest) -> RecordedRun:
    return read_run(FOLDER / request.param)


# Earlier definitions of sets, by their digests at seed 0, with their numbers of scenarios.
EARLIER = {
    "serving (digest 12ad6d271104)": 1080,  # the H100's two runs
    "serving (digest 52f74dd5d4f8)": 1512,
    "untuned (digest 7fd10fc197b4)": 48,
    "untuned_options (digest 2a1c18a0b46a)": 48,
    "other_heads (digest 1bc9cb10e144)": 124,
    "steps (digest 5fd765fef2cd)": 240,
    "untuned_steps (digest 53fff21772e0)": 48,
}
# Of runs whose time ended soon after every scenario was visited once: the share that is visited twice at
# least, and the share whose best config may have been timed only once for all that.
ENDED_EARLY = {"serving (digest d79d069e0ba2)": (0.2, 0.1)}  # the H100's, of 440 s


def drawn_again(recorded: RecordedRun) -> tuple[Scenario, ...] | None:
    """The scenarios of the set that the table says it was measured on; None for an earlier definition."""
    run = recorded.header.provenance
    if run["scenario_set"] in EARLIER:
        return None
    name = run["scenario_set"].split()[0]
    scenarios = SETS[name](run["seed"])
    assert run["scenario_set"] == f"{name} (digest {digest(scenarios)})"
    return scenarios


def test_it_holds_the_scenarios_of_its_named_set(recorded: RecordedRun) -> None:
    run = recorded.header.provenance
    scenarios = drawn_again(recorded)
    if scenarios is None:
        assert len(recorded.scenarios) == EARLIER[run["scenario_set"]]
        assert all(re.match(rf"[a-z_]+{run['seed']}-", scenario) for scenario in recorded.scenarios)
    else:
        expected = {s.id: tuple(s.batch.features[name] for name in FEATURES) for s in scenarios}
        assert dict(recorded.scenarios) == expected


def test_it_is_a_whole_run(recorded: RecordedRun) -> None:
    times = Times(recorded.visits)
    variants = {entry.id: entry.variant for entry in recorded.header.configs}
    timed = Counter(variants[config] for s in recorded.scenarios for config in times.medians(s))
    assert set(timed) == set(variants.values()) >= set(UNIFIED.variants) - {"stream_k"}
    # The time of a short run ends within its last round: every scenario is visited once, and most twice.
    twice, once = ENDED_EARLY.get(recorded.header.provenance["scenario_set"], (0.6, 0.05))
    visits = [times.next_repeat(scenario) - 1 for scenario in recorded.scenarios]
    assert min(visits) >= 1
    assert sum(count > 1 for count in visits) >= twice * len(visits)
    seen_once = 0  # a config that a late round found best, when the time was over
    for scenario in recorded.scenarios:
        medians = times.medians(scenario)
        best = min(medians, key=medians.__getitem__)
        seen_once += times.next_repeat(scenario) > 2 and len(times.measured(scenario)[best]) < 2
    assert seen_once <= int(once * len(recorded.scenarios))


def test_what_may_be_measured_is_what_todays_rules_leave(recorded: RecordedRun) -> None:
    """The rules that chose the cells are those of the repository."""
    scenarios = drawn_again(recorded)
    if scenarios is None:
        pytest.skip("measured on an earlier definition of its scenario set")
    run = recorded.header.provenance
    configs = [Config.parse(entry.id) for entry in recorded.header.configs]
    problem = find_possible(scenarios, configs, gpu_of(run["device"])).problem
    measured = Times(recorded.visits)
    for scenario, candidates in problem.candidates.items():
        assert measured.measured(scenario).keys() <= set(candidates)
        if run["strategy"] == "full":
            missing = set(candidates) - measured.measured(scenario).keys()
            # Some tables are older than TMA for fp8, and for the largest tiles and heads.
            assert all(name.endswith("_D1") for name in missing)
            sizes = problem.features[scenario]
            assert not missing or sizes["kv_element_size"] == 1 or sizes["head_size"] > 128


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
        assert dict(recorded.scenarios) == {s.id: tuple(s.batch.mixed_features.values()) for s in scenarios}
    assert recorded.header.features == MIXED.features
    measured = Times(recorded.visits)
    everything = {config.id for config in recorded.header.configs}
    assert str(SERIES) in everything
    assert all(measured.measured(scenario).keys() == everything for scenario in recorded.scenarios)

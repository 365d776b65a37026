"""Named scenario sets: what they cover, which bounds they keep, and that they stay as they were."""

import random

import pytest
from treegen_builders import REPOSITORY

from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.scenarios.scenario import (
    FEATURES,
    KINDS,
    Shape,
    digest,
    kind_of,
    scenario_of,
    shape_of,
)
from attn_kernels.tuning.scenarios.serving import SETS, affordable, is_held_out
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from tuning_table import read_run

TABLES = sorted((REPOSITORY / "tuning_data/unified_attention").glob("*/run.yaml"))


def lengths(batch):
    return list(zip(batch.query_lens, batch.context_lens, strict=True))


@pytest.mark.parametrize("wrong", ["", "a b", "a,b", "-a", "a\n", "ä", "a" * 129])
def test_ids_that_tables_refuse_are_refused(wrong):
    with pytest.raises(ValueError, match="scenario id"):
        scenario_of(wrong, (1,), (1,), Shape(HeadLayout(1, 1, 16)))


@pytest.mark.parametrize(("queries", "contexts", "kind"), [
    ((1, 1), (1, 900), "decode"), ((1, 0), (9, 0), "decode"), ((5, 700), (5, 700), "prefill"),
    ((0, 700), (8, 700), "prefill"), ((2, 8), (5, 8), "spec"), ((1, 3), (9, 9), "spec"),
    ((9,), (10,), "chunk"), ((1, 9), (5, 10), "mixed"),
])  # fmt: skip
def test_lengths_determine_the_kind_of_a_batch(queries, contexts, kind):
    assert kind_of(queries, contexts) == kind and kind in KINDS


@pytest.mark.parametrize(("sets", "name", "golden"), [
    (SETS, "serving", "018e0a0188ea"), (SETS, "untuned", "b7b788b7d2f5"),
    (SETS, "other_models", "19e4f6bfc02b"), (SETS, "quick", "614334c09dc7"), (SETS, "tiny", "6723f8ba7c1e"),
    (STEP_SETS, "steps", "2cf7d71b72dc"), (STEP_SETS, "untuned_steps", "a2fc365e78bf"),
    (STEP_SETS, "tiny", "536177fc599f"),
])  # fmt: skip
def test_sets_stay_as_tables_know_them(sets, name, golden):
    random.seed(1)  # global randomness plays no part
    assert digest(sets[name](0)) == golden


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_committed_tables_hold_scenarios_of_their_sets(path):
    """All of them, or those that the set had before others were added."""
    recorded = read_run(path.parent)
    run = recorded.header.provenance
    name = run["scenario_set"].split()[0]
    known = {scenario.name: scenario for scenario in SETS[name](run["seed"])}
    scenarios = [known[id] for id in recorded.scenarios]
    assert run["scenario_set"] == f"{name} (digest {digest(scenarios)})"
    assert dict(recorded.scenarios) == {s.name: tuple(s.features[f] for f in FEATURES) for s in scenarios}


def test_a_digest_tells_ids_lengths_and_shapes_but_not_the_order():
    first, second = SETS["tiny"](0)[:2]
    assert digest([first, second]) == digest([second, first]) != digest([first])
    others = [
        first.at(name="other"),
        scenario_of(first.name, (*first.query_lens, 1), (*first.context_lens, 1), shape_of(first)),
        first.at(block_size=32),
    ]
    assert len({digest([other]) for other in (first, *others)}) == 4


@pytest.mark.parametrize("seed", [0, 7])
def test_sets_of_any_seed(seed):
    """Ids and batches are distinct; another seed draws others, but for `tiny`; no set has untuned batches.

    Such sets are kept apart by a batch's lengths alone, so that two seeds need not be compared.
    """
    drawn = [(name, draw(seed), draw(seed + 1)) for sets in (SETS, STEP_SETS) for name, draw in sets.items()]
    assert len({s.name for _, scenarios, _ in drawn for s in scenarios}) == sum(
        len(own) for _, own, _ in drawn
    )
    for name, scenarios, others in drawn:
        assert len({(*lengths(s), shape_of(s)) for s in scenarios}) == len(scenarios)
        assert all(tuple(s.features) == FEATURES for s in scenarios)
        one, other = ({tuple(lengths(s)) for s in some} for some in (scenarios, others))
        if name == "tiny":
            assert one == other
        else:
            assert len(one & other) < len(one) / 10
            assert {is_held_out(s) for s in scenarios} == {name.startswith("untuned")}


def test_bounds_refuse_one_too_many():
    multi_head = Shape(HeadLayout(32, 32, 128))  # 16 KiB a token

    def fits(queries, contexts, shape=multi_head):
        return affordable(scenario_of("a", queries, contexts, shape))

    assert fits([1] * 4, [65536] * 4) and not fits([1] * 4, [65536] * 3 + [65537])
    small = Shape(HeadLayout(1, 1, 16))
    assert fits([16384], [16384], small) and not fits([16385], [16385], small)
    assert fits([16384], [16384]) and not fits([16384], [32768])

"""Which cells may be measured, what is dropped for which reason, and how a run is summed up."""

from collections import Counter

import pytest

from attn_kernels.choose.mixed import SERIES
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.tuning.kernels import MIXED
from attn_kernels.tuning.scenarios.scenario import Scenario, scenario_of, shape_of
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.candidates import Possible, dropped_text, find_possible, gpu_of
from attn_kernels.tuning.space.space import Gpu, baselines, declared, reason_against, space_at
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.run.summary import lines_of, summarise
from tuning_table.names import device_key
from tuning_table.table import Failure, Visit

H100 = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "multiprocessors": 132}
MI300X = {"name": "AMD Instinct MI300X", "arch": "gfx942", "multiprocessors": 304}
QUICK = SETS["quick"](0)


def possible_on(facts: dict[str, str | int], scenarios: tuple[Scenario, ...] = QUICK) -> tuple[Gpu, Possible]:
    gpu = gpu_of(facts)
    return gpu, find_possible(scenarios, declared(gpu.vendor), gpu, seed=7)


@pytest.mark.parametrize("facts", [H100, MI300X], ids=lambda facts: str(facts["arch"]))
def test_every_cell_is_a_candidate_or_dropped_for_one_reason(facts: dict[str, str | int]) -> None:
    gpu, possible = possible_on(facts)
    configs = declared(gpu.vendor)
    assert possible.problem.possible + sum(possible.dropped.values()) == len(QUICK) * len(configs)
    expected = Counter()
    for scenario in QUICK:
        at_shape = {
            entry.config: entry.reason for entry in space_at(shape_of(scenario.batch), gpu, configs).dropped
        }
        reasons = {c: at_shape.get(c) or reason_against(c, scenario.batch, gpu) for c in configs}
        expected.update(reason for reason in reasons.values() if reason)
        kept = tuple(str(c) for c in configs if reasons[c] is None)
        assert possible.problem.candidates[scenario.id] == kept
    assert possible.dropped == expected and len(expected) > 3
    assert list(possible.dropped.values()) == sorted(expected.values(), reverse=True)


def test_a_problem_knows_features_variants_and_seed() -> None:
    _, possible = possible_on(H100)
    problem = possible.problem
    assert problem.seed == 7 and problem.scenarios == tuple(scenario.id for scenario in QUICK)
    assert all(problem.features[s.id] == s.batch.features for s in QUICK)
    assert problem.variants == {str(config): config.variant for config in declared("nvidia")}


@pytest.mark.parametrize("facts", [H100, MI300X], ids=lambda facts: str(facts["arch"]))
def test_vllms_choice_is_kept_and_always_measured(facts: dict[str, str | int]) -> None:
    gpu, possible = possible_on(facts)
    for scenario in QUICK:
        fixed = str(baselines(scenario.batch, gpu.vendor))
        assert possible.problem.always[scenario.id] == (fixed,)
        assert fixed in possible.problem.candidates[scenario.id]


def test_a_fixed_choice_outside_the_space_is_not_measured() -> None:
    only = [config for config in declared("nvidia") if config.variant == "naive"]
    problem = find_possible(QUICK, only, gpu_of(H100)).problem
    assert set(problem.always.values()) == {()}
    assert {problem.variants[c] for row in problem.candidates.values() for c in row} == {"naive"}
    assert () in problem.candidates.values()  # long prompts, where `naive` would take seconds


def test_facts_of_a_device_for_the_rules() -> None:
    assert gpu_of(H100) == Gpu("sm_90", "nvidia", 232448, 132)
    assert gpu_of(MI300X) == Gpu("gfx942", "amd", 65536, 304)
    assert gpu_of({"name": "new", "arch": "sm_999", "multiprocessors": 9}) == Gpu(
        "sm_999", "nvidia", 101376, 9
    )
    assert gpu_of({"name": "cpu", "arch": "cpu", "multiprocessors": 1}).vendor == "cpu"


def test_what_cannot_work_at_a_shape_is_listed_with_its_reason() -> None:
    wide = scenario_of("wide", (1,), (64,), shape_of(Batch("", "", (1,), (1,), HeadLayout(8, 1, 256))))
    _, possible = possible_on(MI300X, (*QUICK, wide))
    head, *lines = dropped_text(possible.spaces).splitlines()
    assert head == "shape,config,reason"
    rows = [line.split(",") for line in lines]
    assert {len(row) for row in rows} == {3}  # no reason has a comma of its own
    spaces = {str(shape): space for shape, space in possible.spaces.items()}
    for shape, space in spaces.items():
        assert len(space.configs) + len(space.dropped) == len(declared("amd"))
        assert [row[1:] for row in rows if row[0] == shape] == [
            [str(e.config), e.reason] for e in space.dropped
        ]
    assert any(row[0].startswith("h8.1.256") for row in rows)


@pytest.mark.parametrize(("name", "key"), [
    ("NVIDIA H100 80GB HBM3", "nvidia_h100"),
    ("NVIDIA H200", "nvidia_h200"),
    ("NVIDIA A100-SXM4-80GB", "nvidia_a100"),
    ("NVIDIA GeForce RTX 4090", "nvidia_rtx_4090"),
    ("AMD Radeon RX 7900 XTX", "amd_rx_7900"),
    ("Tesla V100-SXM2-16GB", "tesla_v100_sxm2_16gb"),
    ("AMD Instinct MI300X", "amd_mi300x"),
    ("cpu (Triton interpreter)", "cpu_triton_interpreter"),
    ("../..", "unknown"),
])  # fmt: skip
def test_the_folder_of_a_devices_table(name: str, key: str) -> None:
    assert device_key(name) == key


PROBLEM = SearchProblem(
    {"s": {}, "t": {}, "u": {}},
    {"s": ("a", "b", "c"), "t": ("a", "b", "c"), "u": ("a",)},
    {},
    {"a": "qblock", "b": "naive", "c": "split"},
)
TIMES = Times([
    Visit("s", 1, {"a": 10.0, "b": 20.0, "c": Failure("crashed")}),
    Visit("t", 1, {"a": 100.0, "b": 50.0, "c": Failure("wrong")}),
    Visit("s", 2, {"a": 11.0, "b": 20.0}),
    Visit("s", 3, {"a": 11.0, "c": Failure("crashed again")}),
    Visit("t", 2, {"b": 40.0}),
])  # fmt: skip


def test_the_summary_counts_cells_once_and_failures_by_their_first_reason() -> None:
    summary = summarise(PROBLEM, TIMES, 12.34, False)
    noise = {key: summary.pop(key) for key in ("noise_median", "noise_p90", "noise_p99")}
    assert summary == {
        "seconds": 12.3, "finished": False, "scenarios": 2, "rows": 5,
        "cells_measured": 6, "cells_possible": 7, "cells_failed": 2, "failures": {"crashed": 1, "wrong": 1},
    }  # fmt: skip
    assert noise["noise_median"] == pytest.approx(0.05)  # of 0, 0, 0.1 and 0.2


def test_noise_quantiles() -> None:
    # Each repeat is 0, 1, ... 100 per mille off the one before it.
    times = Times(Visit(f"s{i}", r, {"a": 1000.0 + i * (r - 1)}) for i in range(101) for r in (1, 2))
    summary = summarise(PROBLEM, times, 1.0, True)
    assert [summary[key] for key in ("noise_median", "noise_p90", "noise_p99")] == [0.05, 0.09, 0.099]
    assert "noise_median" not in summarise(PROBLEM, Times([Visit("s", 1, {"a": 1.0})]), 1.0, True)
    assert summarise(PROBLEM, Times(), 0.001, False)["seconds"] == 0.1  # readers want it above 0
    slower = Times(Visit(s, r, {"a": 10.0 / r}) for s in "st" for r in (1, 2))
    assert summarise(PROBLEM, slower, 1.0, True)["noise_median"] == 0.5  # a gain is noise as a loss is


def test_the_lines_of_a_summary() -> None:
    assert lines_of(summarise(PROBLEM, TIMES, 12.34, False), PROBLEM, TIMES) == [
        "2 of 3 scenarios, 5 rows, 6 of 7 cells (86%), 12.3 s",
        "two repeats of a cell differ by 5.0% (median), 17.0% (90%), 19.7% (99%)",
        "fastest: qblock in 1, naive in 1",
        "failed cells: 2",
        "  1: crashed",
        "  1: wrong",
    ]
    nothing = lines_of(summarise(PROBLEM, Times(), 0.0, False), PROBLEM, Times())
    assert nothing[0] == "0 of 3 scenarios, 0 rows, 0 of 7 cells (0%), 0.1 s"
    assert nothing[-1] == "failed cells: 0" and not any(line.endswith(": ") for line in nothing)


def test_series_is_always_measured_of_mixed_attention() -> None:
    steps = MIXED.sets["steps"](0)
    gpu, configs = gpu_of(H100), MIXED.configs("nvidia")
    problem = find_possible(steps, configs, gpu, features_of=MIXED.features_of).problem
    for scenario in steps:
        assert problem.candidates[scenario.id] == tuple(map(str, configs))
        assert problem.always[scenario.id] == (str(SERIES),)
        assert tuple(problem.features[scenario.id]) == MIXED.features

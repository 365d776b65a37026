"""What `benchmarks.trees.tuned` computes from tables, on small ones with known answers."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from attn_kernels import Config
from attn_kernels.tuning.scenarios.scenario import FEATURES, Scenario, digest, kind_of
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.candidates import find_possible, gpu_of
from attn_kernels.tuning.space.rules import baselines, fixed_choice
from attn_kernels.tuning.space.space import declared
from benchmarks.trees import judge, tuned, tuned_plots
from benchmarks.trees.judge import Judged, Measured, gap_closed, measured, single_best, summary
from benchmarks.trees.judge_pairs import compare, cross
from benchmarks.trees.judge_search import best_of, optimism, portfolio_of, replay
from treegen.core.errors import InputError
from tuning_table import create
from tuning_table.table import Failure, Visit

A, B, C = (Config("qblock", rows, 32) for rows in (16, 32, 64))
DEVICE = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "multiprocessors": 132}


def scenario(id: str, times: Mapping[Config, float | tuple[float, ...]], **features: int) -> Measured:
    """Two times are two repeats of which the median is the mean."""
    repeats = {config: time if isinstance(time, tuple) else (time,) for config, time in times.items()}
    medians = {config: sum(own) / len(own) for config, own in repeats.items()}
    return Measured(id, {**dict.fromkeys(FEATURES, 1), **features}, repeats, medians)


SPARSE = (
    scenario("a", {A: 10.0, B: 20.0}),
    scenario("b", {B: 11.0, C: 10.0}),
    scenario("c", {B: 11.0, C: 10.0}),
)


@pytest.mark.parametrize("name", SETS)
def test_kinds_and_the_fixed_choice_from_features_are_those_of_the_batch(name: str) -> None:
    for seed in range(4):
        for one in SETS[name](seed):
            batch = one.batch
            assert judge.kind(one.id, batch.features) == kind_of(batch.query_lens, batch.context_lens)
            assert fixed_choice(batch.features) == baselines(batch)


@pytest.mark.parametrize("tokens, expected", [(101, "mixed"), (102, "chunk")])
def test_without_a_telling_id_a_mixed_batch_has_few_query_tokens(tokens: int, expected: str) -> None:
    features = {"num_seqs": 2, "num_query_tokens": tokens, "num_kv_tokens": 9000, "max_query_len": 100}
    assert judge.kind("mine-7", features) == expected
    assert judge.kind("mine-chunk-7", features) == "chunk"
    assert judge.kind("mine-mixed-7", features) == "mixed"


def test_shapes_are_told_apart_by_what_features_hold() -> None:
    one = scenario("a", {A: 1.0}, num_query_heads=32, num_kv_heads=8, head_size=128, block_size=16)
    assert one.shape == "32/8/128 p16 fp8"
    assert scenario("a", {A: 1.0}, kv_element_size=2).shape == "1/1/1 p1"


def test_a_summary_leaves_out_what_was_not_timed_and_counts_it() -> None:
    found = summary([1.0, None, 4.0])
    assert (found.scenarios, found.untimed, found.most) == (3, 1, 4.0)
    assert found.geomean == pytest.approx(2.0)
    assert found.p95 == pytest.approx(3.85)
    assert summary([None]).geomean is None
    assert summary([]).scenarios == 0


def test_slowdowns_are_over_the_best_that_was_measured() -> None:
    found = judge.judge(SPARSE, {"always B": lambda features: B, "always C": lambda features: C})
    assert [entry.slowdown("always B") for entry in found] == [2.0, 1.1, 1.1]
    assert [entry.slowdown("always C") for entry in found] == [None, 1.0, 1.0]
    assert [entry.best for entry in found] == [(str(A), 10.0), (str(C), 10.0), (str(C), 10.0)]


def test_a_config_timed_only_where_it_suits_is_not_the_single_best() -> None:
    assert single_best(SPARSE) == B  # 2 * 1.1 * 1.1 = 2.42; C: 4; A: 16
    assert single_best(SPARSE[:1]) == A


def test_the_gap_closed_is_a_share_of_the_logarithm() -> None:
    def entry(chosen: float | None, single: float | None) -> Judged:
        return Judged("a", "decode", "", ("", 1.0), {"chosen": ("", chosen), "single": ("", single)})

    assert gap_closed([entry(2.0, 4.0), entry(None, 9.0)], "chosen", "single") == pytest.approx(0.5)
    assert gap_closed([entry(1.0, 4.0)], "chosen", "single") == pytest.approx(1.0)
    assert gap_closed([entry(8.0, 4.0)], "chosen", "single") == pytest.approx(-0.5)
    assert gap_closed([entry(1.0, 1.0)], "chosen", "single") is None


def test_groups_hold_all_then_kinds_then_shapes() -> None:
    two = [scenario("x", {A: 1.0}, max_query_len=9), scenario("y", {A: 1.0})]
    found = judge.groups(judge.judge([*SPARSE, *two], {}))
    assert [(name, len(own)) for name, own in found.items()] == [
        ("all", 5), ("kind decode", 4), ("kind prefill", 1), ("shape 1/1/1 p1 fp8", 5)
    ]  # fmt: skip


def test_two_tables_are_compared_by_the_cells_of_both() -> None:
    first = [scenario("a", {A: 10.0, B: 11.0, C: 5.0}), scenario("b", {A: 10.0, B: 40.0}), SPARSE[2]]
    second = [scenario("a", {A: 12.0, B: 11.0}), scenario("b", {A: 10.5, B: 30.0})]
    found = compare(first, second)
    assert (found.scenarios, found.differ) == (2, 1)  # A and B; C has no time in the second
    assert found.first_on_second.most == pytest.approx(12 / 11)
    assert found.first_on_second.geomean == pytest.approx(math.sqrt(12 / 11))
    assert found.second_on_first.most == pytest.approx(11 / 10)
    assert found.when_differ.scenarios == 1
    assert found.when_differ.geomean == pytest.approx(12 / 11)
    assert found.all is not None and found.near is not None
    assert found.all.cells == 4  # 20%, 0%, 5%, 25%
    assert found.all.median == pytest.approx(0.125)
    assert found.all.shift == pytest.approx((1.0 + 1.05) / 2)
    assert found.near.cells == 3  # not B in b, four times the best
    assert found.near.median == pytest.approx(0.05)


def test_one_id_for_two_scenarios_is_refused() -> None:
    with pytest.raises(ValueError, match="scenario a has other features"):
        compare([scenario("a", {A: 1.0})], [scenario("a", {A: 1.0}, num_seqs=2)])


def test_a_foreign_choice_is_held_against_ones_own() -> None:
    found = cross(SPARSE, lambda features: B, lambda features: C)
    assert found.differ == 3
    assert found.own.geomean == pytest.approx((2 * 1.1 * 1.1) ** (1 / 3))
    assert (found.other.untimed, found.other.geomean) == (1, pytest.approx(1.0))
    assert (found.other_over_own.untimed, found.other_over_own.most) == (1, pytest.approx(1 / 1.1))
    assert cross(SPARSE, lambda features: B, lambda features: B).differ == 0


def test_a_second_look_at_the_winner_shows_that_the_best_is_too_low() -> None:
    """By the first, A wins and takes 12 in the second; by the second, B wins and took 11 in the first."""
    found = optimism([scenario("a", {A: (9.0, 12.0), B: (11.0, 9.0), C: 1.0})])
    assert found is not None and found.scenarios == 1
    assert found.second_look == pytest.approx(math.sqrt(12 * 11) / 10.0)
    certain = optimism([scenario("a", {A: (10.0, 10.0), B: (20.0, 20.0)})])
    assert certain is not None and certain.second_look == pytest.approx(1.0)
    assert optimism(SPARSE) is None


def test_the_best_of_a_portfolio() -> None:
    found = best_of([A, B], SPARSE)
    assert found.geomean == pytest.approx(1.1 ** (2 / 3))
    assert best_of([A], SPARSE).untimed == 2


def write_table(
    folder: Path,
    visits: Sequence[Visit],
    scenarios: Sequence[Scenario],
    configs: Sequence[Config],
    name: str = "tiny",
    features: tuple[str, ...] = FEATURES,
) -> Path:
    table = create(
        folder, kernel="unified_attention", device=DEVICE, timing="made by hand", driver="1", torch="2",
        triton="3", source_hash="0" * 12, date="2026-01-02", seed=0, strategy="race",
        scenario_set=f"{name} (digest {digest(scenarios)})", features=features,
        configs=[{"id": str(c), **c._asdict()} for c in configs],
        scenarios={s.id: [s.batch.features[feature] for feature in features] for s in scenarios},
    )  # fmt: skip
    with table:
        for visit in visits:
            table.append(visit.scenario, visit.cells, visit.repeat)
        table.summarise({"seconds": 9.0, "cells_measured": 8, "cells_possible": 16})
    return folder


TINY = SETS["tiny"](0)


def flat(scenarios: Sequence[Scenario], times: Mapping[Config, float], repeats: int = 2) -> list[Visit]:
    """The same times in every scenario and repeat."""
    cells = {str(config): time for config, time in times.items()}
    return [Visit(one.id, repeat, cells) for one in scenarios for repeat in range(1, repeats + 1)]


def test_a_folder_is_read_with_its_repeats_and_without_failures(tmp_path: Path) -> None:
    id, broken = TINY[0].id, Failure("broken")
    visits = [
        Visit(id, 2, {str(A): 12.0, str(B): broken}),
        Visit(id, 1, {str(A): 10.0, str(B): 1.0, str(C): 5.0}),
    ]
    _, (one,) = measured(write_table(tmp_path, visits, TINY, [A, B, C]))
    assert one.repeats == {A: (10.0, 12.0), C: (5.0,)}
    assert one.times == {A: 11.0, C: 5.0}
    assert one.features == TINY[0].batch.features
    assert (one.best, one.slowdown(A), one.slowdown(B)) == (C, 2.2, None)


def test_a_table_of_other_features_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path, flat(TINY, {A: 1.0}), TINY, [A], features=FEATURES[1:])
    with pytest.raises(InputError, match="features must be those of choose"):
        measured(tmp_path)


def test_the_portfolio_is_what_was_timed_wherever_it_may_be(tmp_path: Path) -> None:
    configs = [config for config in declared("nvidia") if config.variant != "naive"][:40]
    possible = find_possible(TINY, configs, gpu_of(DEVICE)).problem.candidates
    everywhere, left_out = [Config.parse(id) for id in possible[TINY[0].id]][:2]
    cells = {one.id: dict.fromkeys(possible[one.id], 1.0) for one in TINY}
    del cells[TINY[0].id][str(left_out)]
    visits = [Visit(id, 1, own) for id, own in cells.items()]
    table, scenarios = measured(write_table(tmp_path / "tiny", visits, TINY, configs))
    portfolio = portfolio_of(table, scenarios)
    assert portfolio is not None and everywhere in portfolio and left_out not in portfolio
    assert len(portfolio) == len({id for own in possible.values() for id in own}) - 1
    recorded = write_table(tmp_path / "mine", visits, TINY, configs, name="recorded")
    assert portfolio_of(*measured(recorded)) is None


def test_a_replayed_race_with_time_enough_finds_the_best(tmp_path: Path) -> None:
    folder = write_table(tmp_path, flat(TINY, {A: 10.0, B: 9.0, C: 12.0}), TINY, [A, B, C])
    none, full = replay(folder, (1e-9, 1e6))
    assert none.lost.untimed == len(TINY)
    assert (full.lost.untimed, full.lost.most) == (0, pytest.approx(1.0))
    assert 0.5 < full.share <= 1.0  # C is hopeless in some


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Tables of two devices: on the second, B is the best, and vLLM's choices have a time everywhere."""
    fixed = {baselines(one.batch) for one in TINY}
    for folder, best in (
        ("nvidia_h100", 10.0),
        ("untuned_nvidia_h100", 10.0),
        ("nvidia_h100_second", 10.5),
        ("amd_mi300x", 40.0),
    ):
        times = {A: best, B: 20.0, **dict.fromkeys(fixed, 30.0)}
        write_table(tmp_path / "in" / folder, flat(TINY, times), TINY, list(times))
    return tmp_path / "in"


def test_the_command_prints_and_writes_what_it_finds(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    chosen = ["--tables", str(tables), "--devices", "nvidia_h100,amd_mi300x", "--out", str(out)]
    assert tuned.main(chosen) == 0
    printed = capsys.readouterr().out
    assert f"no table {tables}/untuned_amd_mi300x: left out" in printed
    assert "the best config differs in 8 of 8 scenarios" in " ".join(printed.split())
    found = json.loads((out / "tuned.json").read_text())
    sets = [(table["device"], table["set"]) for table in found["tables"]]
    assert sets == [("nvidia_h100", name) for name in tuned.SETS] + [("amd_mi300x", "tuned")]
    first = found["tables"][0]
    assert first["single"] == str(A)
    assert first["figures"]["all"]["vllm"]["geomean"] == pytest.approx(3.0)
    assert first["figures"]["all"]["single"]["geomean"] == pytest.approx(1.0)
    assert [pair["set"] for pair in found["devices"]] == ["tuned"]
    assert found["devices"][0]["best"]["second_on_first"]["most"] == pytest.approx(2.0)
    assert found["noise"][0]["pair"]["all"]["p99"] == pytest.approx(0.05)
    assert (found["searches"][0]["device"], found["searches"][0]["cells_possible"]) == ("nvidia_h100", 16)


def test_plots_are_drawn(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    tuned.main(["--tables", str(tables), "--devices", "nvidia_h100", "--out", str(out)])
    (path,) = tuned_plots.draw(out / "tuned.json")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.name == "tuned_nvidia_h100.png"


@pytest.mark.parametrize("arguments, message", [
    (["--devices", "nvidia_h999"], "no such table folder"),
    (["--devices", ","], "--devices needs a device key"),
    (["--devices", "nvidia_h100", "--worst", "-1"], "--worst a count"),
])  # fmt: skip
def test_wrong_use_is_one_line(
    arguments: list[str], message: str, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        tuned.main(["--tables", str(tables), *arguments])
    assert caught.value.code == 2
    told = capsys.readouterr()
    assert message in told.err and told.err.count("\n") == 1 and not told.out


def test_a_device_without_a_module_is_refused(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tables / "nvidia_h100").rename(tables / "nvidia_h999")
    with pytest.raises(SystemExit) as caught:
        tuned.main(["--tables", str(tables), "--devices", "nvidia_h999"])
    assert caught.value.code == 2
    assert "the generated modules are" in capsys.readouterr().err


COMMITTED = Path(__file__).parents[2] / "tuning_data" / "unified_attention"


@pytest.mark.parametrize("folder", sorted(COMMITTED.glob("*")), ids=lambda folder: folder.name)
def test_the_fixed_choice_was_timed_in_every_committed_scenario(folder: Path) -> None:
    _, scenarios = measured(folder)
    assert scenarios
    assert not [one.id for one in scenarios if fixed_choice(one.features) not in one.times]

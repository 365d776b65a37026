"""What `benchmarks.trees.tuned` computes from tables, on small ones with known answers."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_kernels import Config
from attn_kernels.tuning.scenarios.scenario import FEATURES, Scenario, digest, kind_of
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.rules import baselines, fixed_choice
from attn_kernels.tuning.space.space import declared, find_possible, gpu_of
from benchmarks.trees import score_choices, tuned, tuned_plots
from benchmarks.trees.compare_tables import compare_modules, compare_tables
from benchmarks.trees.score_choices import (
    CommittedTrees,
    TimedTable,
    groups,
    launch_config,
    optimism,
    read_timed_table,
    scenarios,
    share_of_gap,
    single_best,
    spec_config,
    summary,
)
from benchmarks.trees.search_loss import best_of, portfolio, replay
from treegen.core.errors import InputError
from treegen.read.spec_file import read_spec
from treegen.review.compiled_trees import read_trees
from tuning_table import create
from tuning_table.table import Failure, Visit

REPOSITORY = Path(__file__).parents[2]
SPEC = read_spec(REPOSITORY / "treegen.yaml")
STATE = CommittedTrees(SPEC, read_trees(SPEC))
KERNEL = STATE.spec.kernels[score_choices.KERNEL]
A, B, C = LAUNCHED = [Config("qblock", rows, 32, num_warps=4, num_stages=2) for rows in (16, 32, 64)]
SPEC_A, SPEC_B, SPEC_C = (spec_config(config, KERNEL) for config in LAUNCHED)
DEVICE = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "multiprocessors": 132}
TINY = SETS["tiny"](0)
NAN = math.nan

Times = Mapping[Config, float | tuple[float, ...] | Failure]


def write_table(
    folder: Path,
    visits: Sequence[Visit],
    configs: Sequence[Config] = LAUNCHED,
    drawn: Sequence[Scenario] = TINY,
    name: str = "tiny",
    features: tuple[str, ...] = FEATURES,
) -> Path:
    entries = [
        {"id": str(c), "variant": c.variant}
        | {name: value for name, value in c._asdict().items() if name in KERNEL.parameters}
        for c in configs
    ]
    table = create(
        folder, kernel="unified_attention", device=DEVICE, timing="made by hand", driver="1", torch="2",
        triton="3", source_hash="0" * 12, date="2026-01-02", seed=0, strategy="race",
        scenario_set=f"{name} (digest {digest(drawn)})", features=features,
        configs=entries,
        scenarios={s.id: [s.batch.features[feature] for feature in features] for s in drawn},
    )  # fmt: skip
    with table:
        for visit in visits:
            table.append(visit.scenario, visit.cells, visit.repeat)
        table.summarise({"seconds": 9.0, "cells_measured": 8, "cells_possible": 16})
    return folder


def flat(times: Mapping[Config, float], repeats: int = 2) -> list[Visit]:
    """The same times in every scenario and repeat."""
    cells = {str(config): time for config, time in times.items()}
    return [Visit(one.id, repeat, cells) for one in TINY for repeat in range(1, repeats + 1)]


def timed(folder: Path, *rows: Times, drawn: Sequence[Scenario] = TINY) -> TimedTable:
    """A table of the first scenarios; several times of a config are repeats."""
    visits = []
    for one, times in zip(drawn, rows, strict=False):
        repeats = {c: time if isinstance(time, tuple) else (time,) for c, time in times.items()}
        for number in range(max(map(len, repeats.values()))):
            cells = {str(c): of[number] for c, of in repeats.items() if number < len(of)}
            visits.append(Visit(one.id, number + 1, cells))
    table = write_table(folder, visits, drawn=drawn[: len(rows)])
    return read_timed_table(table, "nvidia_h100", "tuned", STATE)


def rows_of(table: TimedTable) -> dict[str, list[float]]:
    """By scenario the times of A, B and C, 0 where there is none."""
    columns = [table.problem.configs.index(config) for config in (SPEC_A, SPEC_B, SPEC_C)]
    times = np.nan_to_num(table.times[:, columns])
    return dict(zip(table.problem.scenarios, times.tolist(), strict=True))


@pytest.fixture
def sparse(tmp_path: Path) -> TimedTable:
    return timed(tmp_path / "sparse", {A: 10.0, B: 20.0}, {B: 11.0, C: 10.0}, {B: 11.0, C: 10.0})


@pytest.mark.parametrize("name", SETS)
def test_kinds_and_the_fixed_choice_from_features_are_those_of_the_batch(name: str) -> None:
    for seed in range(4):
        for one in SETS[name](seed):
            batch = one.batch
            assert score_choices.kind(one.id, batch.features) == kind_of(batch.query_lens, batch.context_lens)
            assert fixed_choice(batch.features) == baselines(batch)


@pytest.mark.parametrize("tokens, expected", [(101, "mixed"), (102, "chunk")])
def test_without_a_clear_id_a_mixed_batch_has_few_query_tokens(tokens: int, expected: str) -> None:
    features = {"num_seqs": 2, "num_query_tokens": tokens, "num_kv_tokens": 9000, "max_query_len": 100}
    assert score_choices.kind("mine-7", features) == expected
    assert score_choices.kind("mine-chunk-7", features) == "chunk"
    assert score_choices.kind("mine-mixed-7", features) == "mixed"


def test_shapes_are_named_by_heads_pages_and_cache() -> None:
    heads = {"num_query_heads": 32, "num_kv_heads": 8, "head_size": 128, "block_size": 16}
    assert score_choices.shape({**heads, "kv_element_size": 1}) == "32/8/128 p16 fp8"
    assert score_choices.shape({**heads, "kv_element_size": 2}) == "32/8/128 p16"


def test_a_summary_counts_untimed_choices_and_leaves_them_out() -> None:
    found = summary(np.array([1.0, NAN, 4.0]))
    assert (found.scenarios, found.untimed, found.most) == (3, 1, 4.0)
    assert (found.geomean, found.p95) == (pytest.approx(2.0), pytest.approx(3.85))
    assert summary(np.array([NAN])).geomean is None
    assert summary(np.array([])).scenarios == 0


def test_a_table_is_read_with_its_medians_and_without_failed_cells(tmp_path: Path) -> None:
    broken = Failure("broken")
    table = timed(tmp_path, {A: (10.0, 12.0), B: (1.0, broken), C: 5.0})
    assert rows_of(table) == {TINY[0].id: [11.0, 0.0, 5.0]}
    found = [table.times_of([config])[0] / table.best[0] for config in (SPEC_A, SPEC_B, SPEC_C)]
    assert found == [pytest.approx(2.2), pytest.approx(NAN, nan_ok=True), 1.0]


def test_configs_are_the_same_in_the_spec_s_words_and_as_launched() -> None:
    assert [launch_config(config) for config in (SPEC_A, SPEC_B, SPEC_C)] == LAUNCHED


def test_a_table_of_other_features_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path, flat({A: 1.0}), features=FEATURES[1:])
    with pytest.raises(InputError, match="features must be those of choose"):
        read_timed_table(tmp_path, "nvidia_h100", "tuned", STATE)


def test_a_device_without_a_module_is_refused(sparse: TimedTable) -> None:
    modules = {key: module for key, module in STATE.modules.items() if key[1] != "nvidia_h100"}
    with pytest.raises(
        InputError, match="nvidia_h100: has no module; the generated modules are nvidia_h200,"
    ):
        score_choices.choices(sparse, SPEC_A, replace(STATE, modules=modules))


def test_a_config_timed_only_where_it_suits_is_not_the_single_best(sparse: TimedTable) -> None:
    assert single_best(sparse) == SPEC_B  # 2 * 1.1 * 1.1 = 2.42; C: 4; A: 16


def test_the_share_of_the_gap_is_one_of_logarithms() -> None:
    both = np.array([2.0, NAN, 5.0]), np.array([4.0, 9.0, NAN])
    assert share_of_gap(*both) == pytest.approx(0.5)
    assert share_of_gap(np.array([8.0]), np.array([4.0])) == pytest.approx(-0.5)
    assert share_of_gap(np.array([1.0]), np.array([1.0])) is None


def test_groups_hold_all_then_kinds_then_shapes(tmp_path: Path) -> None:
    problem = timed(tmp_path, *[{A: 1.0}] * len(TINY)).problem
    found = groups(problem)
    assert next(iter(found)) == "all" and len(found["all"]) == len(TINY)
    for word in ("kind", "shape"):
        parts = [rows for name, rows in found.items() if name.startswith(word)]
        assert sorted(row for rows in parts for row in rows) == found["all"]
    for name, rows in found.items():
        for id, values in (scenarios(problem)[row] for row in rows):
            assert name in (
                "all",
                f"kind {score_choices.kind(id, values)}",
                f"shape {score_choices.shape(values)}",
            )


def test_two_tables_are_compared_by_the_cells_of_both(tmp_path: Path) -> None:
    first = timed(tmp_path / "a", {A: 10.0, B: 11.0, C: 5.0}, {A: 10.0, B: 40.0}, {B: 11.0, C: 10.0})
    second = timed(tmp_path / "b", {A: 12.0, B: 11.0}, {A: 10.5, B: 30.0})
    found = compare_tables(first, second)
    assert (found.scenarios, found.differ) == (2, 1)  # A and B; C has no time in the second
    assert found.first_on_second.most == pytest.approx(12 / 11)
    assert found.first_on_second.geomean == pytest.approx(math.sqrt(12 / 11))
    assert found.second_on_first.most == pytest.approx(11 / 10)
    assert (found.when_differ.scenarios, found.when_differ.geomean) == (1, pytest.approx(12 / 11))
    assert found.all is not None and found.near is not None
    assert (found.all.cells, found.all.median) == (4, pytest.approx(0.125))  # 20%, 0%, 5%, 25%
    assert found.all.shift == pytest.approx((1.0 + 1.05) / 2)
    assert (found.near.cells, found.near.median) == (3, pytest.approx(0.05))  # not B in the second scenario


def test_one_id_for_two_scenarios_is_refused(tmp_path: Path) -> None:
    first = timed(tmp_path / "a", {A: 1.0})
    other = Scenario(TINY[0].id, TINY[1].batch)
    second = timed(tmp_path / "b", {A: 1.0}, drawn=[other])
    with pytest.raises(ValueError, match=f"scenario {other.id} has other features"):
        compare_tables(first, second)


def test_another_module_s_choices_are_compared_with_those_of_the_own(sparse: TimedTable) -> None:
    found = compare_modules(sparse, (SPEC_B,) * 3, (SPEC_C,) * 3)
    assert found.differ == 3
    assert found.own.geomean == pytest.approx((2 * 1.1 * 1.1) ** (1 / 3))
    assert (found.other.untimed, found.other.geomean) == (1, pytest.approx(1.0))
    assert (found.other_over_own.untimed, found.other_over_own.most) == (1, pytest.approx(1 / 1.1))
    assert compare_modules(sparse, (SPEC_B,) * 3, (SPEC_B,) * 3).differ == 0


def test_a_second_look_at_the_winner_shows_that_the_best_is_too_low(
    tmp_path: Path, sparse: TimedTable
) -> None:
    """By the first, A wins and takes 12 in the second; by the second, B wins and took 11 in the first."""
    found = optimism(timed(tmp_path / "a", {A: (9.0, 12.0), B: (11.0, 9.0), C: 1.0}).problem)
    assert found is not None and found.scenarios == 1
    assert found.second_look == pytest.approx(math.sqrt(12 * 11) / 10.0)
    certain = optimism(timed(tmp_path / "b", {A: (10.0, 10.0), B: (20.0, 20.0)}).problem)
    assert certain is not None and certain.second_look == pytest.approx(1.0)
    assert optimism(sparse.problem) is None


def test_the_best_of_some_configs(sparse: TimedTable) -> None:
    assert best_of([SPEC_A, SPEC_B], sparse).geomean == pytest.approx(1.1 ** (2 / 3))
    assert best_of([SPEC_A], sparse).untimed == 2


def test_the_portfolio_is_timed_wherever_it_may_be_launched(tmp_path: Path) -> None:
    configs = [config for config in declared("nvidia") if config.variant != "naive"][:40]
    possible = find_possible(TINY, configs, gpu_of(DEVICE)).problem.candidates
    everywhere, left_out = [Config.parse(id) for id in possible[TINY[0].id]][:2]
    cells = {one.id: dict.fromkeys(possible[one.id], 1.0) for one in TINY}
    del cells[TINY[0].id][str(left_out)]
    visits = [Visit(id, 1, times) for id, times in cells.items()]

    tiny = write_table(tmp_path / "tiny", visits, configs)
    found = portfolio(read_timed_table(tiny, "nvidia_h100", "tuned", STATE))
    assert found is not None and len(found) == len({id for ids in possible.values() for id in ids}) - 1
    assert everywhere in map(launch_config, found) and left_out not in map(launch_config, found)
    mine = write_table(tmp_path / "mine", visits, configs, name="recorded")
    assert portfolio(read_timed_table(mine, "nvidia_h100", "tuned", STATE)) is None


def test_a_replayed_race_with_time_enough_finds_the_best(tmp_path: Path) -> None:
    none, full = replay(write_table(tmp_path, flat({A: 10.0, B: 9.0, C: 12.0})), (1e-9, 1e6))
    assert none.lost.untimed == len(TINY)
    assert (full.lost.untimed, full.lost.most) == (0, pytest.approx(1.0))
    assert 0.5 < full.share <= 1.0  # C is hopeless in some


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of two devices: on the second, B is the best, and vLLM's choices have a time everywhere."""
    monkeypatch.chdir(REPOSITORY)
    fixed = {baselines(one.batch) for one in TINY}
    for folder, best in (
        ("nvidia_h100", 10.0),
        ("untuned_nvidia_h100", 10.0),
        ("nvidia_h100_second", 10.5),
        ("nvidia_h200", 40.0),
    ):
        times = {A: best, B: 20.0, **dict.fromkeys(fixed, 30.0)}
        write_table(tmp_path / "in" / folder, flat(times), list(times))
    return tmp_path / "in"


def test_the_command_prints_and_writes_what_it_finds(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    chosen = ["--tables", str(tables), "--devices", "nvidia_h100,nvidia_h200", "--out", str(out)]
    assert tuned.main(chosen) == 0
    printed = capsys.readouterr().out
    assert f"no table {tables}/untuned_nvidia_h200: left out" in printed
    assert "the best config differs in 8 of 8 scenarios" in " ".join(printed.split())
    found = json.loads((out / "tuned.json").read_text())
    sets = [(table["device"], table["set"]) for table in found["tables"]]
    assert sets == [("nvidia_h100", name) for name in ("tuned", "untuned", "second run")] + [
        ("nvidia_h200", "tuned")
    ]
    first = found["tables"][0]
    assert first["single"] == str(A)
    assert first["figures"]["all"]["vllm"]["geomean"] == pytest.approx(3.0)
    assert first["figures"]["all"]["single"]["geomean"] == pytest.approx(1.0)
    entry = first["scenarios"][0]
    assert (entry["best"], entry["choices"]["vllm"][1]) == ([str(A), 10.0], 30.0)
    assert [pair["set"] for pair in found["devices"]] == ["tuned"]
    assert found["devices"][0]["best"]["second_on_first"]["most"] == pytest.approx(2.0)
    assert found["noise"][0]["pair"]["all"]["p99"] == pytest.approx(0.05)
    assert (found["searches"][0]["device"], found["searches"][0]["cells_possible"]) == ("nvidia_h100", 16)
    pytest.importorskip("matplotlib")
    paths = tuned_plots.draw(out / "tuned.json")
    assert [path.name for path in paths] == ["tuned_nvidia_h100.png", "tuned_nvidia_h200.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.parametrize("arguments, message", [
    (["--devices", "amd_mi300x"], "no such table folder"),
    (["--devices", "nvidia_h999"], "has no device nvidia_h999"),
    (["--devices", ","], "--devices needs a device key"),
    (["--devices", "nvidia_h100", "--worst", "-1"], "--worst a count"),
])  # fmt: skip
def test_wrong_use_is_one_line(
    arguments: list[str],
    message: str,
    tables: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        tuned.main(["--tables", str(tables), *arguments])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize("folder", sorted((REPOSITORY / "tuning_data/unified_attention").glob("*")), ids=str)
def test_the_fixed_choice_was_timed_in_every_committed_scenario(folder: Path) -> None:
    device = re.sub("^(untuned_|options_|other_heads_)*|_second$", "", folder.name)
    table = read_timed_table(folder, device, "", STATE)
    fixed = [spec_config(fixed_choice(values), KERNEL) for _, values in scenarios(table.problem)]
    assert len(fixed) and not np.isnan(table.times_of(fixed)).any()

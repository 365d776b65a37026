"""What `benchmarks.trees.tuned` computes from tables, on small ones with known answers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from attn_kernels import Config
from attn_kernels.tuning.scenarios.scenario import FEATURES, kind_of
from attn_kernels.tuning.scenarios.serving import SETS
from benchmarks.trees import score_choices, tuned
from benchmarks.trees.score_choices import (
    TimedTable,
    compare_tables,
    read_timed_table,
    single_best,
    summary,
)
from treegen.core.spec import Config as SpecConfig
from treegen.read.spec import read_spec
from treegen.review.modules import read_modules
from tuning_table import create
from tuning_table.table import Failure, Visit

REPOSITORY = Path(__file__).parents[2]
SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNEL = SPEC.kernels[score_choices.KERNEL]
A, B, C = LAUNCHED = [Config("qblock", rows, 32, num_warps=4, num_stages=2) for rows in (16, 32, 64)]
SPEC_A, SPEC_B, SPEC_C = (
    SpecConfig("qblock", tuple((name, getattr(config, name)) for name in KERNEL.parameters))
    for config in LAUNCHED
)
DEVICE = {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "multiprocessors": 132}
TINY = SETS["quick"](0)[:8]  # eight batches of heads that the spec allows
NAN = math.nan

Times = Mapping[Config, float | tuple[float, ...] | Failure]


def write_table(folder: Path, visits: Sequence[Visit], configs: Sequence[Config] = LAUNCHED) -> Path:
    entries = [
        {"id": str(c), "variant": c.variant}
        | {name: value for name, value in c._asdict().items() if name in KERNEL.parameters}
        for c in configs
    ]
    table = create(
        folder, kernel="unified_attention", device=DEVICE, timing="made by hand", driver="1", torch="2",
        triton="3", source_hash="0" * 12, date="2026-01-02", seed=0, strategy="race",
        scenario_set="quick", features=FEATURES, configs=entries,
        scenarios={s.name: [s.features[feature] for feature in FEATURES] for s in TINY},
    )  # fmt: skip
    with table:
        for visit in visits:
            table.append(visit.scenario, visit.cells, visit.repeat)
    return folder


def flat(times: Mapping[Config, float], repeats: int = 2) -> list[Visit]:
    """The same times in every scenario and repeat."""
    cells = {str(config): time for config, time in times.items()}
    return [Visit(one.name, repeat, cells) for one in TINY for repeat in range(1, repeats + 1)]


def timed(folder: Path, *rows: Times) -> TimedTable:
    """A table of the first scenarios; several times of a config are repeats."""
    visits = []
    for one, times in zip(TINY, rows, strict=False):
        repeats = {c: time if isinstance(time, tuple) else (time,) for c, time in times.items()}
        for number in range(max(map(len, repeats.values()))):
            cells = {str(c): of[number] for c, of in repeats.items() if number < len(of)}
            visits.append(Visit(one.name, number + 1, cells))
    return read_timed_table(write_table(folder, visits), "nvidia_h100", "tuned", SPEC)


@pytest.fixture
def sparse(tmp_path: Path) -> TimedTable:
    return timed(tmp_path / "sparse", {A: 10.0, B: 20.0}, {B: 11.0, C: 10.0}, {B: 11.0, C: 10.0})


def test_kinds_from_features_are_those_of_the_batch() -> None:
    for one in (scenario for name in SETS for scenario in SETS[name](0)):
        assert score_choices.kind(one.name, one.features) == kind_of(one.query_lens, one.context_lens)


def test_a_summary_counts_untimed_choices_and_leaves_them_out() -> None:
    found = summary(np.array([1.0, NAN, 4.0]))
    assert (found.scenarios, found.untimed, found.most) == (3, 1, 4.0)
    assert (found.geomean, found.p95) == (pytest.approx(2.0), pytest.approx(3.85))
    assert summary(np.array([NAN])).geomean is None
    assert summary(np.array([])).scenarios == 0


def test_a_table_is_read_with_its_medians_and_without_failed_cells(tmp_path: Path) -> None:
    broken = Failure("broken")
    table = timed(tmp_path, {A: (10.0, 12.0), B: (1.0, broken), C: 5.0})
    found = [table.times_of([config])[0] / table.best[0] for config in (SPEC_A, SPEC_B, SPEC_C)]
    assert found == [pytest.approx(2.2), pytest.approx(NAN, nan_ok=True), 1.0]


def test_a_config_timed_only_where_it_suits_is_not_the_single_best(sparse: TimedTable) -> None:
    assert single_best(sparse) == SPEC_B  # 2 * 1.1 * 1.1 = 2.42; C: 4; A: 16


def test_two_tables_are_compared_by_the_cells_of_both(tmp_path: Path) -> None:
    first = timed(tmp_path / "a", {A: 10.0, B: 11.0, C: 5.0}, {A: 10.0, B: 40.0}, {B: 11.0, C: 10.0})
    second = timed(tmp_path / "b", {A: 12.0, B: 11.0}, {A: 10.5, B: 30.0})
    found = compare_tables(first, second)
    assert (found.scenarios, found.differ) == (2, 1)  # A and B; C has no time in the second
    assert found.first_on_second.most == pytest.approx(12 / 11)
    assert found.first_on_second.geomean == pytest.approx(math.sqrt(12 / 11))
    assert found.second_on_first.most == pytest.approx(11 / 10)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of two devices: on the second, B is the best."""
    monkeypatch.chdir(REPOSITORY)
    for folder, best in (("nvidia_h100", 10.0), ("other_models_nvidia_h100", 10.0), ("nvidia_h200", 40.0)):
        write_table(tmp_path / "in" / folder, flat({A: best, B: 20.0}))
    return tmp_path / "in"


def test_results_of_tables_are_scored_and_compared(tables: Path) -> None:
    devices = ["nvidia_h100", "nvidia_h200"]
    read, missing = tuned.read_tables(tables, devices, SPEC)
    assert any(f"{tables}/other_models_nvidia_h200" in line for line in missing)
    assert list(read) == [
        ("nvidia_h100", "tuned"),
        ("nvidia_h100", "other models"),
        ("nvidia_h200", "tuned"),
    ]
    modules, table = read_modules(SPEC), read["nvidia_h100", "tuned"]
    first = tuned.table_scores(table, single_best(table), modules)
    assert first.single == str(A)
    assert first.figures["all"]["single"].geomean == pytest.approx(1.0)
    assert first.scenarios[0]["best"] == (str(A), 10.0)
    found = tuned.lines(read, [first], devices, modules, 0)
    (pair,) = (line for line in found if "best config differs" in line)
    assert ", tuned: " in pair and pair.endswith("8 of 8 scenarios")
    (worse,) = (line for line in found if line.startswith("best of nvidia_h200 on nvidia_h100"))
    assert worse.split()[-2] == "2.00"


def test_the_command_prints_and_draws(
    tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--tables", str(tables), "--devices", "nvidia_h100", "--out", str(tmp_path / "out")]
    assert tuned.main(arguments) == 0
    assert "kind decode" in capsys.readouterr().out
    assert (tmp_path / "out" / "tuned_nvidia_h100.png").stat().st_size > 1000

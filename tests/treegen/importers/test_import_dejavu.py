"""treegen import dejavu: a cache becomes a table of winners that treegen itself can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import contents
from treegen_caches import SCENARIOS, cache, write_cache

from treegen.cli.main import main
from treegen.core.files import device_key
from treegen.core.table import Cells, median_times
from treegen.read.problem import read_table

Refuse = Callable[..., str]


def _import(folder: Path, *options: str) -> int:
    return main(["import", "dejavu", str(folder / "caches"), "--to", str(folder / "tables"), *options])


@pytest.fixture
def table(tmp_path: Path) -> Any:
    write_cache(tmp_path / "caches")
    assert _import(tmp_path, "--origin", "A paper", "--licence", "Apache-2.0") == 0
    return read_table(tmp_path / "tables/my_kernel/nvidia_h100")


def test_the_winners_and_their_times(table: Any) -> None:
    assert (table.kernel, table.device_name) == ("my_kernel", "NVIDIA H100 80GB HBM3")
    assert table.cells is Cells.WINNERS
    parameters = [dict(config.parameters) for config in table.configs]
    assert parameters == [
        {"BLOCK": 16, "num_warps": 2, "fast": 0},
        {"BLOCK": 16, "num_warps": 8, "fast": 0},
        {"BLOCK": 128, "num_warps": 8, "fast": 1},
    ]
    times = median_times(table)
    assert [[cell if cell == cell else None for cell in row] for row in times.tolist()] == [
        [10, None, None],
        [None, None, 20],
        [None, 1500, None],
        [250, None, None],
    ]


def test_integer_keys_become_features_and_truths_become_0_and_1(table: Any) -> None:
    assert table.feature_names[:3] == ("SEQ", "HEADS", "CAUSAL")
    assert table.features[:, :3].tolist() == [[16, 4, 1], [32, 4, 0], [64, 4, 0], [128, 4, 1]]


def test_words_that_are_the_same_everywhere_are_columns_as_other_tables_may_differ(table: Any) -> None:
    assert table.feature_names[3:] == ("DTYPE", "argument_dtype_0")
    assert table.words["DTYPE"] == {0: "bf16"}
    assert "maxnreg" not in table.configs[0].parameters  # None is what Triton takes by itself


def test_where_it_came_from(table: Any) -> None:
    origin = table.provenance["origin"]
    assert (origin["published_by"], origin["licence"]) == ("A paper", "Apache-2.0")
    tools = (origin["tool"], origin["triton"], origin["toolkit"])
    assert tools == ("triton-dejavu 0.7", "3.3.0", "cuda 12.4")
    assert (origin["evaluated_configs"], origin["tuning_seconds"], origin["code_version"]) == (540, 13, "1b")
    assert table.provenance["timing"] == {"rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": True}


def test_what_is_written_says_that_it_was_imported(tmp_path: Path, table: Any) -> None:
    text = (tmp_path / "tables/my_kernel/nvidia_h100/run.yaml").read_text()
    assert text.startswith("# Imported by `treegen import dejavu`, not measured by this project.\n# Only win")


@pytest.mark.parametrize(("unit", "factor"), [("s", 1e6), ("ms", 1e3), ("us", 1), ("ns", 1e-3)])
def test_units_of_time(tmp_path: Path, unit: str, factor: float) -> None:
    times = {key: [50.0] for key in SCENARIOS}
    write_cache(tmp_path / "caches", cache(timings=times, timings_data={"labels": [unit]}))
    assert _import(tmp_path) == 0
    found = median_times(read_table(tmp_path / "tables/my_kernel/nvidia_h100"))
    assert sorted(cell for row in found.tolist() for cell in row if cell == cell) == [50 * factor] * 4


def test_the_same_cache_again_changes_nothing(tmp_path: Path, table: Any) -> None:
    before = contents(tmp_path)
    assert _import(tmp_path, "--origin", "A paper", "--licence", "Apache-2.0") == 0
    assert contents(tmp_path) == before


def test_another_table_is_replaced_only_on_request(tmp_path: Path, table: Any, refusal: Refuse) -> None:
    arguments = ["import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables"]
    line = refusal(tmp_path, *arguments, "--origin", "Another paper")
    folder = tmp_path / "tables/my_kernel/nvidia_h100"
    assert line.startswith(f"{folder}: ") and "--replace" in line
    assert _import(tmp_path, "--origin", "Another paper", "--replace") == 0
    replaced = read_table(tmp_path / "tables/my_kernel/nvidia_h100")
    assert replaced.provenance["origin"]["published_by"] == "Another paper"


def test_a_measured_table_is_never_replaced(tmp_path: Path, table: Any, refusal: Refuse) -> None:
    run = tmp_path / "tables/my_kernel/nvidia_h100/run.yaml"
    arguments = ["import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables", "--replace"]
    run.write_text(run.read_text().partition("\n")[2])
    assert "nvidia_h100" in refusal(tmp_path, *arguments)
    run.unlink()
    assert "run.yaml" in refusal(tmp_path, *arguments)


def test_one_folder_for_each_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cache(tmp_path / "caches")
    write_cache(tmp_path / "caches", gpu="AMD_Instinct_MI300X")
    assert _import(tmp_path) == 0
    assert {path.name for path in (tmp_path / "tables/my_kernel").iterdir()} == {"nvidia_h100", "amd_mi300x"}
    out = capsys.readouterr().out
    assert f"{tmp_path}/tables/my_kernel/amd_mi300x: 4 scenarios, 3 configs, winners only\n" in out


def test_a_table_for_each_version_of_triton(tmp_path: Path) -> None:
    for version in ("3.3.0", "3.4.0"):
        write_cache(tmp_path / "caches", triton=version)
    assert _import(tmp_path) == 0
    kernels = {path.name for path in (tmp_path / "tables").iterdir()}
    assert kernels == {"my_kernel_triton_3_3_0", "my_kernel_triton_3_4_0"}
    assert _import(tmp_path, "--triton", "3.4.0") == 0
    origin = read_table(tmp_path / "tables/my_kernel/nvidia_h100").provenance["origin"]
    assert origin["triton"] == "3.4.0"


def test_two_caches_for_one_table_are_refused(tmp_path: Path, refusal: Refuse) -> None:
    for folder in ("a", "b"):
        write_cache(tmp_path / "caches" / folder)
    assert "caches" in refusal(tmp_path, "import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables")


def test_only_the_named_kernel(tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches")
    arguments = ["import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables", "--kernel"]
    assert "other" in refusal(tmp_path, *arguments, "other")
    assert main([*map(str, arguments), "my_kernel"]) == 0


def _imported(folder: Path, content: dict[str, Any]) -> Any:
    write_cache(folder / "caches", content)
    assert _import(folder) == 0
    return read_table(folder / "tables/my_kernel/nvidia_h100")


def test_a_plain_cache_file_needs_the_gpus_name(tmp_path: Path, table: Any) -> None:
    (tmp_path / "cache.json").write_text(json.dumps(cache()))
    arguments = ["import", "dejavu", tmp_path / "cache.json", "--to", tmp_path / "plain"]
    assert main([*map(str, arguments), "--device", "NVIDIA H100 80GB HBM3"]) == 0
    plain = read_table(tmp_path / "plain/my_kernel/nvidia_h100")
    assert (plain.configs, plain.device_name) == (table.configs, table.device_name)
    assert plain.features.tolist() == table.features.tolist()
    assert (
        plain.provenance["origin"]["tool"] == "triton-dejavu" and "triton" not in plain.provenance["origin"]
    )


def test_texts_that_vary_become_integers_with_words(tmp_path: Path) -> None:
    first = next(iter(SCENARIOS))
    rows = {k.replace("bf16", "fp16") if k == first else k: c for k, (c, _) in SCENARIOS.items()}
    found = _imported(tmp_path, cache(cache=rows, timings={key: [1.0] for key in rows}))
    assert found.words["DTYPE"] == {0: "bf16", 1: "fp16"}
    assert found.words["fast"] == {0: "false", 1: "true"}
    assert found.features[:, 3].tolist() == [1, 0, 0, 0]


def test_none_of_triton_beside_numbers_is_absent(tmp_path: Path) -> None:
    keys = list(SCENARIOS)[:2]
    rows = dict(zip(keys, ("BLOCK: 16, maxnreg: None", "BLOCK: 16, maxnreg: 64"), strict=True))
    found = _imported(tmp_path, cache(cache=rows, timings={key: [1.0] for key in rows}))
    assert [dict(config.parameters) for config in found.configs] == [
        {"BLOCK": 16, "maxnreg": 0},
        {"BLOCK": 16, "maxnreg": 64},
    ]
    assert found.words["maxnreg"] == {0: "absent"}


def test_configs_with_long_names_are_numbered(tmp_path: Path) -> None:
    many = ", ".join(f"a_rather_long_parameter_{i}: {{}}" for i in range(6))
    keys = list(SCENARIOS)[:2]
    rows = dict(zip(keys, (many.format(*range(1, 7)), many.format(*range(6))), strict=True))
    found = _imported(tmp_path, cache(cache=rows, timings={key: [1.0] for key in rows}))
    assert [config.id for config in found.configs] == ["c0001", "c0002"]
    assert found.configs[0].parameters["a_rather_long_parameter_0"] == 0


def test_columns_keep_their_order_when_winners_move(tmp_path: Path, table: Any) -> None:
    swapped = dict(zip(SCENARIOS, reversed([config for config, _ in SCENARIOS.values()]), strict=True))
    write_cache(tmp_path / "other/caches", cache(cache=swapped))
    assert _import(tmp_path / "other") == 0
    other = read_table(tmp_path / "other/tables/my_kernel/nvidia_h100")
    assert [config.id for config in other.configs] == [config.id for config in table.configs]


GPUS = {
    "NVIDIA_A100-SXM4-80GB": "nvidia_a100",
    "NVIDIA_H100_NVL": "nvidia_h100",
    "Tesla_V100_NVIDIA": "nvidia_v100",
    "AMD_Instinct_MI250X_MI250": "amd_mi250x",
    "NVIDIA GeForce RTX 4090": "nvidia_rtx_4090",
    "Mystery": "mystery",
    "!": "unknown",
}


@pytest.mark.parametrize(("gpu", "key"), GPUS.items())
def test_the_key_of_a_gpu_is_vendor_and_model(gpu: str, key: str) -> None:
    assert device_key(gpu) == key

"""Broken triton-dejavu caches: status 2, one line that names the cache, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_caches import SCENARIOS, cache, write_cache

from treegen.cli.main import main
from treegen.read.problem import read_table

Refuse = Callable[..., str]
FIRST, *REST = SCENARIOS


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in cache().items() if name != key}


def _scenario(key: str, **changes: Any) -> dict[str, Any]:
    """The cache with its first scenario under another key."""
    rows = {key if name == FIRST else name: config for name, (config, _) in SCENARIOS.items()}
    return cache(cache=rows, timings={name: [1.0] for name in rows}, **changes)


def _config(text: object) -> dict[str, Any]:
    return cache(cache={name: text if name == FIRST else config for name, (config, _) in SCENARIOS.items()})


def _time(value: object) -> dict[str, Any]:
    return cache(timings={name: value if name == FIRST else [1.0] for name in SCENARIOS})


def _two(first: str, second: str) -> dict[str, Any]:
    keys = list(SCENARIOS)[:2]
    return cache(cache=dict(zip(keys, (first, second), strict=True)), timings={key: [1.0] for key in keys})


FIELDS = ["signature", "keys", "cache", "timings", "timings_data", "evaluated_configs", "total_bench_time_s"]
BROKEN: list[dict[str, Any] | str] = [
    *("{", "", "[]", "[" * 100_000),  # no JSON object
    *(_without(field) for field in FIELDS),
    *(cache(cache=[]), cache(cache={})),
    *(cache(signature=text) for text in ("my_kernel", "JITFunction(a:class)", "JITFunction(a:../../etc)")),
    _scenario("__import__('os').system('touch owned')"),
    _scenario("['16', '4', 'True', 'bf16']"),
    _scenario("(16, 4, True, 'bf16')"),
    _scenario("(" * 5000 + ")" * 5000),
    _scenario("('16', '4')"),
    _scenario("('1.5', '4', 'True', 'bf16', 'torch.bfloat16')"),
    _scenario(f"('{10**18}', '4', 'True', 'bf16', 'x')"),
    cache(keys=["A", "B", "C", "D", "E", "F"]),
    *(cache(keys=[name, "HEADS", "CAUSAL", "DTYPE"]) for name in ("HEADS", "if", "a\nimport os")),
    cache(keys=[], cache={"()": "BLOCK: 16"}, timings={"()": [1.0]}),
    *(_config(text) for text in (["BLOCK: 16"], "BLOCK", "BLOCK: 16, BLOCK: 32")),
    _config("BLOCK: 16, num_warps: fast, fast: True, maxnreg: None"),
    *(_time(value) for value in ([], ["fast"], None, [-1.0], [0], [float("nan")], [1e-8])),
    json.dumps(_time([0])).replace("[0]", "[1" + "0" * 400 + "]", 1),
    cache(total_bench_time_s=float("inf")),
    *(cache(timings_data={"labels": labels}) for labels in (["hours"], {"a": "ms"}, [["ms"]])),
    _two("variant: 1, B: 2", "variant: 2, B: 2"),
    *(_two(f"B: {value}", "B: 2") for value in (-(10**10), 2**31)),
]


def _import(folder: Path, *options: str) -> list[str]:
    return ["import", "dejavu", str(folder / "caches"), "--to", str(folder / "tables"), *options]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_cache_is_refused_by_name(
    tmp_path: Path, refusal: Refuse, content: dict[str, Any] | str
) -> None:
    path = write_cache(tmp_path / "caches", content)
    assert refusal(tmp_path, *_import(tmp_path)).startswith(f"{path}: ")


def test_configs_that_are_all_the_same_may_begin_with_a_text(tmp_path: Path) -> None:
    write_cache(tmp_path / "caches", _two("maxnreg: None, B: 1", "maxnreg: None, B: 1"))
    assert main(_import(tmp_path)) == 0


def test_a_scenario_that_appears_twice(tmp_path: Path, refusal: Refuse) -> None:
    text = json.dumps(cache())
    entry = f"{json.dumps(FIRST)}: {json.dumps(SCENARIOS[FIRST][0])}, "
    assert text.count(entry) == 1
    write_cache(tmp_path / "caches", text.replace(entry, entry + entry.replace("BLOCK: 16", "BLOCK: 32")))
    refusal(tmp_path, *_import(tmp_path))


def test_a_table_in_the_way_that_is_no_text(tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches")
    folder = tmp_path / "tables/my_kernel/nvidia_h100"
    folder.mkdir(parents=True)
    for name in ("run.yaml", "scenarios.csv", "times.csv"):
        (folder / name).write_bytes(b"\xff")
    refusal(tmp_path, *_import(tmp_path))


def test_one_broken_cache_among_good_ones_stops_all(tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches")
    path = write_cache(tmp_path / "caches", "{", gpu="AMD_Instinct_MI300X")
    assert refusal(tmp_path, *_import(tmp_path)).startswith(f"{path}: ")


def test_a_cache_outside_of_its_folders_needs_the_name_of_the_gpu(tmp_path: Path, refusal: Refuse) -> None:
    (tmp_path / "cache.json").write_text(json.dumps(cache()))
    assert "--device" in refusal(tmp_path, "import", "dejavu", tmp_path, "--to", tmp_path / "tables")


@pytest.mark.parametrize("source", ["none", ""])
def test_a_source_without_a_cache_is_refused(tmp_path: Path, refusal: Refuse, source: str) -> None:
    refusal(tmp_path, "import", "dejavu", tmp_path / source, "--to", tmp_path / "tables")


def test_a_gpu_name_cannot_lead_outside(tmp_path: Path) -> None:
    write_cache(tmp_path / "caches", gpu="..")
    assert main(_import(tmp_path)) == 0
    assert [path.name for path in (tmp_path / "tables/my_kernel").iterdir()] == ["unknown"]


def test_credit_is_text_and_nothing_else(tmp_path: Path) -> None:
    write_cache(tmp_path / "caches")
    credit = "x}\nkernel: other\n# '\"\u2028 !!python/object:os.system [*a]"
    assert main(_import(tmp_path, "--origin", credit, "--licence", credit)) == 0
    table = read_table(tmp_path / "tables/my_kernel/nvidia_h100")
    assert table.kernel == "my_kernel"
    assert table.provenance["origin"]["published_by"] == table.provenance["origin"]["licence"] == credit

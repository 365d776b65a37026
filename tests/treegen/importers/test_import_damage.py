"""Broken triton-dejavu caches: status 2, one line that names the cache, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_caches import SCENARIOS, cache, write_cache

from treegen.cli.main import main
from treegen.read.table_file import read_table

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
UNREADABLE = "gives a table that treegen refuses"
VARIES, NO_LIST = "varies but is not an integer", "is not a list of NAME: VALUE"
BROKEN: list[tuple[dict[str, Any] | str, str]] = [
    ("{", "not valid JSON"),
    ("", "not valid JSON"),
    ("[]", "is no file of triton-dejavu: it must hold a JSON object"),
    ("[" * 100_000, "not valid JSON"),
    *((_without(field), f"lacks a proper '{field}'") for field in FIELDS),
    (cache(cache=[]), "lacks a proper 'cache'"),
    (cache(cache={}), "holds no scenario"),
    (cache(signature="my_kernel"), "names no kernel"),
    (cache(signature="JITFunction(a:class)"), "names no kernel"),
    (cache(signature="JITFunction(a:../../etc)"), "names no kernel"),
    (_scenario("__import__('os').system('touch owned')"), "is not a tuple of texts"),
    (_scenario("['16', '4', 'True', 'bf16']"), "is not a tuple of texts"),
    (_scenario("(16, 4, True, 'bf16')"), "is not a tuple of texts"),
    (_scenario("(" * 5000 + ")" * 5000), "is not a tuple of texts"),
    (_scenario("('16', '4')"), "do not match its 'keys'"),
    (cache(keys=["A", "B", "C", "D", "E", "F"]), "do not match its 'keys'"),
    (_scenario("('1.5', '4', 'True', 'bf16', 'torch.bfloat16')"), VARIES),
    (_scenario(f"('{10**18}', '4', 'True', 'bf16', 'x')"), VARIES),
    (cache(keys=["SEQ", "SEQ", "CAUSAL", "DTYPE"]), "key 'SEQ' appears twice"),
    (cache(keys=["if", "HEADS", "CAUSAL", "DTYPE"]), "feature 'if' is a word of Python"),
    (cache(keys=["a\nimport os", "HEADS", "CAUSAL", "DTYPE"]), "is not a plain name"),
    (
        cache(keys=[], cache={"()": "BLOCK: 16"}, timings={"()": [1.0]}),
        "has no feature that is an integer or varies",
    ),
    (_config(["BLOCK: 16"]), NO_LIST),
    (_config("BLOCK"), NO_LIST),
    (_config("BLOCK: 16, BLOCK: 32"), NO_LIST),
    (_config("BLOCK: 16, num_warps: 2"), "have different parameters"),
    (_config("BLOCK: 16, num_warps: 2, fast: slow, maxnreg: None"), f"'fast' {VARIES}"),
    (_time([]), "has no time"),
    (_time(["fast"]), "has no time"),
    (_time(None), "has no time"),
    (_time([-1.0]), "has the time -1000.0 microseconds"),
    (_time([0]), "has the time 0.0 microseconds"),
    (_time([float("nan")]), "NaN is not a number"),
    (json.dumps(_time([0])).replace("[0]", "[1" + "0" * 400 + "]", 1), "has the time"),
    (cache(total_bench_time_s=float("inf")), "Infinity is not a number"),
    (cache(timings_data={"labels": ["hours"]}), "unknown unit of time 'hours'"),
    (cache(timings_data={"labels": {"a": "ms"}}), "unknown unit of time a mapping"),
    (cache(timings_data={"labels": [["ms"]]}), "unknown unit of time ['ms']"),
    (_time([1e-8]), "has the time"),
    (_two("variant: 1, B: 2", "variant: 2, B: 2"), UNREADABLE),
    (_two("B: -1", "B: 2"), UNREADABLE),
    (_two(f"B: {2**31}", "B: 2"), UNREADABLE),
]


def _import(folder: Path, *options: str) -> list[str]:
    return ["import", "dejavu", str(folder / "caches"), "--to", str(folder / "tables"), *options]


@pytest.mark.parametrize(("content", "says"), BROKEN)
def test_broken_cache(tmp_path: Path, refusal: Refuse, content: dict[str, Any] | str, says: str) -> None:
    path = write_cache(tmp_path / "caches", content)
    line = refusal(tmp_path, *_import(tmp_path))
    assert line.startswith(f"{path}: ") and says in line


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


def test_no_utf8(tmp_path: Path, refusal: Refuse) -> None:
    path = write_cache(tmp_path / "caches")
    path.write_bytes(b"\xff")
    line = refusal(tmp_path, *_import(tmp_path))
    assert line == f"{path}: not UTF-8 text (byte 0)"


def test_one_broken_cache_among_good_ones_stops_all(tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches")
    path = write_cache(tmp_path / "caches", "{", gpu="AMD_Instinct_MI300X")
    assert refusal(tmp_path, *_import(tmp_path)).startswith(f"{path}: not valid JSON")


def test_a_cache_outside_of_its_folders(tmp_path: Path, refusal: Refuse) -> None:
    (tmp_path / "cache.json").write_text(json.dumps(cache()))
    line = refusal(tmp_path, "import", "dejavu", tmp_path, "--to", tmp_path / "tables")
    assert "lies outside triton-dejavu's folders" in line and "name it with --device NAME" in line


@pytest.mark.parametrize("source", ["none", ""])
def test_no_cache(tmp_path: Path, refusal: Refuse, source: str) -> None:
    line = refusal(tmp_path, "import", "dejavu", tmp_path / source, "--to", tmp_path / "tables")
    assert line.endswith(
        "no such file or folder" if source else "holds no file of triton-dejavu (cache.json)"
    )


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

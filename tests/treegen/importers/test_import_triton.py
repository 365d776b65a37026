"""treegen import triton: files that Triton's own autotuner writes, on the installed version of Triton."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from treegen_builders import REPOSITORY
from tuned_files import ENTRY, GPU, NAMED

from treegen.cli.main import main
from treegen.core.table import Cells, Table, median_times
from treegen.read.problem import read_table
from triton_tune.launch.features import word_of

Refuse = Callable[..., str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Triton cache folder."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run(
        [sys.executable, REPOSITORY / "tests/helpers/write_triton_cache.py"],
        env={**environment, "TRITON_CACHE_DIR": str(folder)},
        check=True,
    )
    return folder


def _import(source: Path, to: Path, *options: str) -> Table:
    assert main(["import", "triton", str(source), "--to", str(to), *options]) == 0
    return read_table(to / "scale/nvidia_h100")


def test_all_times_of_a_cache_that_triton_wrote(written: Path, tmp_path: Path) -> None:
    table = _import(written, tmp_path, *NAMED)
    assert (table.kernel, table.device_name, table.cells) == ("scale", GPU, Cells.MEASURED)
    assert table.feature_names == ("n", "causal", "argument_dtype_0")
    assert table.words == {"argument_dtype_0": {0: "float16", 1: "float32"}}
    by_n = dict(zip(table.features[:, 0].tolist(), median_times(table).tolist(), strict=True))
    assert by_n == {1000: [4, 6, math.inf], 1 << 20: [90, 30, 50]}
    assert sorted(map(tuple, table.features.tolist())) == [(1000, 0, 1), (1 << 20, 1, 0)]
    assert [dict(config.parameters) for config in table.configs][1] == {
        "BLOCK": 1024,
        "num_warps": 4,
        "num_ctas": 1,
        "num_stages": 3,
    }
    assert not {"maxnreg", "ir_override"} & set(table.configs[0].parameters)


def _write(folder: Path, key: Any, entries: str, name: str = "scale.autotune.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'{{"key": {json.dumps(key)}, "configs_timings": {entries}}}')
    return path


def test_words_are_those_that_tuned_looks_for_under_the_names_that_it_reads(tmp_path: Path) -> None:
    for n, x in enumerate((torch.bfloat16, torch.float32, torch.float32)):  # the same key twice
        _write(tmp_path / str(n), [8, str(x), str(torch.float16), str(x)], f"[{ENTRY}]")
    table = _import(tmp_path, tmp_path / "to", "--device", GPU, "--features", "n,x_ptr_dtype")
    for name in ("x_ptr_dtype", "argument_dtype_1"):
        assert table.words[name] == {0: "bfloat16", 1: "float32"}
    assert word_of(torch.bfloat16) == table.words["x_ptr_dtype"][0]
    assert (len(table.scenarios), table.row_repeat.tolist()) == (2, [1, 1, 2])


def test_a_name_that_no_package_can_have_is_made_plain(tmp_path: Path, refusal: Refuse) -> None:
    _write(tmp_path / "a", [8], f"[{ENTRY}]", "_Scale.autotune.json")
    options = ("--device", GPU, "--features", "n")
    for kernel in ([], ["--kernel", "_Scale"], ["--kernel", "scale"]):
        assert _import(tmp_path, tmp_path / "to", *options, *kernel).kernel == "scale"
    path = _write(tmp_path / "b", [9], f"[{ENTRY}]")
    line = refusal(tmp_path, "import", "triton", tmp_path, "--to", tmp_path / "to", *options)
    assert line.startswith(f"{path}: ")
    table = _import(tmp_path, tmp_path / "to", *options, "--kernel", "_Scale")
    assert table.features.tolist() == [[8]]
    spec = tmp_path / "treegen.yaml"
    assert main(["init", str(tmp_path / "to/scale/nvidia_h100"), "--spec", str(spec)]) == 0


@pytest.mark.parametrize(("key", "entries", "options"), [
    ([8], f"[{ENTRY}]", ["--features", "n"]),
    ([8], f"[{ENTRY}]", ["--device", GPU]),
    ([8], f"[{ENTRY}]", ["--device", GPU, "--features", "n,m"]),
    ([[8]], f"[{ENTRY}]", NAMED),
    ([8, 1], "[]", NAMED),
    *(([8, 1], f"[[{config}]]", NAMED) for config in (
        '{"num_warps": 4}, [1.0]',
        *(f'{{"kwargs": {{"B": 1}}}}, [{time}]' for time in ('"fast"', "NaN", "Infinity", "0.0")),
    )),
])  # fmt: skip
def test_what_is_wrong_is_said_of_tritons_file(
    tmp_path: Path, refusal: Refuse, key: Any, entries: str, options: list[str]
) -> None:
    path = _write(tmp_path / "cache", key, entries)
    line = refusal(tmp_path, "import", "triton", tmp_path / "cache", "--to", tmp_path / "to", *options)
    assert line.startswith(f"{path}: ")


def test_other_files_and_folders(tmp_path: Path, refusal: Refuse) -> None:
    path = _write(tmp_path, [8], f"[{ENTRY}]", "cache.json")
    for wrong in (path, tmp_path):
        line = refusal(tmp_path, "import", "triton", wrong, *NAMED)
        assert line.startswith(f"{wrong}: ") and ".autotune.json" in line
    assert "--unit" in refusal(tmp_path, "import", "triton", tmp_path, "--unit", "ms")

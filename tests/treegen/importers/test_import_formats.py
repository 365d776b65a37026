"""treegen import of a long CSV and of aiter (files: tuned_files.py), and whatever the damage of a file."""

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from treegen_builders import contents
from tuned_files import AITER, COLUMNS, CSV, ENTRY, GPU, MOE, NAMED

from treegen.cli.main import main
from treegen.core.table import Cells, Table, median_times
from treegen.read.problem import read_table

Refuse = Callable[..., str]


def _import(to: Path, *arguments: str | Path) -> None:
    assert main(["import", *map(str, arguments), "--to", str(to)]) == 0


def _rows(table: Table) -> list[tuple[list[int], list[float | None]]]:
    times = [[None if time != time else time for time in row] for row in median_times(table).tolist()]
    return list(zip(table.features.tolist(), times, strict=True))


def test_a_long_csv(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(CSV)
    _import(tmp_path, "csv", tmp_path / "all.csv", *COLUMNS)
    table = read_table(tmp_path / "mine/nvidia_h100")
    assert (table.cells, table.feature_names) == (Cells.MEASURED, ("M", "N", "causal", "dtype"))
    assert table.words == {"dtype": {0: "bf16", 1: "fp16"}}
    assert [tuple(config.parameters.values()) for config in table.configs] == [(16, 2), (64, 4)]
    assert _rows(table) == [([1, 64, 1, 0], [11, 20]), ([8, 64, 0, 1], [math.inf, 500])]
    assert table.row_repeat.tolist() == [1, 2, 1]


SMALL = [
    (
        "M,variant,B,note,t\n1,split,4,x,2000\n1,plain,4,y,1000\n",
        "--features M --time t --unit ns --parameters B",
        [("plain", "plain", {"B": 4}), ("split", "split", {"B": 4})],
        [1, 2],
    ),
    (  # texts make variants
        "n,algorithm,order,t_us\n1,Radix-Sort,asc,2\n1,max,asc,1\n1,max,desc,3\n",
        "--features n --time t_us",
        [(name, name, {}) for name in ("max_asc", "max_desc", "radix_sort_asc")],
        [1, 3, 2],
    ),
]


@pytest.mark.parametrize(("text", "options", "configs", "times"), SMALL)
def test_variants_units_and_parameters_of_a_csv(
    tmp_path: Path, text: str, options: str, configs: list[object], times: list[float]
) -> None:
    (tmp_path / "all.csv").write_text(text)
    _import(tmp_path, "csv", tmp_path / "all.csv", *options.split(), "--kernel", "k", "--device", GPU)
    table = read_table(tmp_path / "k/nvidia_h100")
    assert [(c.id, c.variant, c.parameters) for c in table.configs] == configs
    assert _rows(table) == [([1], times)]


@pytest.mark.parametrize(("text", "options"), [
    (CSV, COLUMNS[:2]),
    (CSV, COLUMNS[:4]),
    (CSV, COLUMNS[:6]),
    (CSV, ["--features", "K", *COLUMNS[2:]]),
    (CSV.replace("time_ms", "t"), [*COLUMNS[:2], "--time", "t", *COLUMNS[4:]]),
    (CSV.replace("0.020", "fast"), COLUMNS),
    (CSV.replace("0.020", "-1"), COLUMNS),
    (CSV.replace("1,64,true,bf16,64", "1,64,true,,64"), COLUMNS),
    (CSV.replace("1,64,true,bf16,64", "x,64,true,bf16,64"), COLUMNS),
    (CSV.replace("bf16", "<b>"), COLUMNS),
    (CSV.replace(",0.020", ""), COLUMNS),
    (CSV.partition("\n")[0], COLUMNS),
    ("", COLUMNS),
    *(  # words that cannot be variants
        (f"n,algorithm,t_us\n1,{one},1\n1,{other},1\n",
            ["--features", "n", "--time", "t_us", "--kernel", "k", "--device", GPU])
        for one, other in (("a-b", "a_b"), ("A", "a"), ("1a", "b"), ("ä", "b"))
    ),
])  # fmt: skip
def test_what_is_wrong_with_a_csv(tmp_path: Path, refusal: Refuse, text: str, options: list[str]) -> None:
    (tmp_path / "all.csv").write_text(text)
    refusal(tmp_path, "import", "csv", tmp_path / "all.csv", "--to", tmp_path, *options)


# aiter


def test_winners_of_aiter_by_gpu(tmp_path: Path) -> None:
    (tmp_path / "a8w8_tuned_gemm.csv").write_text(AITER)
    (tmp_path / "a8w8_untuned_gemm.csv").write_text("M,N,K\n1,2,3\n")
    _import(tmp_path / "to", "aiter", tmp_path)
    folders = sorted((tmp_path / "to/a8w8_gemm").iterdir())
    first, second = map(read_table, folders)
    assert first.provenance["device"] == {
        "name": "AMD Instinct MI308X", "key": "amd_gfx942_80cu", "arch": "gfx942", "multiprocessors": 80
    }  # fmt: skip
    assert first.feature_names == ("M", "N", "K", "q_dtype_w")
    assert dict(first.configs[0].parameters)["kernelId"] == 34
    assert _rows(first)[0] == ([1, 1280, 8192, 0], [20.5611, None])
    assert second.device_name == "AMD Instinct MI355X"
    assert second.words["q_dtype_w"] == {0: "torch.float8_e4m3fn", 1: "torch.int8"}
    assert second.features.tolist() == [[1, 1280, 8192, 1], [1, 1280, 8192, 0]]


def test_two_gpus_of_one_architecture_and_short_rows(tmp_path: Path, refusal: Refuse) -> None:
    path = tmp_path / "tuned_fmoe-v1.5.csv"
    header = "gfx,cu_num,token,dtype,block_m,kernelName1,us,_tag\n"
    rows = ["gfx942,80,1,torch.bfloat16,32,_ZN5aiter43fmoe_32x384E,5.5"]
    rows.append("gfx942,304,1,torch.bfloat16,64,,4.5,x")
    path.write_text(header + "\n".join([*rows, "gfx942,304,2,torch.bfloat16,32,_ZN5aE,3.5,x", ""]))
    _import(tmp_path / "to", "aiter", path)
    folders = {folder.name for folder in (tmp_path / "to/fmoe_v1_5").iterdir()}
    assert folders == {"amd_gfx942_304cu", "amd_gfx942_80cu"}
    device = ("--device", "AMD Instinct MI325X")
    assert "--gpu" in refusal(tmp_path, "import", "aiter", path, *device)
    _import(tmp_path / "one", "aiter", path, "--gpu", "AMD Instinct MI300X", *device)
    assert len(read_table(tmp_path / "one/fmoe_v1_5/amd_mi325x").row_repeat) == 2


@pytest.mark.parametrize("text", [
    "M,N,K\n1,2,3\n",
    "M,N,K,kernelId,us\n1,2,3,4,5\n",
    "cu_num,M,kernelId,us\n80,2,4,inf\n80,1,4,-1\n",
    "cu_num,M,kernelId,us\n../80,2,4,5\n",
    AITER.replace("20.5611", "fast"),
])  # fmt: skip
def test_what_is_wrong_with_aiters_file(tmp_path: Path, refusal: Refuse, text: str) -> None:
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text(text)
    refusal(tmp_path, "import", "aiter", path)


# Whatever the damage: a table, or one line and nothing written.

MOE_NAME = "E=128,N=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
FILES: dict[str, tuple[str, str, list[str]]] = {
    "triton": ("scale.autotune.json", f'{{"key": [8, true], "configs_timings": [{ENTRY}]}}', NAMED),
    "csv": ("all.csv", CSV, COLUMNS),
    "vllm": (MOE_NAME, json.dumps(MOE), []),
    "aiter": ("a8w8_tuned_gemm.csv", AITER, []),
}
VALUES = ["", "null", "true", "-1", "1e999", "9" * 400, "9" * 5000, "[" * 900 + "]" * 900, "{}", "[]"]
VALUES += ["NaN", "Infinity", '{"a": [1, {"b": [null]}]}', '"\\ud800"', '"a\\nb"', "0.5", "\x00", "\u2028"]
VALUES.append("'")


def _damaged(text: str, draw: random.Random) -> str:
    """The text with a number, a word or a stretch of it replaced, doubled or removed."""
    parts = [match.span() for match in re.finditer(r'[0-9.]+|"[^"]*"|[a-z_]+|[\[\]{},:\n]', text)]
    for _ in range(draw.choice((1, 1, 2, 4))):
        start, end = draw.choice(parts)
        new = draw.choice([*VALUES, text[start:end] * 2, text[slice(*draw.choice(parts))]])
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize("name", FILES)
def test_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file, text, options = FILES[name]
    draw = random.Random(name)
    refused = 0
    for place in range(150):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / file).write_bytes(_damaged(text, draw).encode("utf-8", "surrogatepass"))
        before = contents(folder)
        arguments = ["import", name, str(folder / file), "--to", str(folder / "to"), *options]
        capsys.readouterr()
        status = main(arguments)
        errors = capsys.readouterr().err
        if status == 0:
            assert errors == ""
            for run in (folder / "to").rglob("run.yaml"):
                read_table(run.parent)
        else:
            refused += 1
            assert status == 2 and errors.count("\n") == 1 and errors[:-1].isprintable(), errors
            assert contents(folder) == before
    assert 0 < refused < 150

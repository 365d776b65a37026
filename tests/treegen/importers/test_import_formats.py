"""treegen import of a long CSV, vLLM, SGLang and aiter (files: tuned_files.py)."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tuned_files import AITER, COLUMNS, CSV, GEMM, GPU, MOE

from treegen.cli.main import main
from treegen.core.table import Cells, Table, median_times
from treegen.read.problem import read_table

Refuse = Callable[..., str]


def _import(to: Path, *arguments: str | Path) -> None:
    assert main(["import", *map(str, arguments), "--to", str(to)]) == 0


def _rows(table: Table) -> list[tuple[list[int], list[float | None]]]:
    times = [[None if time != time else time for time in row] for row in median_times(table).tolist()]
    return list(zip(table.features.tolist(), times, strict=True))


# A long CSV


def test_a_long_csv(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(CSV)
    _import(tmp_path, "csv", tmp_path / "all.csv", *COLUMNS)
    table = read_table(tmp_path / "mine/nvidia_h100")
    assert (table.cells, table.feature_names) == (Cells.MEASURED, ("M", "N", "causal", "dtype"))
    assert table.words == {"dtype": {0: "bf16", 1: "fp16"}}
    assert [tuple(config.parameters.values()) for config in table.configs] == [(16, 2), (64, 4)]
    assert _rows(table) == [([1, 64, 1, 0], [11, 20]), ([8, 64, 0, 1], [math.inf, 500])]
    assert table.row_repeat.tolist() == [1, 2, 1]


def test_a_csv_with_a_variant_a_unit_and_some_parameters(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("M,variant,B,note,t\n1,split,4,x,2000\n1,plain,4,y,1000\n")
    options = ["--features", "M", "--time", "t", "--unit", "ns", "--parameters", "B", "--kernel", "k"]
    _import(tmp_path, "csv", tmp_path / "all.csv", *options, "--device", GPU)
    table = read_table(tmp_path / "k/nvidia_h100")
    assert [(c.id, c.variant) for c in table.configs] == [("plain", "plain"), ("split", "split")]
    assert _rows(table) == [([1], [1, 2])]


def test_texts_of_a_csv_make_variants(tmp_path: Path) -> None:
    rows = "1,Radix-Sort,asc,2\n1,max,asc,1\n1,max,desc,3\n"
    (tmp_path / "all.csv").write_text(f"n,algorithm,order,t_us\n{rows}")
    options = ["--features", "n", "--time", "t_us", "--kernel", "k", "--device", GPU]
    _import(tmp_path, "csv", tmp_path / "all.csv", *options)
    table = read_table(tmp_path / "k/nvidia_h100")
    assert [(c.id, c.variant, c.parameters) for c in table.configs] == [
        (name, name, {}) for name in ("max_asc", "max_desc", "radix_sort_asc")
    ]
    assert _rows(table) == [([1], [1, 3, 2])]


@pytest.mark.parametrize("words", ["a-b a_b", "A a", "1a b", "ä b"])
def test_texts_that_cannot_be_variants(tmp_path: Path, refusal: Refuse, words: str) -> None:
    rows = "".join(f"1,{word},1\n" for word in words.split())
    (tmp_path / "all.csv").write_text(f"n,algorithm,t_us\n{rows}")
    options = ["--features", "n", "--time", "t_us", "--kernel", "k", "--device", GPU]
    assert "variant" in refusal(tmp_path, "import", "csv", tmp_path / "all.csv", *options)


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
])  # fmt: skip
def test_what_is_wrong_with_a_csv(tmp_path: Path, refusal: Refuse, text: str, options: list[str]) -> None:
    (tmp_path / "all.csv").write_text(text)
    refusal(tmp_path, "import", "csv", tmp_path / "all.csv", "--to", tmp_path, *options)


# vLLM and SGLang: their configs for 1, 64 and 4096 tokens


def test_fused_moe_configs_of_vllm(tmp_path: Path) -> None:
    names = {"E=128,N=1024,device_name=NVIDIA_H200.json": MOE}
    names["E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"] = {"64": MOE["1"]}
    names["E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json"] = {"64": MOE["64"]}
    for name, content in names.items():
        (tmp_path / name).write_text(json.dumps(content))
    _import(tmp_path / "to", "vllm", tmp_path)
    assert read_table(tmp_path / "to/fused_moe/nvidia_h100").features.tolist() == [[64, 8, 7168, 0, 0]]
    table = read_table(tmp_path / "to/fused_moe/nvidia_h200")
    assert (table.cells, table.feature_names) == (Cells.WINNERS, ("M", "E", "N", "dtype", "block_shape"))
    assert table.words == {"dtype": {0: "fp8_w8a8", 1: "unquantised"}, "block_shape": {0: "none"}}
    assert table.provenance["lookup"] == {"M": "nearest"}
    nothing = None
    assert _rows(table) == [
        ([1, 128, 1024, 1, 0], [1, nothing, nothing]),
        ([64, 128, 1024, 1, 0], [nothing, 1, nothing]),
        ([4096, 128, 1024, 1, 0], [nothing, nothing, 1]),
        ([64, 8, 7168, 0, 0], [1, nothing, nothing]),
    ]
    assert "without their times" in table.provenance["timing"]
    assert table.provenance["origin"]["tool"] == "vLLM"


def test_block_scaled_gemm_configs_of_sglang(tmp_path: Path) -> None:
    name = "N=1536,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128, 128].json"
    (tmp_path / name).write_text(json.dumps(GEMM))
    _import(tmp_path / "to", "sglang", tmp_path)
    table = read_table(tmp_path / "to/block_scaled_gemm/amd_mi300x")
    assert table.device_name == "AMD Instinct MI300X"
    assert table.words == {"dtype": {0: "fp8_w8a8"}, "block_shape": {0: "128x128"}}
    assert _rows(table)[2] == ([4096, 1536, 7168, 0, 0], [None, 1])


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


@pytest.mark.parametrize(
    "text",
    [
        "M,N,K\n1,2,3\n",
        "M,N,K,kernelId,us\n1,2,3,4,5\n",
        "cu_num,M,kernelId,us\n80,2,4,inf\n80,1,4,-1\n",
        "cu_num,M,kernelId,us\n../80,2,4,5\n",
        AITER.replace("20.5611", "fast"),
    ],
)
def test_what_is_wrong_with_aiters_file(tmp_path: Path, refusal: Refuse, text: str) -> None:
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text(text)
    refusal(tmp_path, "import", "aiter", path)

"""treegen import of a long CSV, Kernel Tuner, Helion, vLLM, SGLang and aiter.

The excerpts are from public repositories, shortened: github.com/KernelTuner/kernel_tuner (Apache-2.0,
test/test_cache_files/small_cache_1.1.0.json and test/test_convert_files/t4_target.json), vllm-project/vllm
(Apache-2.0, fused_moe/configs), sgl-project/sglang (Apache-2.0, quantization/configs), ROCm/aiter (MIT,
aiter/configs/a8w8_tuned_gemm.csv). Names and further values are ours. Helion's file has the columns that
helion/autotuner/aot_cache.py writes.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from treegen.cli.main import main
from treegen.core.table import Cells, Table, median_times
from treegen.read.table_file import read_table

Refuse = Callable[..., str]
GPU = "NVIDIA H100 80GB HBM3"


def _import(to: Path, *arguments: str | Path) -> None:
    assert main(["import", *map(str, arguments), "--to", str(to)]) == 0


def _rows(table: Table) -> list[tuple[list[int], list[float | None]]]:
    times = [[None if time != time else time for time in row] for row in median_times(table).tolist()]
    return list(zip(table.features.tolist(), times, strict=True))


# A long CSV

CSV = """\
M,N,causal,dtype,BLOCK,num_warps,time_ms
1,64,true,bf16,16,2,0.010
1,64,true,bf16,64,4,0.020
1,64,true,bf16,16,2,0.012
8,64,false,fp16,16,2,inf
8,64,false,fp16,64,4,0.5
8,64,false,fp16,128,4,
"""
COLUMNS = ["--features", "M,N,causal,dtype", "--time", "time_ms", "--kernel", "mine", "--device", GPU]


def test_a_long_csv(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text(CSV)
    _import(tmp_path, "csv", tmp_path / "all.csv", *COLUMNS)
    table = read_table(tmp_path / "mine/nvidia_h100")
    assert (table.cells, table.feature_names) == (Cells.MEASURED, ("M", "N", "causal", "dtype"))
    assert dict(table.words) == {"dtype": ("bf16", "fp16")}
    assert [dict(config.parameters) for config in table.configs] == [
        {"BLOCK": 16, "num_warps": 2},
        {"BLOCK": 64, "num_warps": 4},
    ]
    assert _rows(table) == [([1, 64, 1, 0], [11, 20]), ([8, 64, 0, 1], [math.inf, 500])]
    assert table.row_repeat.tolist() == [1, 2, 1]


def test_a_csv_with_a_variant_a_unit_and_some_parameters(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("M,variant,B,note,t\n1,split,4,x,2000\n1,plain,4,y,1000\n")
    options = ["--features", "M", "--time", "t", "--unit", "ns", "--parameters", "B", "--kernel", "k"]
    _import(tmp_path, "csv", tmp_path / "all.csv", *options, "--device", GPU)
    table = read_table(tmp_path / "k/nvidia_h100")
    assert [(config.id, config.variant) for config in table.configs] == [
        ("plain", "plain"),
        ("split", "split"),
    ]
    assert _rows(table) == [([1], [1, 2])]


@pytest.mark.parametrize(("text", "options", "says"), [
    (CSV, COLUMNS[:2], "a CSV file does not say which columns are the features and which is the time"),
    (CSV, COLUMNS[:4], "a CSV file does not name the kernel; name it with --kernel NAME"),
    (CSV, COLUMNS[:6], "a CSV file does not name the GPU"),
    (CSV, ["--features", "K", *COLUMNS[2:]], "has no column 'K', which the CSV import needs; it has M,"),
    (CSV.replace("time_ms", "t"), [*COLUMNS[:2], "--time", "t", *COLUMNS[4:]], "'t' does not end in a unit"),
    (CSV.replace("0.020", "fast"), COLUMNS, "all.csv:3: the time 'fast' is no number; a failure is inf"),
    (CSV.replace("0.020", "-1"), COLUMNS, "scenario s001 has the time -1000.0 microseconds"),
    (CSV.replace("1,64,true,bf16,64", "1,64,true,,64"), COLUMNS, "all.csv:3: the cell of dtype is empty"),
    (CSV.replace("1,64,true,bf16,64", "x,64,true,bf16,64"), COLUMNS, "'M' varies but is not an integer ev"),
    (CSV.replace("bf16", "<b>"), COLUMNS, "feature dtype has the value '<b>', which cannot be a word of"),
    (CSV.replace(",0.020", ""), COLUMNS, "all.csv:3: has 6 cells, but the header has 7"),
    (CSV.partition("\n")[0], COLUMNS, "holds no row below its header"),
    ("", COLUMNS, "is empty"),
])  # fmt: skip
def test_what_is_wrong_with_a_csv(
    tmp_path: Path, refusal: Refuse, text: str, options: list[str], says: str
) -> None:
    (tmp_path / "all.csv").write_text(text)
    assert says in refusal(tmp_path, "import", "csv", tmp_path / "all.csv", "--to", tmp_path, *options)


# Kernel Tuner


def _kernel_tuner(size: Sequence[int], times: Sequence[float | str]) -> dict[str, Any]:
    blocks = [(16, 1), (16, 2)]
    return {
        "schema_version": "1.1.0",
        "device_name": "NVIDIA RTX A4000",
        "kernel_name": "convolution_kernel",
        "problem_size": list(size),
        "tune_params_keys": ["block_size_x", "block_size_y"],
        "tune_params": {"block_size_x": [16], "block_size_y": [1, 2]},
        "objective": "time",
        "cache": {
            f"{x},{y}": {"block_size_x": x, "block_size_y": y, "time": time, "GFLOP/s": 1948.1}
            for (x, y), time in zip(blocks, times, strict=True)
        },
    }


T4 = {
    "results": [
        {
            "timestamp": "2023-12-21 10:44:42.236642+00:00",
            "configuration": {"block_size_x": 16, "use_padding": 0},
            "times": {"compilation_time": 661.5, "runtimes": [12.265098571777344, 12.252779960632324]},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 12.262957006692886, "unit": ""}],
            "objectives": ["time"],
        },
        {
            "configuration": {"block_size_x": 32, "use_padding": 1},
            "times": {},
            "invalidity": "compile",
            "correctness": 0,
        },
    ],
    "schema_version": "1.0.0",
}


def test_caches_of_kernel_tuner_one_a_shape(tmp_path: Path) -> None:
    times = {
        (4096, 4096): (3.8753279224038124, 4.59481605887413),
        (512, 512): ("CompilationFailedConfig", 0.2),
    }
    for place, (size, found) in enumerate(times.items()):
        (tmp_path / f"{place}.json").write_text(json.dumps(_kernel_tuner(size, found)))
    _import(tmp_path / "to", "kernel-tuner", tmp_path, "--features", "w,h")
    table = read_table(tmp_path / "to/convolution_kernel/nvidia_rtx_a4000")
    assert (table.cells, table.feature_names) == (Cells.MEASURED, ("w", "h"))
    assert _rows(table) == [([4096, 4096], [3875.3279, 4594.8161]), ([512, 512], [math.inf, 200])]


def test_t4_files_have_their_shape_in_their_name(tmp_path: Path) -> None:
    (tmp_path / "w=4096,h=2048.json").write_text(json.dumps(T4))
    _import(tmp_path, "kernel-tuner", tmp_path / "w=4096,h=2048.json", "--kernel", "conv", "--device", GPU)
    table = read_table(tmp_path / "conv/nvidia_h100")
    assert table.feature_names == ("w", "h")
    assert _rows(table) == [([4096, 2048], [12262.957, math.inf])]


@pytest.mark.parametrize(("content", "says"), [
    ({}, "is neither a cache ('tune_params_keys', 'cache') nor a T4 file ('results')"),
    ({**_kernel_tuner([4], (1, 2)), "device_name": None}, "lacks a proper 'device_name': is it a "),
    (_kernel_tuner([4], (1, None)), "has the time None, which is neither a number nor the name"),
    ({**_kernel_tuner([4], (1, 2)), "problem_size": "n"}, "has the problem size 'n'; integers are needed"),
    ({**_kernel_tuner([4], (1, 2)), "cache": {"16": {"time": 1.0}}}, "which lacks a tuned parameter"),
    ({**_kernel_tuner([4], (1, 2)), "cache": {}}, "holds no config"),
    (T4, "a T4 file does not hold its shape; put it into the name, as in w=4096,h=4096.json"),
])  # fmt: skip
def test_what_is_wrong_with_kernel_tuners_file(
    tmp_path: Path, refusal: Refuse, content: Any, says: str
) -> None:
    (tmp_path / "cache.json").write_text(json.dumps(content))
    assert says in refusal(tmp_path, "import", "kernel-tuner", tmp_path / "cache.json", "--to", tmp_path)


# Helion


def _helion(path: Path, rows: Sequence[tuple[str, dict[str, Any], dict[str, Any], object]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["kernel_name", "shape_hash", "config_hash", "config", "shape_features", "timing_ms"])
        for kernel, config, shape, time in rows:
            out.writerow([kernel, "1f", "2e", json.dumps(config), json.dumps(shape), time])


SHAPE = {"arg0_ndim": 2, "arg0_dim0": 64, "arg0_dim1": 128, "arg0_dtype": "torch.float16"}
CONFIGS = [
    {"block_sizes": [16, 32], "num_warps": 4, "pid_type": "flat", "range_flattens": [None]},
    {"block_sizes": [64, 64], "num_warps": 8, "pid_type": "persistent_blocked", "range_flattens": [True]},
]


def test_measurements_of_helion(tmp_path: Path) -> None:
    rows = [("softmax", CONFIGS[0], SHAPE, 0.5), ("softmax", CONFIGS[1], SHAPE, 0.25)]
    rows += [("softmax", CONFIGS[0], {**SHAPE, "arg0_dim0": 8}, 0.125), ("other", {"num_warps": 1}, SHAPE, 1)]
    _helion(tmp_path / "measurements_cuda_H100.csv", rows)
    _import(tmp_path / "to", "helion", tmp_path, "--device", GPU)
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["other", "softmax"]
    table = read_table(tmp_path / "to/softmax/nvidia_h100")
    assert table.feature_names == ("arg0_ndim", "arg0_dim0", "arg0_dim1")
    assert table.provenance["origin"]["same_in_every_scenario"] == {"arg0_dtype": "torch.float16"}
    assert dict(table.words) == {"pid_type": ("flat", "persistent_blocked")}
    assert dict(table.configs[1].parameters) == {
        "block_sizes_0": 64,
        "block_sizes_1": 64,
        "num_warps": 8,
        "pid_type": 1,
        "range_flattens_0": 1,
    }
    assert table.provenance["origin"]["none_is_0"] == ["range_flattens_0"]
    assert _rows(table) == [([2, 64, 128], [500, 250]), ([2, 8, 128], [125, None])]


def test_what_is_wrong_with_helions_file(tmp_path: Path, refusal: Refuse) -> None:
    path = tmp_path / "measurements_cuda_H100.csv"
    for text, says in (
        ("a,b\n1,2\n", "has no column 'kernel_name', which Helion needs"),
        ("kernel_name,config,shape_features,timing_ms\nk,[],{},1\n", ":2: config is '[]', no JSON object"),
        ("kernel_name,config,shape_features,timing_ms\nk,{},{},x\n", ":2: timing_ms is 'x', no number"),
    ):
        path.write_text(text)
        assert says in refusal(tmp_path, "import", "helion", path, "--to", tmp_path / "to")


# vLLM and SGLang: their configs for 1, 64 and 4096 tokens


def _config(m: int, n: int, k: int, group: int, warps: int, stages: int, **more: int) -> dict[str, int]:
    sizes = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
    return {**sizes, "num_warps": warps, "num_stages": stages, **more}


MOE = {
    "triton_version": "3.4.0",
    "1": _config(16, 32, 64, 1, 4, 4),
    "64": _config(16, 128, 128, 64, 8, 3),
    "4096": _config(64, 128, 64, 1, 4, 3),
}
GEMM = {
    "1": _config(32, 16, 128, 8, 4, 2, waves_per_eu=0),
    "64": _config(32, 16, 128, 8, 4, 2, waves_per_eu=0),
    "4096": _config(32, 128, 128, 4, 4, 2, waves_per_eu=0),
}


def test_fused_moe_configs_of_vllm(tmp_path: Path) -> None:
    names = {"E=128,N=1024,device_name=NVIDIA_H200.json": MOE}
    names["E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"] = {"64": MOE["1"]}
    names["E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json"] = {"64": MOE["64"]}
    for name, content in names.items():
        (tmp_path / name).write_text(json.dumps(content))
    _import(tmp_path / "to", "vllm", tmp_path)
    assert read_table(tmp_path / "to/fused_moe/nvidia_h100").features.tolist() == [[64, 8, 7168]]
    table = read_table(tmp_path / "to/fused_moe/nvidia_h200")
    assert (table.cells, table.feature_names) == (Cells.WINNERS, ("M", "dtype", "E", "N"))
    assert dict(table.words) == {"dtype": ("fp8_w8a8", "unquantised")}
    nothing = None
    assert _rows(table) == [
        ([1, 1, 128, 1024], [1, nothing, nothing]),
        ([64, 1, 128, 1024], [nothing, 1, nothing]),
        ([4096, 1, 128, 1024], [nothing, nothing, 1]),
        ([64, 0, 8, 7168], [1, nothing, nothing]),
    ]
    assert "without their times" in table.provenance["timing"]
    assert table.provenance["origin"]["tool"] == "vLLM"


def test_block_scaled_gemm_configs_of_sglang(tmp_path: Path) -> None:
    name = "N=1536,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128, 128].json"
    (tmp_path / name).write_text(json.dumps(GEMM))
    _import(tmp_path / "to", "sglang", tmp_path)
    table = read_table(tmp_path / "to/block_scaled_gemm/amd_mi300x")
    assert table.feature_names == ("M", "N", "K") and table.device_name == "AMD Instinct MI300X"
    fixed = table.provenance["origin"]["same_in_every_scenario"]
    assert fixed == {"dtype": "fp8_w8a8", "block_shape": "128x128"}
    assert _rows(table)[2] == ([4096, 1536, 7168], [None, 1])


@pytest.mark.parametrize(("name", "content", "says"), [
    ("cache.json", MOE, "has no name of a tuned config of vLLM, such as E=8,N=3584,device_name=NVIDIA_H200"),
    ("E=8,N=4.json", MOE, "has no name of a tuned config of vLLM"),
    ("E=8,N=4,device_name=A100.json", {}, "holds no config"),
    ("E=8,N=4,device_name=A100.json", {"x": {}}, "maps 'x' to a mapping; a number of tokens to a config is"),
    ("E=8,N=4,device_name=A100.json", {"8": 4}, "maps '8' to 4; a number of tokens to a config is needed"),
])  # fmt: skip
def test_what_is_wrong_with_vllms_file(
    tmp_path: Path, refusal: Refuse, name: str, content: Any, says: str
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    assert says in refusal(tmp_path, "import", "vllm", tmp_path / name, "--to", tmp_path / "to")


# aiter

AITER = """\
gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx942,80,1,1280,8192,torch.int8,34,0,20.5611,a8w8_rowwise_256x16x64x512,1.02,510.5,0.0
gfx942,80,1,8192,1024,torch.int8,78,0,9.1327,a8w8_rowwise_64x16x16x128,1.84,920.43,0.0
gfx942,80,32,1280,8192,torch.int8,34,0,19.9841,a8w8_rowwise_256x16x64x512,33.58,541.92,0.0
gfx950,256,1,1280,8192,torch.int8,34,0,17.6914,a8w8_rowwise_256x16x64x512,1.19,593.31,0.0
gfx950,256,1,1280,8192,torch.float8_e4m3fn,79,3,7.6797,a8w8_rowwise_128x16x32x128,2.73,1366.79,0.1344
"""


def test_winners_of_aiter_by_gpu(tmp_path: Path) -> None:
    (tmp_path / "a8w8_tuned_gemm.csv").write_text(AITER)
    (tmp_path / "a8w8_untuned_gemm.csv").write_text("M,N,K\n1,2,3\n")
    _import(tmp_path / "to", "aiter", tmp_path)
    folders = sorted((tmp_path / "to/a8w8_gemm").iterdir())
    first, second = map(read_table, folders)
    assert first.device_name == "AMD gfx942 with 80 compute units"
    assert first.feature_names == ("M", "N", "K") and dict(first.configs[0].parameters)["kernelId"] == 34
    assert _rows(first)[0] == ([1, 1280, 8192], [20.5611, None])
    assert second.device_name == "AMD gfx950 with 256 compute units"
    assert dict(second.words) == {"q_dtype_w": ("torch.float8_e4m3fn", "torch.int8")}
    assert second.features.tolist() == [[1, 1280, 8192, 1], [1, 1280, 8192, 0]]


def test_what_is_wrong_with_aiters_file(tmp_path: Path, refusal: Refuse) -> None:
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text("M,N,K\n1,2,3\n")
    assert "has no column 'cu_num', which aiter needs" in refusal(tmp_path, "import", "aiter", path)
    path.write_text(AITER.replace("20.5611", "fast"))
    assert ":2: us is 'fast', no number of microseconds" in refusal(tmp_path, "import", "aiter", path)

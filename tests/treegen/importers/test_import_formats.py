"""treegen import of a long CSV, of aiter and of files that Triton itself writes; whatever is damaged."""

import json
import math
import random
import re

import pytest
import torch
from programs import HELPERS, printed
from treegen_builders import contents
from tuned_files import AITER, COLUMNS, CSV, ENTRY, GPU, MOE, NAMED

from treegen.cli.main import main
from treegen.core.table import Cells, median_times
from treegen.read.problem import read_table
from triton_tune.launch.features import word_of


def _import(to, *arguments):
    assert main(["import", *map(str, arguments), "--to", str(to)]) == 0


def _rows(table):
    times = [[None if time != time else time for time in row] for row in median_times(table).tolist()]
    return list(zip(table.features.tolist(), times, strict=True))


def test_a_long_csv(tmp_path):
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
def test_variants_units_and_parameters_of_a_csv(tmp_path, text, options, configs, times):
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
def test_what_is_wrong_with_a_csv(tmp_path, refusal, text, options):
    (tmp_path / "all.csv").write_text(text)
    refusal(tmp_path, "import", "csv", tmp_path / "all.csv", "--to", tmp_path, *options)


# aiter


def test_winners_of_aiter_by_gpu(tmp_path):
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


def test_two_gpus_of_one_architecture_and_short_rows(tmp_path, refusal):
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
def test_what_is_wrong_with_aiters_file(tmp_path, refusal, text):
    path = tmp_path / "a8w8_tuned_gemm.csv"
    path.write_text(text)
    refusal(tmp_path, "import", "aiter", path)


# Whatever the damage: a table, or one line and nothing written.

MOE_NAME = "E=128,N=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
FILES = {
    "triton": ("scale.autotune.json", f'{{"key": [8, true], "configs_timings": [{ENTRY}]}}', NAMED),
    "csv": ("all.csv", CSV, COLUMNS),
    "vllm": (MOE_NAME, json.dumps(MOE), []),
    "aiter": ("a8w8_tuned_gemm.csv", AITER, []),
}
VALUES = ["", "null", "true", "-1", "1e999", "9" * 400, "9" * 5000, "[" * 900 + "]" * 900, "{}", "[]"]
VALUES += ["NaN", "Infinity", '{"a": [1, {"b": [null]}]}', '"\\ud800"', '"a\\nb"', "0.5", "\x00", "\u2028"]
VALUES.append("'")


def _damaged(text, draw):
    """The text with a number, a word or a stretch of it replaced, doubled or removed."""
    parts = [match.span() for match in re.finditer(r'[0-9.]+|"[^"]*"|[a-z_]+|[\[\]{},:\n]', text)]
    for _ in range(draw.choice((1, 1, 2, 4))):
        start, end = draw.choice(parts)
        new = draw.choice([*VALUES, text[start:end] * 2, text[slice(*draw.choice(parts))]])
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize("name", FILES)
def test_damage(tmp_path, capsys, name):
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


# Files that the installed version of Triton writes


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A Triton cache folder."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("triton")
    printed(HELPERS / "write_triton_cache.py", TRITON_INTERPRET=None, TRITON_CACHE_DIR=str(folder))
    return folder


def _tritons(source, to, *options):
    _import(to, "triton", source, *options)
    return read_table(to / "scale/nvidia_h100")


def test_all_times_of_a_cache_that_triton_wrote(written, tmp_path):
    table = _tritons(written, tmp_path, *NAMED)
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


def _write(folder, key, entries, name="scale.autotune.json"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'{{"key": {json.dumps(key)}, "configs_timings": {entries}}}')
    return path


def test_words_are_those_that_tuned_looks_for_under_the_names_that_it_reads(tmp_path):
    for n, x in enumerate((torch.bfloat16, torch.float32, torch.float32)):  # the same key twice
        _write(tmp_path / str(n), [8, str(x), str(torch.float16), str(x)], f"[{ENTRY}]")
    table = _tritons(tmp_path, tmp_path / "to", "--device", GPU, "--features", "n,x_ptr_dtype")
    for name in ("x_ptr_dtype", "argument_dtype_1"):
        assert table.words[name] == {0: "bfloat16", 1: "float32"}
    assert word_of(torch.bfloat16) == table.words["x_ptr_dtype"][0]
    assert (len(table.scenarios), table.row_repeat.tolist()) == (2, [1, 1, 2])


def test_a_name_that_no_package_can_have_is_made_plain(tmp_path, refusal):
    _write(tmp_path / "a", [8], f"[{ENTRY}]", "_Scale.autotune.json")
    options = ("--device", GPU, "--features", "n")
    for kernel in ([], ["--kernel", "_Scale"], ["--kernel", "scale"]):
        assert _tritons(tmp_path, tmp_path / "to", *options, *kernel).kernel == "scale"
    path = _write(tmp_path / "b", [9], f"[{ENTRY}]")
    line = refusal(tmp_path, "import", "triton", tmp_path, "--to", tmp_path / "to", *options)
    assert line.startswith(f"{path}: ")
    table = _tritons(tmp_path, tmp_path / "to", *options, "--kernel", "_Scale")
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
def test_wrong_triton_files(tmp_path, refusal, key, entries, options):
    path = _write(tmp_path / "cache", key, entries)
    line = refusal(tmp_path, "import", "triton", tmp_path / "cache", "--to", tmp_path / "to", *options)
    assert line.startswith(f"{path}: ")


def test_other_files_and_folders(tmp_path, refusal):
    path = _write(tmp_path, [8], f"[{ENTRY}]", "cache.json")
    for wrong in (path, tmp_path):
        line = refusal(tmp_path, "import", "triton", wrong, *NAMED)
        assert line.startswith(f"{wrong}: ") and ".autotune.json" in line
    assert "--unit" in refusal(tmp_path, "import", "triton", tmp_path, "--unit", "ms")

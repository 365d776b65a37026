"""treegen import dejavu: a cache becomes a table of winners that treegen can read, or one line is printed."""

import json

import pytest
from treegen_builders import contents
from treegen_caches import SCENARIOS, cache, write_cache

from treegen.cli.main import main
from treegen.core.table import Cells, median_times
from treegen.read.problem import read_table

FIRST, SECOND, *_ = SCENARIOS
TABLE = "tables/my_kernel/nvidia_h100"
CREDIT = ("--origin", "A paper", "--licence", "x}\nkernel: other\n# '\"\u2028 !!python/object:os.system [*a]")


def _import(folder, *options):
    return ["import", "dejavu", str(folder / "caches"), "--to", str(folder / "tables"), *options]


def _imported(folder, content=None, *options):
    write_cache(folder / "caches", content)
    assert main(_import(folder, *options)) == 0
    return read_table(folder / TABLE)


@pytest.fixture
def table(tmp_path):
    return _imported(tmp_path, None, *CREDIT)


def test_the_winners_with_their_times_words_and_origin(tmp_path, table):
    assert (table.kernel, table.device_name) == ("my_kernel", "NVIDIA H100 80GB HBM3")
    assert table.cells is Cells.WINNERS
    # None of `maxnreg` is what Triton takes by itself.
    assert [dict(config.parameters) for config in table.configs] == [
        {"BLOCK": 16, "num_warps": 2, "fast": 0},
        {"BLOCK": 16, "num_warps": 8, "fast": 0},
        {"BLOCK": 128, "num_warps": 8, "fast": 1},
    ]
    assert [[cell if cell == cell else None for cell in row] for row in median_times(table).tolist()] == [
        [10, None, None],
        [None, None, 20],
        [None, 1500, None],
        [250, None, None],
    ]
    assert table.feature_names == ("SEQ", "HEADS", "CAUSAL", "DTYPE", "argument_dtype_0")
    assert table.features[:, :3].tolist() == [[16, 4, 1], [32, 4, 0], [64, 4, 0], [128, 4, 1]]
    assert (table.words["DTYPE"], table.words["fast"]) == ({0: "bf16"}, {0: "false", 1: "true"})
    assert table.provenance["origin"].items() >= {
        "published_by": CREDIT[1],
        "licence": CREDIT[3],  # text and nothing else
        "tool": "triton-dejavu 0.7",
        "triton": "3.3.0",
        "toolkit": "cuda 12.4",
        "evaluated_configs": 540,
        "tuning_seconds": 13,
        "code_version": "1b",
    }.items()  # fmt: skip
    assert table.provenance["timing"] == {"rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": True}
    text = (tmp_path / TABLE / "run.yaml").read_text()
    assert text.startswith("# Imported by `treegen import dejavu`, not measured by this project.\n# Only win")


@pytest.mark.parametrize(("unit", "factor"), [("s", 1e6), ("ms", 1e3), ("us", 1), ("ns", 1e-3)])
def test_units_of_time(tmp_path, unit, factor):
    times = {key: [50.0] for key in SCENARIOS}
    found = median_times(_imported(tmp_path, cache(timings=times, timings_data={"labels": [unit]})))
    assert sorted(cell for row in found.tolist() for cell in row if cell == cell) == [50 * factor] * 4


@pytest.mark.usefixtures("table")
def test_what_is_replaced(tmp_path, refusal):
    """Nothing by the same table, another import's table on request, and a measured one never."""
    before = contents(tmp_path)
    assert main(_import(tmp_path, *CREDIT)) == 0 and contents(tmp_path) == before
    line = refusal(tmp_path, *_import(tmp_path, "--origin", "Another paper"))
    assert line.startswith(f"{tmp_path / TABLE}: ") and "--replace" in line
    assert main(_import(tmp_path, "--origin", "Another paper", "--replace")) == 0
    assert read_table(tmp_path / TABLE).provenance["origin"]["published_by"] == "Another paper"
    run = tmp_path / TABLE / "run.yaml"
    run.write_text(run.read_text().partition("\n")[2])
    assert "nvidia_h100" in refusal(tmp_path, *_import(tmp_path, "--replace"))
    run.unlink()
    assert "run.yaml" in refusal(tmp_path, *_import(tmp_path, "--replace"))
    for name in ("run.yaml", "scenarios.csv", "times.csv"):
        (tmp_path / TABLE / name).write_bytes(b"\xff")
    refusal(tmp_path, *_import(tmp_path))


def test_tables_by_gpu_and_triton(tmp_path, capsys, refusal):
    for gpu, triton in {
        "NVIDIA_H100_80GB_HBM3": "3.3.0",
        "..": "3.3.0",
        "AMD_Instinct_MI300X": "3.4.0",
    }.items():
        write_cache(tmp_path / "caches", gpu=gpu, triton=triton)
    assert main(_import(tmp_path)) == 0
    assert {path.relative_to(tmp_path / "tables").as_posix() for path in tmp_path.glob("tables/*/*")} == {
        "my_kernel_triton_3_3_0/nvidia_h100",
        "my_kernel_triton_3_3_0/unknown",
        "my_kernel_triton_3_4_0/amd_mi300x",
    }
    folder = f"{tmp_path}/tables/my_kernel_triton_3_4_0/amd_mi300x"
    assert f"{folder}: 4 scenarios, 3 configs, winners only\n" in capsys.readouterr().out
    assert "other" in refusal(tmp_path, *_import(tmp_path, "--kernel", "other"))
    assert main(_import(tmp_path, "--triton", "3.4.0", "--kernel", "my_kernel")) == 0
    origin = read_table(tmp_path / "tables/my_kernel/amd_mi300x").provenance["origin"]
    assert origin["triton"] == "3.4.0"
    write_cache(tmp_path / "caches/twice")  # a second cache for one table
    assert "caches" in refusal(tmp_path, *_import(tmp_path))


def test_a_plain_cache_file_needs_the_gpus_name(tmp_path, table, refusal):
    (tmp_path / "empty").mkdir()
    for nothing in ("none", "empty"):
        refusal(tmp_path, "import", "dejavu", tmp_path / nothing, "--to", tmp_path / "plain")
    (tmp_path / "cache.json").write_text(json.dumps(cache()))
    arguments = ["import", "dejavu", str(tmp_path / "cache.json"), "--to", str(tmp_path / "plain")]
    assert "--device" in refusal(tmp_path, *arguments)
    assert main([*arguments, "--device", "NVIDIA H100 80GB HBM3"]) == 0
    plain = read_table(tmp_path / "plain/my_kernel/nvidia_h100")
    assert (plain.configs, plain.device_name) == (table.configs, table.device_name)
    assert plain.features.tolist() == table.features.tolist()
    origin = plain.provenance["origin"]
    assert origin["tool"] == "triton-dejavu" and "triton" not in origin


def _two(first, second):
    keys = (FIRST, SECOND)
    return cache(cache=dict(zip(keys, (first, second), strict=True)), timings={key: [1.0] for key in keys})


def _scenario(key):
    """The cache with its first scenario under another key."""
    rows = {key if name == FIRST else name: config for name, (config, _) in SCENARIOS.items()}
    return cache(cache=rows, timings={name: [1.0] for name in rows})


LONG = ", ".join(f"a_rather_long_parameter_{i}: {{}}" for i in range(6))


@pytest.mark.parametrize(("configs", "ids", "values", "words"), [
    (("BLOCK: 16, maxnreg: None", "BLOCK: 16, maxnreg: 64"), ["maxnreg=0", "maxnreg=64"],
        [{"BLOCK": 16, "maxnreg": 0}, {"BLOCK": 16, "maxnreg": 64}], {"maxnreg": {0: "absent"}}),
    ((LONG.format(*range(1, 7)), LONG.format(*range(6))), ["c0001", "c0002"],  # such names are numbered
        [{f"a_rather_long_parameter_{i}": i + more for i in range(6)} for more in (0, 1)], {}),
    (("maxnreg: None, B: 1",) * 2, ["the-only"], [{"B": 1}], {}),
])  # fmt: skip
def test_names_and_parameters_of_configs(tmp_path, configs, ids, values, words):
    found = _imported(tmp_path, _two(*configs))
    assert [config.id for config in found.configs] == ids
    assert [config.parameters for config in found.configs] == values
    assert {name: word for name, word in found.words.items() if name in values[0]} == words


def test_columns_keep_their_order_and_texts_become_integers(tmp_path, table):
    swapped = dict(zip(SCENARIOS, reversed([config for config, _ in SCENARIOS.values()]), strict=True))
    other = _imported(tmp_path / "other", cache(cache=swapped))
    assert [config.id for config in other.configs] == [config.id for config in table.configs]
    found = _imported(tmp_path / "words", _scenario(FIRST.replace("bf16", "fp16")))
    assert found.words["DTYPE"] == {0: "bf16", 1: "fp16"}
    assert found.features[:, 3].tolist() == [1, 0, 0, 0]


# Broken caches


def _config(text):
    return cache(cache={name: text if name == FIRST else config for name, (config, _) in SCENARIOS.items()})


def _time(value):
    return cache(timings={name: value if name == FIRST else [1.0] for name in SCENARIOS})


ENTRY = f"{json.dumps(FIRST)}: {json.dumps(SCENARIOS[FIRST][0])}, "
BROKEN = [
    *("{", "", "[]", "[" * 100_000),  # no JSON object
    *({name: value for name, value in cache().items() if name != field} for field in cache()),
    *(cache(cache=[]), cache(cache={})),
    *(cache(signature=text) for text in ("my_kernel", "JITFunction(a:class)", "JITFunction(a:../../etc)")),
    json.dumps(cache()).replace(ENTRY, ENTRY + ENTRY.replace("BLOCK: 16", "BLOCK: 32")),  # a key twice
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


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_cache_stops_all(tmp_path, refusal, content):
    write_cache(tmp_path / "caches", gpu="AMD_Instinct_MI300X")
    path = write_cache(tmp_path / "caches", content)
    assert refusal(tmp_path, *_import(tmp_path)).startswith(f"{path}: ")

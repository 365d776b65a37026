"""`treegen init`: a first spec from tables, and tables that are added to one."""

import contextlib
import csv
import io
import shutil
from pathlib import Path

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from table_builders import config, start
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.expr import to_text
from treegen.read.spec import read_spec
from tuning_table import Failure
from tuning_table.table import TOO_LARGE

PLAIN = {
    "kernel": "matmul",
    "features": ("M", "N", "dtype"),
    "values": {"dtype": ["float16", "float32"]},
    "configs": tuple(
        {"id": f"c{block}", "BLOCK_M": block, "BLOCK_N": 32, "num_warps": 4} for block in (16, 32, 64)
    ),
    "scenarios": {f"s{m}": (2**m, 64 << m % 3, m % 2) for m in range(8)},
}
H100 = "NVIDIA H100 80GB HBM3"
CPU = {"name": "cpu (Triton interpreter)", "arch": "cpu", "multiprocessors": 1}


def table(folder, *, rows=True, **changes):
    """A table in which c64 is the best but fails once, and c32 is better than c16."""
    with start(folder, **{**PLAIN, **changes}) as writer:
        for scenario in PLAIN["scenarios"] if rows else ():
            best = Failure("disagrees") if scenario == "s3" else 1.0
            writer.append(scenario, {"c16": 3.0, "c32": 2.0, "c64": best})
    return folder


def kernel_of(*arguments):
    """The only kernel of the spec that `treegen init ARGUMENTS` writes."""
    assert main(["init", *arguments]) == 0
    (kernel,) = read_spec(Path("treegen.yaml")).kernels.values()
    return kernel


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_spec_that_builds(tmp_path, capsys):
    table(tmp_path / "data/matmul/h100")
    table(tmp_path / "data/matmul/cpu", device=CPU)
    assert main(["init", "data/matmul/h100", "data/matmul/cpu", "--output", "mine"]) == 0
    spec = read_spec(Path("treegen.yaml"))
    kernel = spec.kernels["matmul"]
    assert (spec.output.name, list(spec.devices)) == ("mine", ["nvidia_h100", "cpu"])
    assert "waves" in kernel.derived and spec.devices["cpu"].limits == {"multiprocessors": 1}
    assert spec.devices["nvidia_h100"].limits == {"shared_memory": 232448, "multiprocessors": 132}
    assert spec.devices["cpu"].vendor == "cpu" and not spec.devices["cpu"].names
    assert kernel.features == ("M", "N", "dtype")
    assert list(kernel.derived)[:3] == ["tiles_M", "tiles_N", "tiles"]
    assert kernel.values == {"dtype": {0: "float16", 1: "float32"}}
    letters = {name: parameter.letters for name, parameter in kernel.parameters.items()}
    assert letters == {"BLOCK_M": "M", "BLOCK_N": "N", "num_warps": "W"}
    assert dict(kernel.fallback.parameters)["BLOCK_M"] == 32  # the best that never failed
    capsys.readouterr()
    assert main(["build"]) == 0
    assert main(["check", "--strict"]) == 0


def test_tables_without_rows_and_with_variants(tmp_path, capsys):
    with (table(tmp_path / "data/running") / "times.csv").open("a") as times:
        times.write("s1,2,1.0,")  # a row in flight
    assert main(["init", "data/running", "--spec", "running.yaml"]) == 0
    folder = table(tmp_path / "data/a", rows=False)
    assert main(["init", str(folder), "--spec", "-"]) == 0
    assert "fallback: {BLOCK_M: 16," in capsys.readouterr().out
    configs = (config("a"), {**config("b"), "variant": "split"})
    with start(tmp_path / "data/b", configs=configs) as writer:
        writer.append("decode-0", {"a": 2.0, "b": 1.0})
    kernel = kernel_of("data/b")
    assert kernel.variants == ("qblock", "split") and kernel.fallback.variant == "split"


def test_features_that_tell_nothing_are_left_out(tmp_path, capsys):
    scenarios = {f"s{m}": (2**m, 4096, 0, 2**m, 64 << m % 3) for m in range(8)}
    configs = tuple({"id": f"c{size}", "BK": size, "block_v": 32} for size in (16, 32, 64))
    features, values = ("K", "H", "dtype", "K2", "V"), {"dtype": ["float16"]}
    table(tmp_path / "data/a", features=features, values=values, scenarios=scenarios, configs=configs)
    kernel = kernel_of("data/a")
    assert kernel.features == ("K", "V") and not kernel.values
    assert {name: to_text(formula) for name, formula in kernel.derived.items()} == {
        "tiles_K": "ceil_div(K, 32)",
        "tiles_V": "ceil_div(V, 32)",
        "tiles": "tiles_K * tiles_V",
        "waves": "ceil_div(tiles, max(1, multiprocessors))",
    }
    text = Path("treegen.yaml").read_text()
    assert "H is always 4096; dtype is always float16; K2 equals K" in text
    assert main(["build"]) == 0  # of the table's words, no feature has any
    assert "column" not in capsys.readouterr().out


def test_words_of_one_meaning_are_one_feature(tmp_path, capsys):
    scenarios = {f"s{m}": (2**m, m % 2, 1 - m % 2, m % 3 % 2) for m in range(8)}
    boolean = ["false", "true"]
    values = {"USE_GATE": boolean, "OTHER": [*boolean], "gate_dtype": ["float32", "none"]}
    features = ("K", "USE_GATE", "gate_dtype", "OTHER")
    table(tmp_path / "data/a", features=features, values=values, scenarios=scenarios)
    kernel = kernel_of("data/a")
    assert kernel.features == ("K", "USE_GATE", "OTHER")  # a gate that is there has an element type
    assert "gate_dtype follows from USE_GATE" in Path("treegen.yaml").read_text()
    assert main(["build"]) == 0 and "gate_dtype" not in capsys.readouterr().out
    spec = Path("treegen.yaml")
    spec.write_text(spec.read_text().replace("[K, USE_GATE, OTHER]", "[K, USE_GATE]").replace("OTHER:", "#"))
    assert main(["build"]) == 0 and "column OTHER" in capsys.readouterr().out


@pytest.mark.parametrize(("constants", "held"), [
    (["N", "dtype"], ("N",)),  # a new model has element types that are known
    (["dtype"], ("dtype",)),
    ([], ("N",)),  # what has fewer values than the other
])  # fmt: skip
def test_whole_models_are_held_out(tmp_path, constants, held):
    table(tmp_path / "data/a", constants=constants)
    kernel = kernel_of("data/a")
    assert kernel.hold_out_by == held and kernel.features == ("M", "N", "dtype")
    assert main(["build"]) == 0


BYTES = "2 * (BLOCK_M + BLOCK_N) * BLOCK_K * num_stages"  # a pipelined product of bf16 matrices
ROWS = "4 * BLOCK_M * N"  # a tile of whole rows, of which one config fits short ones alone


@pytest.mark.parametrize(("limit", "failed_for", "needs"), [
    (232448, "shared memory", BYTES), (101376, "shared memory", BYTES), (1 << 30, "shared memory", BYTES),
    (232448, "registers", BYTES), (232448, "shared memory", ROWS),
])  # fmt: skip
def test_too_little_memory_is_a_constraint(tmp_path, limit, failed_for, needs):
    sizes = [(m, n, k, s) for m in (64, 128, 256) for n in (64, 256) for k in (32, 128) for s in (2, 3, 4)]
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages")
    configs = [dict(zip(names, values, strict=True)) for values in sizes]
    listed = [{"id": f"c{place}", **config} for place, config in enumerate(configs)]
    device = {"name": H100, "arch": "sm_90" if limit == 232448 else "sm_89", "multiprocessors": 132}
    with start(tmp_path / "data/a", **{**PLAIN, "configs": listed, "device": device}) as writer:
        for scenario, (_, n, _) in PLAIN["scenarios"].items():
            needed = {f"c{place}": eval(needs, {**config, "N": n}) for place, config in enumerate(configs)}
            reason = f"{TOO_LARGE}: {failed_for}, {{}} of {limit}"
            cells = {c: Failure(reason.format(n)) if n > limit else 1.0 + n / 1e6 for c, n in needed.items()}
            writer.append(scenario, cells)
    unknown = limit == 1 << 30 or failed_for == "registers"
    found = [rule.text for rule in kernel_of("data/a").constraints]
    assert found == ([] if unknown else [f"{needs} <= shared_memory"])
    assert main(["build"]) == 0


def test_added_tables_keep_text(tmp_path, capsys, refusal):
    table(tmp_path / "data/h100")
    table(tmp_path / "data/h200", device={"name": "NVIDIA H200", "arch": "sm_90", "multiprocessors": 132})
    table(tmp_path / "data/cpu", device=CPU)
    table(tmp_path / "data/unknown", device={"name": "NVIDIA L4", "arch": "sm_89"})
    table(tmp_path / "data/other", kernel="other")
    assert main(["init", "data/h100", "--spec", "my specs.yaml"]) == 0
    assert "`treegen build --spec 'my specs.yaml'`" in capsys.readouterr().out
    spec = Path("my specs.yaml")
    spec.write_text(spec.read_text().replace("devices:", "devices:  # mine") + "    # the end")
    before = spec.read_text()
    add = ("init", "--spec", str(spec), "--add")
    assert "data/h100" in refusal(tmp_path, *add, "data/h100")
    assert "--output" in refusal(tmp_path, *add, "data/h200", "--output", "mine")
    # This table states no multiprocessors, and the kernel's waves need them.
    assert "multiprocessors" in refusal(tmp_path, *add, "data/unknown")
    link = Path("link.yaml")
    link.symlink_to(spec)
    assert main([*add[:2], str(link), "--add", "data/h200", "data/other", "data/cpu"]) == 0
    assert link.is_symlink()
    found = read_spec(spec)
    assert list(found.devices) == ["nvidia_h100", "nvidia_h200", "cpu"]
    tables = {k.name: list(k.tables) for k in found.kernels.values()}
    assert tables == {"matmul": ["nvidia_h100", "nvidia_h200", "cpu"], "other": ["nvidia_h100"]}
    lines = iter(spec.read_text().splitlines())
    assert all(line in lines for line in before.splitlines())  # in this order
    assert main(["build", "--spec", str(spec)]) == 0


@pytest.mark.parametrize(("tables", "added"), [
    ("tables: {nvidia_h100: data/a}  # here", True),
    ("tables: {}  # none yet", True),
    ("tables: {nvidia_h100: data/a, # here\n      }", False),
    ("tables:\n          nvidia_h100: data/a\n\n    # {after}", True),
    (f"tables:\n      nvidia_h100:\n        {{folder: data/a,\n        measured_on: {H100}}}", True),
])  # fmt: skip
def test_tables_are_added_to_any_section(tmp_path, refusal, tables, added):
    table(tmp_path / "data/a")
    table(tmp_path / "data/b", device={"name": "NVIDIA H200", "multiprocessors": 132})
    assert main(["init", "data/a"]) == 0
    spec = Path("treegen.yaml")
    text = spec.read_text().replace("tables:\n      nvidia_h100: data/a", tables)
    spec.write_bytes(text.rstrip("\n").replace("\n", "\r\n").encode())
    if added:
        assert main(["init", "--add", *["data/a"] * ("{}" in tables), "data/b"]) == 0
        assert list(read_spec(spec).kernels["matmul"].tables) == ["nvidia_h100", "nvidia_h200"]
        assert spec.read_bytes().count(b"\n") == spec.read_bytes().count(b"\r\n")
    else:
        assert "kernels.matmul.tables" in refusal(tmp_path, "init", "--add", "data/b")


def test_choices_that_only_have_names_work(tmp_path, capsys):
    sizes = (2**power for power in range(4, 20))
    rows = [f"{n},max,{n / 8 + 1}\n{n},Radix-Sort,{n / 64 + 90}\n" for n in sizes]
    Path("t.csv").write_text(f"n,algorithm,time_us\n{''.join(rows)}")
    named = ("--features", "n", "--time", "time_us", "--kernel", "topk", "--device", "cpu")
    assert main(["import", "csv", "t.csv", *named]) == 0
    for command in (["init", "tuning_data/topk/cpu"], ["build"], ["check", "--strict"]):
        assert main(command) == 0
    shutil.copytree(tmp_path, tmp_path / "before", ignore=shutil.ignore_patterns("before"))
    spec = Path("treegen.yaml")
    spec.write_text(spec.read_text().replace("    tables:", "    tree: {max_rows: 1}\n    tables:"))
    assert main(["build"]) == 0
    capsys.readouterr()
    for command in (["explain", "topk", "n=99"], ["eval"], ["diff", "before"]):
        assert main(command) == (1 if command[0] == "diff" else 0)
        assert "RADIX_SORT" in capsys.readouterr().out or command[0] == "eval"


def test_what_init_refuses(tmp_path, refusal):
    folder = table(tmp_path / "data/a")
    assert "data/none" in refusal(tmp_path, "init", "data/none")
    assert "nvidia_h100" in refusal(tmp_path, "init", "data/a", "data/a")
    for output in ("a-b", "json", "numpy", "../a"):
        assert output in refusal(tmp_path, "init", "data/a", "--output", output)
    (tmp_path / "sub").mkdir()
    assert "'../data/a'" in refusal(tmp_path, "init", "data/a", "--spec", "sub/t.yaml")
    (tmp_path / "heuristics").mkdir()
    (tmp_path / "heuristics/treegen.lock").write_text("{}")
    assert "--output" in refusal(tmp_path, "init", "data/a", "--spec", "other.yaml")
    (tmp_path / "heuristics/treegen.lock").unlink()
    (tmp_path / "treegen.yaml").write_text("mine")
    assert "treegen.yaml" in refusal(tmp_path, "init", folder)
    table(tmp_path / "data/upper", kernel="MatMul")
    assert "'MatMul'" in refusal(tmp_path, "init", "data/upper", "--spec", "other.yaml")


# Whatever it writes, `treegen build` builds: over CSV files with any headers and values.

COMMON = ["M", "N", "K", "BLOCK_M", "BK", "num_warps", "dtype", "algorithm", "json", "numpy", "on", "null"]
COMMON += ["M_N", "tiles_M", "tiles", "waves", "multiprocessors", "shared_memory", "tl", "STEPS", "kernel"]
NAMES = ["variant", "max", "class", "match", "Config", "VALUES", "steps", "step", "choose", "row", "fits"]
NAMES += ["kind", "id", "scenario", "repeat", "True", "1a", "ä", "_a", "__a", "a-b", "default", "count"]
NAMES.append("x y")
ANY_NAME = st.one_of(*[st.sampled_from(COMMON)] * 12, st.sampled_from(NAMES))
WORDS = ["max", "Json", "on", "no", "null", "steps", "a b", "a_b", "1a", "", "x: {y}", "config", "SORT_M64"]
CELLS = st.one_of(
    *[st.lists(st.integers(0, 4096), min_size=2, max_size=3)] * 9,
    st.lists(st.sampled_from([-1, 1, 2**31, 2**61, 2**63]), min_size=2, max_size=3),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=3),
    st.sampled_from([["0.5", "0.25"], ["true", "false"], ["None", "1"], [7, 7]]),
)
COLUMNS = st.dictionaries(ANY_NAME, CELLS, min_size=2, max_size=5)


def run(*arguments):
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        return main(list(arguments)), err.getvalue()


@examples(150)
@given(
    COLUMNS,
    st.integers(1, 4),
    st.one_of(*[st.just("topk")] * 5, ANY_NAME),
    st.sampled_from(["cpu", "NVIDIA H100 80GB HBM3", "json", "on", *["NVIDIA H200"] * 4, "max"]),
)
@example({"M": [1, 64], "N": [8, 512], "BLOCK_M": [16, 32], "num_warps": [4, 8]}, 2, "matmul", "NVIDIA H200")
@example({"n": [1, 64], "algorithm": ["max", "json", "on"]}, 1, "numpy", "cpu")
def test_what_init_writes_builds(tmp_path_factory, columns, count, kernel, device):
    folder = tmp_path_factory.mktemp("p")
    features = list(columns)[: min(count, len(columns) - 1)]
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "time_us"])
        for place in range(18):
            cells = [values[place // 3**at % len(values)] for at, values in enumerate(columns.values())]
            writer.writerow([*cells, 10 + place % 7])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        named = ["--features", ",".join(features), "--time", "time_us", "--kernel", kernel]
        status, error = run("import", "csv", "t.csv", *named, "--device", device)
        for folder in Path("tuning_data").glob("*/*"):
            status, error = run("init", str(folder))
            if status == 0:
                event("built")
                assert run("build") == (0, "")
                assert run("check")[0] == 0
    assert status in (0, 2) and error.count("\n") == (status == 2)

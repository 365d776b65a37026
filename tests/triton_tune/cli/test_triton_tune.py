"""`triton-tune` from a file to a table, in Triton's interpreter."""

import linecache
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from programs import python

from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.cli.main import main
from triton_tune.kernel.measuring import loaded
from triton_tune.kernel.tuning import load_tunings
from tuning_table import read_run
from tuning_table.table import Failure

torch.use_deterministic_algorithms(False)  # imports for a second what forked processes then share
FILE = Path(__file__).parents[2] / "helpers" / "scaled_kernel.py"
SCALED = ("--kernel", "scaled")
SUMS = ("--kernel", "sums")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command on the file of this test; the processes that measure are forked, to start at once."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, tmp_path / "kernel.py")

    def run_here(*arguments, code=0):
        linecache.clearcache()  # the file may have changed
        load_tunings.cache_clear()
        loaded.cache_clear()
        assert main(["kernel.py", "--gpus", "cpu", *arguments]) == code
        output = capsys.readouterr()
        return (output.err if code else output.out).splitlines()

    return run_here


TABLE = Path("tuning_data/scaled/cpu_triton_interpreter")
SUMS_TABLE = Path("tuning_data/sums/cpu_triton_interpreter")


def change(*replacements):
    """Replace texts of the kernel's file, which must be there. Returns the file as it was."""
    path = Path("kernel.py")
    text = before = path.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return before


def test_a_table_holds_features_words_times_and_what_failed(run):
    lines = run(*SCALED)
    assert "12 shapes, 5 configs, 60 cells" in lines[0] and "FLAG (false, true)" in lines[1]
    recorded = read_run(TABLE)
    assert recorded.header.features == ("N", "FLAG", "x_ptr_dtype")
    assert recorded.header.provenance["values"] == {
        "FLAG": ["false", "true"],
        "x_ptr_dtype": ["float16", "float32"],
    }
    assert recorded.scenarios["size7_flag1_dtypefloat16"] == (7, 1, 0)
    assert recorded.header.configs[0].id == "B16_M0_W1_S1"
    assert {config.variant for config in recorded.header.configs} == {None}
    for visit in recorded.visits:
        size = recorded.scenarios[visit.scenario][0]
        for config, cell in visit.cells.items():
            failed = isinstance(cell, Failure)
            if "_M1_" in config or "_M3_" in config:
                assert failed and cell.reason.startswith("disagrees with the reference: "), (visit, config)
            else:
                excluded = int(config[1:3]) > max(16, size)
                assert cell == Failure("left out by early_config_prune") if excluded else not failed
    assert len({visit.scenario for visit in recorded.visits}) == 12


def test_an_empty_table_is_filled_and_grows_but_not_with_another_kernel_or_list_of_shapes(run):
    table, path = SUMS_TABLE, Path("kernel.py")
    assert f"treegen init {table}" in run(*SUMS, "--empty")[-1]
    assert read_run(table).visits == () and treegen(["init", str(table), "--spec", "-"]) == 0
    run(*SUMS)
    before = (table / "times.csv").read_text()
    for old, new, named in (("x + 1", "x + 2", "source_hash"), ("50}", "60}", "does not list")):
        source = change((old, new))
        assert named in run(*SUMS, code=2)[0]
        path.write_text(source)
    change(('{"size": 50}', '{"size": 9}, {"size": 50}'))
    assert any("3 of 3 scenarios" in line for line in run(*SUMS))
    recorded = read_run(table)
    assert (table / "times.csv").read_text().startswith(before)
    assert recorded.scenarios == {"size10": (10,), "size9": (9,), "size50": (50,)}
    # What the autotuner resets and restores is as the reference expects it.
    assert all(isinstance(cell, float) for visit in recorded.visits for cell in visit.cells.values())


def cells_of(table):
    return {(visit.scenario, visit.repeat): visit.cells for visit in read_run(table).visits}


def test_a_longer_list_of_configs_measures_the_new_ones_and_a_shorter_one_drops_columns(run):
    two = "_config(16), _config(32)]"
    run(*SUMS, "--budget", "30")
    before = cells_of(SUMS_TABLE)
    source = change((two, f"{two[:-1]}, _config(64)]"))
    run(*SUMS, "--budget", "30")
    after = cells_of(SUMS_TABLE)
    assert before.items() <= after.items()
    added = [set(after[row]) for row in after.keys() - before.keys()]
    assert added and all("B64_M0_W1_S1" in row for row in added) and {"B64_M0_W1_S1"} in added
    Path("kernel.py").write_text(source)
    run(*SUMS)
    assert before.items() <= cells_of(SUMS_TABLE).items()
    change((two, "_config(16), _config(64)]"))
    assert "B32_M0_W1_S1" in run(*SUMS, code=2)[0]


SECOND = """

@triton.autotune(configs=[_config(16), _config(64)], key=["N"])
@triton.jit
def zeroed(x_ptr, N, BLOCK: tl.constexpr, MODE: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < N)


def add(x):
    total = torch.ones(1)
    zeroed[(1,)](total, N=1)
"""


ANOTHER = ("\ndef add(x):\n    total = torch.zeros(1)\n", SECOND)


def test_another_autotuned_kernel_of_a_call_is_named_and_does_not_search(run):
    """Its search would need a GPU here."""
    change(ANOTHER)
    lines = run(*SUMS)
    assert sum("zeroed" in line for line in lines) == 1
    cells = [cell for row in cells_of(SUMS_TABLE).values() for cell in row.values()]
    assert cells and all(isinstance(cell, float) for cell in cells)


LOCAL = """
def local():
    import enum
    return enum.IntEnum("Local", {"EVEN": 2, "ODD": 1})

ADDED ="""


def test_a_feature_may_be_an_enum_whose_class_no_other_process_finds(run):
    change(("ADDED =", LOCAL), ('name="sums"', 'name="sums", features={"odd": lambda given: local().ODD}'))
    run(*SUMS, "--budget", "30")
    table = read_run(SUMS_TABLE)
    assert table.header.features == ("N", "odd") and {row[1] for row in table.scenarios.values()} == {1}


def test_the_element_type_of_a_tensor_that_some_shapes_leave_out_is_a_word(run):
    change(
        ("def added(x_ptr, total_ptr, N,", "def added(x_ptr, total_ptr, N, bias_ptr,"),
        ("def add(x):", "def add(x, bias):"),
        ("(x, total, N=len(x))", "(x, total, N=len(x), bias_ptr=bias)"),
        ("[torch.randn(size)]", "[torch.randn(size), torch.ones(1) if size > 20 else None]"),
        ("lambda x: (x.sum", "lambda x, bias: (x.sum"),
    )
    run(*SUMS)
    recorded = read_run(SUMS_TABLE)
    assert recorded.header.provenance["values"] == {"bias_ptr_dtype": ["float32", "none"]}
    assert recorded.scenarios == {"size10": (10, 1), "size50": (50, 0)}
    assert all(isinstance(cell, float) for visit in recorded.visits for cell in visit.cells.values())


REFERENCE = "reference=lambda x, flag: x * ("


def test_a_wrong_reference_ends_the_run_early_and_a_mended_one_begins_again(run):
    right = change((REFERENCE, f"{REFERENCE[:-1]}-("))
    run(*SCALED, code=1)
    recorded = read_run(TABLE)
    assert sum(len(visit.cells) for visit in recorded.visits) < 60 // 2
    reasons = list(recorded.header.provenance["summary"]["failures"])
    assert any("disagrees with the reference: error 2e+00" in reason for reason in reasons)
    Path("kernel.py").write_text(right)
    assert any("12 of 12 scenarios" in line for line in run(*SCALED))
    assert read_run(TABLE).header.provenance["summary"]["finished"] is True


@pytest.mark.parametrize(
    ("wrong", "code"), [("len(x) == 7", 1), ("len(x) == 7 and flag and x.itemsize == 4", 0)]
)
def test_hopeless_scenarios(run, capsys, wrong, code):
    change((REFERENCE, f"reference=lambda x, flag: (-x if {wrong} else x) * ("))
    assert main(["kernel.py", "--gpus", "cpu", *SCALED]) == code
    output = capsys.readouterr().out
    assert f"no config works in {4 if code else 1} of 12 scenarios" in output and "size7_" in output
    assert ("next: " in output) is not bool(code)
    assert len({visit.scenario for visit in read_run(TABLE).visits}) == 12


def test_what_calls_the_kernel_may_read_best_config_and_leave_out_defaults(run):
    change(
        ("    return y\n", "    assert scaled.best_config.kwargs['BLOCK']\n    return y\n"),
        ('MODE: tl.constexpr):\n    """y', 'MODE: tl.constexpr = 0):\n    """y'),
        ('"BLOCK": block, "MODE": mode}', '"BLOCK": block, **({"MODE": mode} if mode else {})}'),
    )
    run(*SCALED)
    recorded = read_run(TABLE)
    assert recorded.header.configs[0].id == "B16_M0_W1_S1"
    assert any(isinstance(cell, float) for visit in recorded.visits for cell in visit.cells.values())


RANGES = 'shapes={"size": (1, 60)}, num_shapes=16'


def test_shapes_are_drawn_from_ranges_and_some_make_a_table_that_judges(run):
    change(('shapes=[{"size": 10}, {"size": 50}]', RANGES))
    lines = run(*SUMS, "--dry-run")
    assert any(line.startswith("  N: 1 [") for line in lines)
    run(*SUMS)
    assert run(*SUMS, "--untuned")[-1].startswith("next: treegen eval --against ")
    tables = [read_run(f"tuning_data/sums/{name}cpu_triton_interpreter") for name in ("", "untuned_")]
    sizes = [{row for (row,) in table.scenarios.values()} for table in tables]
    assert all(sizes) and not sizes[0] & sizes[1] and len(sizes[0] | sizes[1]) == 16
    assert all(visit.cells for table in tables for visit in table.visits)
    assert "--untuned needs ranges" in run(*SCALED, "--untuned", code=2)[0]
    change(("num_shapes=16", "num_shapes=20"))
    run(*SUMS)  # goes on
    assert len(read_run("tuning_data/sums/cpu_triton_interpreter").scenarios) > len(tables[0].scenarios)


@pytest.mark.parametrize(("old", "new"), [
    ("[torch.randn(size)]", "[torch.randn(size << 50)]"),
    ("[torch.randn(size)]", "[torch.randn(len(torch.arange(size).tolist()))]"),  # needs values
])  # fmt: skip
def test_a_dry_run_and_an_empty_table_make_no_tensors(run, old, new):
    change((old, new))
    assert "2 shapes" in run(*SUMS, "--dry-run")[1]
    change(ANOTHER)
    assert "2 shapes" in run(*SUMS, "--dry-run")[1]  # with another kernel before, which is not launched
    run(*SUMS, "--empty")


@pytest.mark.parametrize(("shapes", "constants"), [
    ('shapes={"size": (1, 60), "flag": [0, 1]}, num_shapes=8', ["FLAG"]),
    ('shapes={"size": (1, 60), ("flag", "dtype"): [(0, "a"), (1, "b")]}, num_shapes=8', ["FLAG", "wide"]),
    ('shapes={"size": (1, 60), "flag": [0, 1]}, constants=["size"], num_shapes=8', ["N"]),
    ('shapes=[{"size": s, "flag": f} for s in (7, 40) for f in (0, 1)], constants=("flag",)', ["FLAG"]),
    ('shapes=[{"size": s, "flag": f} for s in (7, 40) for f in (0, 1)]', None),
])  # fmt: skip
def test_a_table_knows_what_a_program_fixes(run, shapes, constants):
    path = Path("kernel.py")
    before, _, after = path.read_text().partition("    shapes=[\n")
    text = before.replace(
        "def arguments(size, flag, dtype):\n    return torch.randn(size).to(dtype), flag",
        "def arguments(size, flag, dtype=None):\n    return torch.randn(size), flag",
    )
    text = text.replace("call=scale,", 'call=scale, features={"wide": lambda a: 2 * a["FLAG"], "N": "N"},')
    path.write_text(text + f"    {shapes})\n" + after[after.index("\n\n@") :])
    run(*SCALED, "--empty")
    header = read_run(TABLE).header
    assert sorted(header.constants) == sorted(
        {*(constants or ()), *(["wide"] if constants and "FLAG" in constants else ())}
    )


@pytest.mark.parametrize(("kernel", "old", "new", "named"), [
    (SUMS, '{"size": 50}', '{"size": 64}', []),
    (SUMS, '{"size": 10}, {"size": 50}', '{"size": 32}, {"size": 64}', ["multiples of 16"]),
    (SCALED, "(7, 40, 100)", "(40,)", ["size is 40"]),
    (SCALED, 'key=["N", "FLAG"]', 'key=["FLAG"]', ["have the same features"] * 4),
])  # fmt: skip
def test_a_dry_run_warns_of_shapes_that_teach_a_tree_little_and_writes_nothing(run, kernel, old, new, named):
    change((old, new))
    warnings = [line for line in run(*kernel, "--dry-run") if line.startswith("warning: ")]
    assert len(warnings) == len(named) and all(map(str.__contains__, warnings, named))
    assert not Path("tuning_data").exists()


def test_the_next_commands_that_it_names_work(run):
    for _ in range(2):  # the second time with a spec
        line = next(line for line in run(*SUMS, "--out", "../else where") if line.startswith("next: "))
        commands = line.removeprefix("next: ").split(" && ")
        for command in commands:
            assert treegen(shlex.split(command)[1:]) == 0
    assert len(commands) == 1
    assert run(*SUMS, "--out", "../else where", "--empty")[-1].endswith(
        f"; next: {line.removeprefix('next: ')}"
    )
    assert "treegen eval --against untuned_data/" in run(*SUMS, "--out", "untuned_data")[-1]  # it judges


@pytest.mark.parametrize(("old", "new", "code"), [
    ("y += 1\n", "y += missing\n", 0), ("reference=lambda x, flag: x", "reference=lambda x, flag: x.y", 1),
])  # fmt: skip
def test_an_error_in_a_kernel_or_a_reference_names_its_line(run, old, new, code):
    path = Path("kernel.py")
    before, _, after = path.read_text().partition(old)
    path.write_text(before + new + after)
    run(*SCALED, code=code)
    (reason,) = (r for r in read_run(TABLE).header.provenance["summary"]["failures"] if "raised" in r)
    assert reason.endswith(f"(kernel.py:{before.count(chr(10)) + 1})"), reason


@pytest.mark.parametrize(("fastest", "code"), [("B16_M0_W1_S1", 0), ("B16_M1_W1_S1", 1)])
def test_choices_may_be_stale(run, capsys, fastest, code):
    run(*SCALED, "--empty")
    table = read_run(TABLE)
    right_or_wrong = {"B16_M0_W1_S1": "9000", "B16_M1_W1_S1": "9000", fastest: "1"}
    cells = ",".join(right_or_wrong.get(config.id, "") for config in table.header.configs)
    with (TABLE / "times.csv").open("a") as file:
        file.writelines(f"{scenario},1,{cells}\n" for scenario in table.scenarios)
    before = (TABLE / "times.csv").read_text()
    assert main(["kernel.py", "--gpus", "cpu", *SCALED, "--recheck", *([str(TABLE)] * code)]) == code
    output = capsys.readouterr().out
    assert (f"stale  {fastest}" in output) is bool(code) and "timed 20 cells of 10 scenarios" in output
    assert (TABLE / "times.csv").read_text() == before


TWO = "configs=[_config(16), _config(32)], key"
TWICE = "configs=[_config(16), triton.Config({'BLOCK': 16, 'MODE': 0}, 1, 1, pre_hook=print)], key"


@pytest.mark.parametrize(("named", "old", "new", "arguments"), [
    ("--kernel: scaled, sums", "", "", ()),
    ("'other'", "", "", ("--kernel", "other")),
    ("kernel.py:1: NameError: name 'missing'", '"""A file', 'missing()\n"""A file', ()),
    ("no Tuning", "Tuning(", "dict(", ()),
    ("two Tunings are called sums", 'TUNING = Tuning(', 'TUNING = Tuning(name="sums",', ()),
    ("{'size': 10}: ValueError", "[torch.randn(size)]", "int('x')", SUMS),
    ("{'size': 10}: its call did not launch added", "call=add,", "call=lambda x: x,", SUMS),
    ("@triton.autotune", "kernel=added", "kernel=added.fn", SUMS),
    ("pre_hooks", TWO, TWICE, SUMS),
    ("Tuning: shapes", '[{"size": 10}, {"size": 50}]', 'iter([{"size": 10}])', ()),
    ("tolerance", 'name="sums"', 'name="sums", tolerance="x"', ()),
    ("features", 'name="sums"', 'name="sums", features=["n"]', ()),
    ("Tuning: name", 'name="sums"', 'name="Sums"', ()),
    ("Tuning: name", 'name="sums"', 'name="config"', ()),
    ("SystemExit", "[torch.randn(size)]", "exit(3)", SUMS),
    ("BLOCK is -1", TWO, "configs=[_config(16), _config(-1)], key", SUMS),
    ("parameter index", TWO, "configs=[triton.Config({'index': n}) for n in (1, 2)], key", SUMS),
    ("Tuning: constants", 'name="sums"', 'name="sums", constants=["width"]', ()),
    ("'size'", '[{"size": 10}, {"size": 50}]', '{"size": (1, 9), ("size", "x"): [(1, 2)]}', SUMS),
    ("prune_configs_by", "return [config for", "return [_config(8) for", SCALED),
    ("MODE", TWO, "configs=[_config(16, 'fast')], key", SUMS),
    ("feature N", "x, total, N=len(x)", "x, total, N=len(x) + 0.5", SUMS),
])  # fmt: skip
def test_mistakes_are_one_line(run, named, old, new, arguments):
    change(*([(old, new)] if old else []))
    (line,) = run(*arguments, code=2)
    assert line.startswith("triton-tune: ") and named in line, line
    assert not Path("tuning_data").exists()


def without_extras(*arguments):
    """Run the command where the package is installed without extras."""
    missing = dict.fromkeys(["torch", "triton", "numpy", "yaml", "rich"])
    code = f"import sys; sys.modules.update({missing})\n"
    code += f"from triton_tune.cli.main import main; sys.exit(main({list(arguments)!r}))"
    return python("-c", code)


def test_a_check_without_a_table_of_this_kernel_is_refused(run):
    assert str(TABLE) in run(*SCALED, "--recheck", code=2)[0]
    run(*SCALED, "--empty")
    assert "sums" in run(*SUMS, "--recheck", str(TABLE), code=2)[0]
    run(*SCALED, "--recheck", code=2)  # it has no times
    with pytest.raises(SystemExit):
        run("--recheck", "--shard", "1/2")


def test_help_and_wrong_use_need_no_extra_and_a_run_says_what_it_needs():
    helped = without_extras("--help")
    assert helped.returncode == 0 and helped.stdout.startswith("usage: triton-tune")
    for arguments, named in (
        (["kernel.py"], "attn-kernels[tune]"),
        (["kernel.py", "--budget", "0"], "--budget"),
        (["kernel.py", "--two\nlines"], "--two"),
        (["--recheck", "kernel.py"], "'kernel.py'"),
    ):
        refused = without_extras(*arguments)
        (line,) = refused.stderr.splitlines()
        assert refused.returncode == 2 and line.startswith("triton-tune: ") and named in line

"""treegen eval: its options, what it refuses, what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    DEVICE,
    SIDES,
    Row,
    contents,
    planted,
    spec,
    treegen_command,
    write_project,
    write_spec,
    write_table,
    write_winners,
)

from treegen.build import fit_tree
from treegen.cli.main import main
from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Tree
from treegen.crossval.parallel import processes
from treegen.review.eval.command import command_line, run
from treegen.review.tables import EvalSettings, read_tables

Capture = pytest.CaptureFixture[str]
Refuse = Callable[..., str]
FAST = ("--folds", "2", "--repeats", "1", "--jobs", "1")
SHAPES: list[Row] = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


def _eval(path: Path, *options: object) -> int:
    return main(["eval", "--spec", str(path), *FAST, *map(str, options)])


def _settings(path: Path, *against: Path, **options: Any) -> EvalSettings:
    return EvalSettings(path, folds=2, repeats=1, against=against, jobs=1, **options)


def _figures(out: Path) -> Any:
    return json.loads((out / "eval.json").read_text())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path)


@pytest.fixture
def two_devices(tmp_path: Path) -> Path:
    """A measured H100 and a MI300X of which only the winners are known."""
    content = spec(tables={DEVICE: "tables/h100", "amd_mi300x": "tables/mi300x"})
    mi300x = {"names": ["AMD Instinct MI300X"], "vendor": "amd", "limits": {"shared_memory": 65536}}
    content["devices"]["amd_mi300x"] = mi300x
    write_winners(tmp_path / "tables/mi300x", device={"name": "AMD Instinct MI300X"})
    return write_project(tmp_path, content)


def test_it_prints_and_writes_only_the_files_named(project: Path, tmp_path: Path, capsys: Capture) -> None:
    before = contents(tmp_path)
    assert _eval(project) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"scale on {DEVICE}\n\n`tables/h100`: 9 scenarios x 3 configs, measured; 2 folds, 1 shuffle:"
    )
    assert contents(tmp_path) == before


def test_it_writes_both_files_and_the_command_that_writes_the_same(
    project: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "results/deep"
    assert _eval(project, "--device", DEVICE, "--out", out) == 0
    assert capsys.readouterr().out.endswith(f"{out}: eval.md and eval.json, 2 changed\n")
    first = contents(out)
    assert sorted(first) == ["eval.json", "eval.md"]
    figures = _figures(out)
    options = f"--device {DEVICE} --folds 2 --repeats 1 --out {out}"
    assert figures["command"] == f"treegen eval --spec {project} {options}"
    assert f"\n    {figures['command']}\n" in (out / "eval.md").read_text()
    (assessment,) = figures["assessments"]
    ways = [row["way"] for row in assessment["rows"] if row["way"] != "helion"]
    assert ways == ["ours", "single_best", "greedy", "classifier", "regressor", "forest"]
    assert all(row["quality"]["choices"] == 9 for row in assessment["rows"])
    assert [len(assessment["bootstrap"][way]) for way in ("build", "fresh")] == [10, 10]
    assert assessment["curves"] == []
    assert assessment["noise"] == {"scenarios": 9, "slowdown": 1.0, "changed": 0.0}
    assert main(figures["command"].split()[1:]) == 0
    assert contents(out) == first


def test_two_runs_are_identical_in_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a table whose rows were written in another order."""
    rows = [[f"s{i + 1:03}", repeat, *planted(s)] for repeat in (1, 2) for i, s in enumerate(SHAPES)]
    for name, order in (("a", rows), ("b", rows[::-1])):
        write_project(tmp_path / name, shapes=SHAPES, rows=order)
    runs = []
    for name, jobs in (("a", "1"), ("b", "2")):
        monkeypatch.chdir(tmp_path / name)
        options = ["--folds", "2", "--repeats", "1", "--curves", "--out", "results"]
        assert main(["eval", *options, "--jobs", jobs]) == 0
        content = _figures(Path("results"))
        del content["assessments"][0]["source"]["sha256"]
        runs.append(content)
    assert runs[0] == runs[1] and len(runs[0]["assessments"][0]["curves"]) == 2
    assert " --curves " in runs[0]["command"]


def test_all_tables_of_the_spec_by_default(two_devices: Path, tmp_path: Path, capsys: Capture) -> None:
    assert _eval(two_devices, "--out", tmp_path / "out") == 0
    measured, won = _figures(tmp_path / "out")["assessments"]
    assert (measured["device"], won["device"]) == (DEVICE, "amd_mi300x")
    assert won["noise"] is None and won["source"]["cells"] == "winners"
    assert {row["quality"]["slowdown"] for row in won["rows"]} == {None}
    assert "won: " in capsys.readouterr().out


def test_a_kernel_with_few_scenarios_is_left_out(tmp_path: Path, capsys: Capture, refusal: Refuse) -> None:
    content = spec()
    content["kernels"]["few"] = {**content["kernels"]["scale"], "tables": {DEVICE: "tables/few"}}
    write_table(tmp_path / "tables/few", kernel="few", shapes=[(1, 1, 2)])
    path = write_project(tmp_path, content)
    assert _eval(path, "--out", tmp_path / "out") == 0
    line = f"few on {DEVICE} is left out: it has 1 different scenario, fewer than 2 folds."
    assert f"\n{line}\n" in capsys.readouterr().out and line in (tmp_path / "out/eval.md").read_text()
    assert [one["kernel"] for one in _figures(tmp_path / "out")["assessments"]] == ["scale"]
    assert _figures(tmp_path / "out")["left_out"] == [line]
    named = refusal(tmp_path, "eval", "--spec", path, "--kernel", "few", "--folds", "2")
    assert named.endswith("tables/few: has 1 different scenario, fewer than 2 folds")
    assert "fewer than 10 folds" in refusal(tmp_path, "eval", "--spec", path, "--folds", "10")


def test_only_the_selected_device(two_devices: Path, capsys: Capture) -> None:
    assert _eval(two_devices, "--device", "amd_mi300x", "--kernel", "scale") == 0
    out = capsys.readouterr().out
    assert "scale on amd_mi300x" in out and DEVICE not in out


def test_failed_and_unmeasured_choices_are_counted(tmp_path: Path) -> None:
    """The config wide is best, but fails at rows = 8 and was not measured at rows = 64.

    A fit that sees only single configs cannot know that.
    """
    cells = {8: [10.0, 20.0, "inf"], 64: [10.0, 20.0, ""]}
    path = write_project(
        tmp_path,
        spec(tree={"max_depth": 1, "max_leaves": 1}),
        times=lambda s: cells.get(s[0], [90.0, 90.0, 1.0]),
        shapes=[(rows, columns, 2) for rows in (1, 8, 64, 512) for columns in SIDES],
    )
    out = tmp_path / "out"
    run(EvalSettings(path, folds=4, out=out, jobs=1), _always_wide)
    ours = _figures(out)["assessments"][0]["rows"][0]["quality"]
    assert (ours["choices"], ours["failed"], ours["unmeasured"]) == (16, 4, 4)
    assert ours["slowdown"] == pytest.approx(2**0.5, abs=1e-5)
    assert (ours["timed_slowdown"], ours["worst"]) == (1.0, 1.0)


def _always_wide(known: Problem) -> Tree:
    return Leaf(known.configs[-1])


# --against


def test_another_table_scores_the_tree(project: Path, tmp_path: Path, capsys: Capture) -> None:
    other = write_table(tmp_path / "other", shapes=SHAPES)
    assert _eval(project, "--against", other, "--against", other, "--out", tmp_path / "out") == 0
    (assessment,) = _figures(tmp_path / "out")["assessments"]
    (against,) = assessment["against"]
    assert against["source"]["path"] == "other" and against["source"]["scenarios"] == 16
    assert all(row["quality"]["choices"] == 16 for row in against["rows"])
    assert "Scored by `other`" in capsys.readouterr().out


def test_a_table_scores_the_trees_of_its_own_gpu(two_devices: Path, tmp_path: Path) -> None:
    again = write_table(tmp_path / "again")
    won = write_winners(tmp_path / "won", device={"name": "AMD Instinct MI300X"})
    h100, mi300x = read_tables(_settings(two_devices, again, won))
    assert [other.source.path for other in h100.others] == ["again"]
    assert [other.source.path for other in mi300x.others] == ["won"]


def test_a_single_tree_is_scored_by_any_gpu(two_devices: Path, tmp_path: Path, refusal: Refuse) -> None:
    foreign = write_table(tmp_path / "foreign", device={"name": "NVIDIA B200"})
    (table,) = read_tables(_settings(two_devices, foreign, device=DEVICE))
    assert [other.source.path for other in table.others] == ["foreign"]
    line = refusal(tmp_path, "eval", "--spec", two_devices, "--against", foreign)
    assert line.startswith(f"{foreign}: measured scale on NVIDIA B200, as no evaluated table did")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"features": ["rows", "columns"], "shapes": [(1, 2), (3, 4)]}, "does not hold heads"),
        ({"kernel": "gemm"}, "measured the kernel 'gemm'"),
    ],
)
def test_another_table_that_does_not_fit(tmp_path: Path, refusal: Refuse, table: Any, says: str) -> None:
    path = write_project(tmp_path, spec(constraints=[]))
    other = write_table(tmp_path / "other", times=planted, **table)
    assert f"{other}: {says}" in refusal(tmp_path, "eval", "--spec", path, "--against", other)


# refusals


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kernel", "gemm"], "has no kernel 'gemm'; it has scale"),
        (["--device", "b200"], "names no table of any kernel for the device 'b200'; there are:"),
        (["--kernel", "scale", "--device", "x\n"], "of kernel scale for the device 'x\\n'"),
        (["--folds", "1"], "--folds 1: must be at least 2"),
        (["--folds", "10"], "has 9 different scenarios, fewer than 10 folds"),
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--jobs", "0"], "--jobs 0: must be at least 1"),
        (["--against", "none"], "none: no such table folder"),
        (["--against", "treegen.yaml"], "no such table folder"),
        (["--spec", "none.yaml"], "no such spec"),
        (["--out", "a" * 300], "cannot be read"),
        (["--out", "a\0b"], ""),
        (["--out", "file"], "file: is a file, but a folder belongs there"),
        (["--out", "file/below/it"], "file: is a file, but a folder belongs there"),
        (["--out", "page"], "page/eval.md: is a folder, but a file belongs there"),
        (
            ["--out", "notes"],
            "notes/eval.md: was not written by `treegen eval`; remove it, or write elsewhere",
        ),
        (
            ["--out", "data"],
            "data/eval.json: was not written by `treegen eval`; remove it, or write elsewhere",
        ),
    ],
)
def test_refusals(
    project: Path,
    tmp_path: Path,
    refusal: Refuse,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("page/eval.md").mkdir(parents=True)
    for name in ("notes/eval.md", "data/eval.json"):
        Path(name).parent.mkdir()
        Path(name).write_text('{"mine": 1}')
    assert says in refusal(tmp_path, "eval", "--out", "results", *options)


def test_copies_of_a_scenario_are_one_to_fold(tmp_path: Path, refusal: Refuse) -> None:
    """As many folds as different scenarios are fine, and no more."""
    path = write_project(tmp_path, shapes=[(1, 1, 2)] * 3 + [(64, 64, 2)])
    assert _eval(path) == 0
    line = refusal(tmp_path, "eval", "--spec", path, "--folds", "3")
    assert line.endswith("has 2 different scenarios, fewer than 3 folds")


def test_a_table_that_does_not_fit_the_spec(tmp_path: Path, refusal: Refuse) -> None:
    path = write_project(tmp_path, features=["a", "b", "c"])
    assert "has a column a, which is no feature of scale" in refusal(tmp_path, "eval", "--spec", path)


def test_devices_without_tables(tmp_path: Path, refusal: Refuse) -> None:
    content = spec()
    content["devices"]["spare"] = {"vendor": "nvidia"}
    path = write_project(tmp_path, content)
    line = refusal(tmp_path, "eval", "--spec", path, "--device", "spare")
    assert line.endswith(f"for the device 'spare'; there are: {DEVICE}")
    path = write_spec(tmp_path, spec(tables={}))
    assert "tables" in refusal(tmp_path, "eval", "--spec", path)


def test_nothing_is_fitted_before_all_input_is_read(two_devices: Path, tmp_path: Path) -> None:
    """The last of several tables is broken."""
    (tmp_path / "tables/mi300x/times.csv").write_text("")

    def fit(known: Problem) -> Tree:
        raise AssertionError("was fitted")

    with pytest.raises(InputError):
        run(_settings(two_devices), fit)


def test_wrong_use(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["eval", "--folds", "many"])
    assert end.value.code == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_nothing_is_written_when_nothing_can_be_printed(project: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = treegen_command("eval", *FAST, "--out", "results", cwd=tmp_path, stdout=full)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


# processes


def _refuse(task: int) -> int:
    raise InputError(f"table {task}", "is not to anyone's liking")


def _square(task: int) -> int:
    return task * task


def test_results_keep_their_order_and_problems_travel(project: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    (table,) = read_tables(_settings(project))
    with processes(2, lambda what, done, total: progress.append((what, done, total))) as spread:
        assert spread("squares", _square, range(20)) == [task * task for task in range(20)]
        assert spread("fits", fit_tree, [table.problem] * 2) == [fit_tree(table.problem)] * 2
    assert progress[:2] == [("squares", 0, 20), ("squares", 1, 20)] and progress[-1] == ("fits", 2, 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_refusal_in_another_process_is_the_same_line(jobs: int) -> None:
    with pytest.raises(InputError, match=r"^table 3: is not to anyone's liking$"), processes(jobs) as spread:
        spread("", _refuse, [3])


def test_the_command_quotes_what_a_shell_would_split() -> None:
    against = (Path("a b"), Path("c"))
    settings = EvalSettings(Path("my spec.yaml"), "scale", DEVICE, against=against, out=Path("out\n"), jobs=3)
    assert command_line(settings) == (
        "treegen eval --spec 'my spec.yaml' --kernel scale --device nvidia_h100 --folds 5 --repeats 1 "
        "--against 'a b' --against c --out 'out\\n'"
    )


def test_a_constraint_that_no_guard_can_express(tmp_path: Path, refusal: Refuse) -> None:
    path = write_project(tmp_path, spec(constraints=["block >= heads * rows"]))
    assert "ties heads and rows together" in refusal(tmp_path, "eval", "--spec", path)

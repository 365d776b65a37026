"""`treegen eval`: who is compared, on which scenarios, what it prints and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from treegen_builders import (
    DEVICE,
    MI300X,
    SIDES,
    contents,
    golden,
    spec,
    write_project,
    write_spec,
    write_table,
    write_two_devices,
)

from treegen.cli.main import main
from treegen.crossval.folds import cross_validate
from treegen.fit.fit import fit
from treegen.read.spec import read_spec
from treegen.write.modules import read_tables

SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


@pytest.fixture
def figures(capsys):
    """A function that runs `treegen eval --json OPTIONS` for a spec and returns its tables."""

    def run(path, *options):
        capsys.readouterr()
        words = ["eval", "--spec", str(path), "--folds", "2", "--jobs", "1", "--json", *map(str, options)]
        assert main(words) == 0
        return json.loads(capsys.readouterr().out)["tables"]

    return run


def test_all_ways_are_scored_on_every_scenario(tmp_path, figures):
    path = write_two_devices(tmp_path, {})
    before = contents(tmp_path)
    measured, won = figures(path)
    assert contents(tmp_path) == before
    assert (measured["device"], won["device"]) == (DEVICE, MI300X)
    scores = {score["way"]: score for score in measured["scores"]}
    assert list(scores) == ["ours", "single_best", "classifier", "forest"]
    assert {score["folds"]["quality"]["choices"] for score in scores.values()} == {9}
    assert {score["groups"] for score in scores.values()} == {None}  # all have two heads
    assert scores["single_best"]["configs"] == 1 and scores["forest"]["cells"] is None
    assert measured["noise"] == 0.0 and measured["held_out"]
    assert {score["folds"]["quality"]["slowdown"] for score in won["scores"]} == {None}
    assert figures(path, "--device", MI300X, "--kernel", "scale") == [won]


def test_held_out_figures_are_those_of_build(tmp_path, figures):
    """Four models with a best config each, which rows can remember by the length of their steps."""
    shapes = [((64 << model) + step, 8, model) for model in range(4) for step in range(15)]

    def times(shape):
        return [10.0 if config == shape[2] * 2 % 3 else 20.0 for config in range(3)]

    path = write_project(tmp_path, spec(constraints=[]), shapes=shapes, times=times)
    (made,) = read_tables(read_spec(path), None, None)
    expected = cross_validate(made, fit)
    (found,) = figures(path, "--folds", 5)
    assert expected is not None and expected.groups is not None
    assert (found["groups"], found["group_by"]) == (4, ["heads"])
    ours = found["scores"][0]
    for theirs, mine in ((ours["folds"], expected.folds), (ours["groups"], expected.groups)):
        assert theirs["quality"]["slowdown"] == pytest.approx(mine.quality.slowdown, abs=1e-6)
        assert theirs["error"] == pytest.approx(mine.error, abs=1e-6)
    assert ours["folds"]["quality"]["slowdown"] < 1.1 < ours["groups"]["quality"]["slowdown"]
    (found,) = figures(path, "--hold-out-by", "heads,area")
    assert (found["groups"], found["group_by"]) == (60, ["heads", "area"])


def test_another_table_scores_what_was_fitted_to_the_whole_table(tmp_path, figures):
    other = write_table(tmp_path / "other", shapes=SHAPES)
    _, against = figures(write_project(tmp_path), "--against", other, "--against", other)
    assert not against["held_out"]
    assert (against["table"], against["scenarios"]) == ("other", 16) and 0 < against["known"] < 9
    assert {score["folds"]["quality"]["choices"] for score in against["scores"]} == {16}


def test_wrong_use_is_one_line(tmp_path, refusal, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, spec(constraints=[]))
    write_table(tmp_path / "lacks_rows", features=["columns", "heads"], shapes=[(1, 2)])
    write_table(tmp_path / "of_gemm", kernel="gemm")
    write_spec(tmp_path / "empty", spec(tables={}))
    for options, named in {
        "--kernel gemm": "gemm",
        "--device b200": "b200",
        "--kernel scale --device x\n": "x\\n",
        "--folds 1": "--folds 1",
        "--hold-out-by heads": "--hold-out-by heads",  # all have two
        "--hold-out-by rows,head": "head",
        "--against none": "none",
        "--against lacks_rows": "rows",
        "--against of_gemm": "gemm",
        "--spec none.yaml": "none.yaml",
    }.items():
        assert named in refusal(tmp_path, "eval", *options.split(" "))
    for command in (["eval"], ["report"], ["explain", "scale", "rows=1"]):
        path = "empty/treegen.yaml"
        assert refusal(tmp_path, *command, "--spec", path).startswith(f"{path}: ")


def test_the_printed_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, spec(constraints=["block >= 8 * heads"]), shapes=SHAPES)
    write_table(tmp_path / "again", shapes=SHAPES[:9])
    assert main(["eval", "--folds", "4", "--against", "again", "--jobs", "1"]) == 0
    said = re.sub(r"\d+\.\d+|(?<=Made by ).*", "0.0", capsys.readouterr().out)
    printed = "".join(f"{line.rstrip()}\n" for line in said.splitlines())
    assert printed == golden(Path(__file__).parent / "golden/evaluate.md.txt", printed)

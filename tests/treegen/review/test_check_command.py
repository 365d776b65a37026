"""`treegen check` of small projects that are damaged in one place."""

import itertools
import re
import shutil

import pytest
from treegen_builders import DEVICE, KERNEL, build, contents, spec, time_rows, write_project, write_table

from treegen.cli.build import CHECKS
from treegen.cli.main import main
from treegen.cli.parsers import FINE, FOUND

MODULE = f"generated/{KERNEL}/{DEVICE}.py"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A built project that is the current folder."""
    monkeypatch.chdir(tmp_path)
    assert build(write_project(tmp_path)) == 0
    return tmp_path


@pytest.fixture
def check(project, capsys):
    """A function that runs `treegen check OPTIONS`, asserts the exit code and returns stdout."""

    def run(status, *options):
        capsys.readouterr()
        assert main(["check", *options]) == status
        return capsys.readouterr().out

    return run


def section(out, name):
    """A check's line and its problems."""
    start, *rest = out[out.index(f"{name:<12} ") :].splitlines()
    return [start, *itertools.takewhile(lambda line: line.startswith(" "), rest)]


def named(out, name):
    """The files that the problems of a check name."""
    return [re.split("[: ]", line.strip())[0] for line in section(out, name)[1:]]


def figures(*lines):
    """The integers of a check's lines: how many tables, scenarios, modules, rows or files there are."""
    return [int(figure) for line in lines for figure in re.findall(r"\d+", line)]


def test_no_problem_and_nothing_written(project, capsys):
    before = contents(project)
    capsys.readouterr()
    assert main(["check", "--strict"]) == FINE
    out, err = capsys.readouterr()
    *lines, _ = out.splitlines()
    assert [line.split()[0] for line in lines] == list(CHECKS)  # and no line of a problem
    assert [line.partition(":")[0] for line in err.splitlines()] == list(CHECKS)
    assert figures(*lines) == [1, 0, 9, 2, 2, 6]
    assert contents(project) == before


def test_a_table_that_cannot_be_read_of_the_spec_or_beside_it(project, check):
    write_table(project / "tables/second")
    (project / "tables/notes").mkdir()
    assert figures(*section(check(FINE), "tables")) == [1, 1, 18]
    (project / "tables/second/scenarios.csv").unlink()
    out = check(FOUND)
    assert named(out, "tables") == ["tables/second/scenarios.csv"]
    assert figures(*section(out, "fresh")) == [6]
    shutil.rmtree(project / "tables/second")
    times = project / "tables/h100/times.csv"
    times.write_text(times.read_text().replace("40.0", "fast", 1))
    out = check(FOUND)
    line, problem = section(out, "tables")
    assert line.endswith("1 problem")
    assert problem.startswith("    tables/h100/times.csv:") and "'fast'" in problem
    assert "not run" in section(out, "fresh")[0]
    assert figures(*section(out, "modules")) == [2, 2]
    assert "1 problem" in out.splitlines()[-1]


def test_rows_that_are_often_far_from_the_best_are_noted(project, check):
    """One row must serve all shapes; the best one takes twice as long as another in some."""
    build(write_project(project, spec(tree={"max_rows": 1})))
    (line,) = section(check(FINE), "modules")[1:]
    assert MODULE in line and "steps, row 0 (100%)" in line


def test_what_a_table_lacks_is_noted_or_refused(project, check):
    """A run wrote no row of a scenario in which every config failed."""
    shapes = [(rows, 8, 2) for rows in range(1, 13)]
    content = spec(fallback={"variant": "plain", "block": 256, "warps": 4})
    rows = time_rows(shapes)
    shapes += [(13, 8, 2), (14, 8, 2)]
    build(write_project(project, content, shapes=shapes, rows=rows, summary={"scenarios": 13}))
    notes = section(check(FINE), "tables")[1:]
    assert ["no config" in line for line in notes] == [True, False] and "PLAIN_B256_W4" in notes[1]
    write_project(project, content, shapes=shapes, rows=rows, summary={"scenarios": 14})
    found = section(check(FOUND), "tables")
    assert found[0].endswith("1 problem") and "2 of 14" in found[1]


def test_modules_that_were_edited_or_moved(project, check):
    default = f"generated/{KERNEL}/default.py"
    module = (project / MODULE).read_text()
    (project / MODULE).write_text("choose = None\n")
    out = check(FOUND)
    assert MODULE in named(out, "fresh") and named(out, "modules") == [MODULE]
    (line,) = section(out, "compile")
    assert "not run" not in line  # there is nothing to compile, as the spec names no hook
    (project / MODULE).unlink()
    (project / default).write_text(module)
    assert named(check(FOUND, "--skip", "fresh"), "modules") == [MODULE, default]


def test_files_that_were_edited_or_added(project, check):
    build(write_project(project, spec(in_kernel=True)))
    assert section(check(FINE), "modules")[0].endswith(", 2 for kernels")
    edited = [f"generated/{KERNEL}/{name}.py" for name in ("__init__", "config", f"in_kernel/{DEVICE}")]
    added = [f"generated/{KERNEL}/{name}.py" for name in ("extra", "in_kernel/extra")]
    for path in (*edited, *added):
        with (project / path).open("a") as file:
            file.write("\n\nimport socket\n")
    out = check(FOUND)
    assert (named(out, "modules"), named(out, "fresh")) == ([edited[1], *added], edited)


def test_no_row_is_noted_where_the_table_lacks_what_the_module_asks(project, check):
    shapes = [(rows, heads) for rows in (1, 8, 64) for heads in (2, 4)]
    write_project(project, features=["rows", "heads"], shapes=shapes, rows=time_rows([(8, 8, 2)] * 6))
    assert "area" in (project / MODULE).read_text()
    assert section(check(FINE, "--skip", "fresh"), "modules")[1:] == []


def test_a_lock_without_rows(project, check):
    for text in ("", "<<<<<<< main\n{}", "{}", '{"rows": {}}'):
        (project / "generated/treegen.lock").write_text(text)
        found = section(check(FOUND, "--skip", "fresh"), "modules")
        assert found[0].startswith("modules      0 modules") and "generated/treegen.lock" in found[1]


def test_a_spec_that_would_print_other_modules(project, check):
    """With other names or another constraint, or trees that ask what they may not: lock and module fit."""
    regimes = {"few": "rows <= 8", "many": "otherwise"}
    for content in (spec(derived={"surface": "rows * columns"}), spec(regimes=regimes)):
        write_project(project, content)
        assert named(check(FOUND, "--skip", "fresh"), "modules") == [MODULE]
    write_project(project, spec(constraints=["block >= 2 * heads"]))  # the modules ask for `block >= heads`
    assert named(check(FOUND, "--skip", "fresh"), "modules") == [MODULE]
    build(write_project(project, spec(split_on=["rows", "area"])), "--fresh")
    feature = "area" if "if area" in (project / MODULE).read_text() else "rows"
    write_project(project, spec(split_on=["columns"]))
    assert any(feature in line for line in section(check(FOUND, "--skip", "fresh"), "modules")[1:])

"""What `benchmarks.trees` and `benchmarks.fit` compute from times, and that the pages state figures."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import SIDES, write_project

from attn_kernels.tuning.scenarios.serving import SETS
from benchmarks.fit import budgets, candidates
from benchmarks.trees import tuned
from treegen.build import read_problems
from treegen.crossval.folds import cross_validate
from treegen.fit.fit import fit
from treegen.read.spec import read_spec

REPOSITORY = Path(__file__).parents[2]
NAN = np.nan


def test_untimed_choices_are_counted_and_are_neither_the_single_best_nor_compared():
    assert tuned.cells(np.array([1.0, NAN, 4.0])).split() == ["2.000", "3.850", "4.00", "1"]
    assert tuned.cells(np.array([NAN])).split() == ["-", "-", "-", "1"]
    sparse = np.array([[10.0, 20.0, NAN], [NAN, 11.0, 10.0], [NAN, 11.0, 10.0]])
    assert tuned.single_best(sparse) == 1  # 2 * 1.1 * 1.1 = 2.42; the others 16 and 4
    first = np.array([[10.0, 11.0, 5.0], [10.0, 40.0, NAN], [NAN, 11.0, 10.0]])
    second = np.array([[12.0, 11.0, NAN], [10.5, 30.0, NAN], [1.0, NAN, NAN]])
    on_second, on_first, differ, scenarios = tuned.best_of_each(first, second)
    assert (differ, scenarios) == (1, 2)  # the third config has no time in the second table
    assert on_second == pytest.approx([12 / 11, 1]) and on_first == pytest.approx([11 / 10, 1])


def test_the_pages_state_the_figures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(REPOSITORY)
    assert tuned.main(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"tuned_nvidia_h100.png", "tuned_nvidia_h200.png"}
    lines = [line for line in printed.splitlines() if line.startswith("all ")]
    found = [[float(line.split()[place]) for place in (3, 4, 5, 8, 9, 10)] for line in lines]
    h100, h100_others, h200, _, h200_others, in_both = found
    pages = {
        "README.md": [h100_others, in_both, h200_others],
        "docs/tuning.md": [h100, h100_others, h200, in_both, h200_others],
    }
    for page, rows in pages.items():
        stated = re.findall(
            r"^\| \**H[12]00.* \| \**(.*?, .*?, .*?) \| (.*?, .*?, .*?) \|$",
            (REPOSITORY / page).read_text(),
            re.M,
        )
        figures = [[*map(float, ", ".join(row).replace("*", "").split(", "))] for row in stated]
        assert figures[: len(rows)] == [pytest.approx(row, abs=0.006) for row in rows]
    best_on_other = re.findall(r"^best of .* on \S+ +(\S+)", printed, re.M)[2:]  # of other models
    stated = re.search(
        r"best configs take (\S+) of the best.*\n.*take (\S+) on", (REPOSITORY / page).read_text()
    )
    assert stated and best_on_other == [*stated.groups()]
    ids = (scenario.name for name in SETS for scenario in SETS[name](0))
    assert {id.split("-")[1].split("_")[0] for id in ids} == set(tuned.KINDS)


@pytest.fixture
def spec(tmp_path):
    return write_project(tmp_path, shapes=list(itertools.product(SIDES, SIDES, (2, 4))))


def test_a_larger_share_of_cells_is_no_worse(spec, capsys):
    budgets.main([str(spec), "--seeds", "1", "--printed"])
    _, line, said = capsys.readouterr().out.splitlines()
    single, *figures = [float(word) for word in line.split() if word.replace(".", "").isdigit()]
    assert len(figures) == len(budgets.SHARES) and min(single, *figures) >= 1 and figures[-1] <= single
    (problem,) = read_problems(read_spec(spec))
    found = cross_validate(problem, fit)
    assert found is not None and float(said.split()[-2]) == pytest.approx(
        (found.groups or found.folds).quality.slowdown, rel=0.1
    )


def test_more_candidates_are_never_slower(spec, capsys):
    candidates.main([str(spec)])
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["scenarios", "groups"]
    for line in lines:
        figures = [float(figure) for figure in line.split()[3:]]
        assert figures == sorted(figures, reverse=True) and figures[-1] >= 1
    (problem,) = read_problems(read_spec(spec))
    found = cross_validate(problem, fit)
    assert float(lines[0].split()[3]) == pytest.approx(found.folds.quality.slowdown, abs=1e-3)

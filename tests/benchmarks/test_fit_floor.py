"""The best in-sample figures: beside every single config, and with more leaves."""

import math
from pathlib import Path

import pytest

from benchmarks.fit import floor
from benchmarks.fit.tables import cases
from treegen.core.problem import UNIT
from treegen.core.spec import Budget
from treegen.fit.costs import losses

SPEC = Path(__file__).resolve().parents[2] / "examples/block_fp8/treegen.yaml"


@pytest.fixture(scope="module")
def problem():
    (case,) = cases([str(SPEC)])
    return case.problem


def test_one_leaf_is_the_best_single_config(problem):
    best = losses(problem).sum(axis=0).min() / len(problem.cost) / UNIT
    assert floor.in_sample(problem, Budget(0, 1)) == pytest.approx(math.exp(best))


def test_more_leaves_are_never_worse(problem):
    found = [floor.in_sample(problem, Budget(4, leaves)) for leaves in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)
    assert found[-1] >= 1.0 and found[-1] < found[0]


def test_a_line_for_each_table_with_times(capsys):
    floor.main([str(SPEC)])
    head, line = capsys.readouterr().out.splitlines()
    figures = [float(word) for word in line.split()[2:]]
    assert head.split()[-1] == "greedy" and len(figures) == 6
    assert all(figure >= 1.0 for figure in figures)

"""How far trees of other data decide differently, and what that costs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treegen_builders import SIDES, Row, grid, problem, winners, write_winners

from treegen.build import fit_tree
from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree
from treegen.crossval.parallel import in_order
from treegen.read.build_problem import build_problem
from treegen.read.table_file import read_table
from treegen.review.eval import stability
from treegen.review.eval.stability import ChoiceDifference, bootstrap, difference, refit, refits

SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


def _slow_below_64(row: Row) -> list[float]:
    """narrow takes 10 everywhere, wide 80 where rows are few and 5 elsewhere."""
    return [10.0, 1000.0, 80.0 if row[0] < 64 else 5.0]


def test_two_decisions_by_hand(tmp_path: Path) -> None:
    """narrow against wide in nine scenarios: six become eight times slower, three twice as fast."""
    problem_ = problem(tmp_path, times=_slow_below_64)
    narrow, _, wide = problem_.configs
    found = difference((narrow,) * 9, (wide,) * 9, problem_)
    assert (found.scenarios, found.changed) == (9, 1)
    assert found.slower == pytest.approx((8**6 * 0.5**3) ** (1 / 9), rel=1e-5)
    assert found.apart == pytest.approx((8**6 * 2**3) ** (1 / 9), rel=1e-5)
    assert difference((narrow,) * 9, (narrow,) * 6 + (wide,) * 3, problem_).changed == pytest.approx(3 / 9)
    assert difference((narrow,) * 9, (narrow,) * 9, problem_) == ChoiceDifference(9, 0, 1, 1)


def test_an_untimed_choice_scores_as_2x_slower_than_the_best(tmp_path: Path) -> None:
    problem_ = problem(tmp_path, times=lambda row: [10.0, "", "inf"])
    narrow, medium, wide = problem_.configs
    for other in (medium, wide):
        assert difference((narrow,) * 9, (other,) * 9, problem_).slower == pytest.approx(2, rel=1e-5)


def test_winners_tell_which_decisions_differ_and_not_what_that_costs(tmp_path: Path) -> None:
    measured = problem(tmp_path)
    table = read_table(write_winners(tmp_path / "winners", times=winners))
    problem_ = build_problem(measured.kernel, measured.device, table)
    narrow, _, wide = problem_.configs
    assert difference((narrow,) * 9, (wide,) * 9, problem_) == ChoiceDifference(9, 1, None, None)


def test_a_build_keeps_the_tree_where_fresh_ones_differ(tmp_path: Path) -> None:
    """Above an area of 64, narrow and wide are equally good: only the scenarios drawn decide between them."""
    rng = random.Random(3)

    def times(row: Row) -> list[float]:
        return [10.0, 15.0, 30.0] if row[0] * row[1] <= 64 else [rng.uniform(10, 10.4), 20.0, 10.2]

    problem_ = problem(tmp_path, shapes=SHAPES, times=times)
    tree = fit_tree(problem_)
    found = bootstrap(problem_, tree, fit_tree, in_order, "", samples=6)
    assert [sample.changed for sample in found.build] == [0] * 6
    assert any(sample.changed for sample in found.fresh)


def test_bootstrap_refits_to_its_samples_and_scores_in_the_whole_table(tmp_path: Path) -> None:
    """Trees of a single leaf: medium is kept; narrow is as good, wide eight times slower."""
    problem_ = problem(tmp_path, shapes=SHAPES, times=lambda row: [10.0, 10.0, 80.0])
    seen: dict[tuple[str, ...], Config] = {}

    def fit(known: Problem) -> Tree:
        if len(known.cost) < 16:  # a fold
            return Leaf(problem_.configs[0])
        return Leaf(seen.setdefault(known.scenarios, problem_.configs[2 * (len(seen) % 2)]))

    found = bootstrap(problem_, Leaf(problem_.configs[1]), fit, in_order, "", samples=4)
    assert [sample.changed for sample in found.fresh] == [1, 1, 1, 1]
    assert [sample.slower for sample in found.fresh] == pytest.approx([1, 8, 1, 8], rel=1e-5)
    assert [sample.changed for sample in found.build] == [0, 0, 0, 0]
    assert len(seen) == 4 and all(len(names) == 16 and len(set(names)) < 16 for names in seen)
    assert all(sample.scenarios == 16 for sample in (*found.build, *found.fresh))


def test_another_table_over_our_tree(tmp_path: Path) -> None:
    """There wide became four times faster than narrow where rows are many: a build notices."""
    here = problem(tmp_path / "a", shapes=SHAPES, times=lambda row: [10.0, 20.0, 80.0])
    same = problem(tmp_path / "b", shapes=SHAPES, times=lambda row: [10.1, 20.0, 80.0])
    other = problem(
        tmp_path / "c", shapes=SHAPES, times=lambda row: [10.0, 20.0, 80.0 if row[0] < 64 else 2.5]
    )
    ours = fit_tree(here)
    (kept, changed) = refits(here, ours, [same, other], fit_tree, in_order, "")
    assert kept is not None and kept.build.here == kept.fresh.here == ChoiceDifference(16, 0, 1, 1)
    assert changed is not None and changed.build.there.changed == pytest.approx(1 / 2)
    assert changed.build.there.slower == pytest.approx(2, rel=1e-5)


def test_a_table_of_other_scenarios_is_rebuilt_as_such(tmp_path: Path) -> None:
    here, there = problem(tmp_path / "a"), problem(tmp_path / "b", shapes=SHAPES)
    tree = fit_tree(here)
    tasks: list[stability.RebuildTask] = []

    def run(what: str, function: Any, given: Any) -> list[Any]:
        tasks.extend(given)
        return [(tree, tree)] * len(given)

    refits(here, tree, [here, there], fit_tree, run, "")
    assert [task.other_scenarios for task in tasks] == [False, True]


def _measured_again(row: Row) -> list[float]:
    return [20.0, 1000.0, 40.0 if row[0] < 64 else 5.0]


def test_the_same_scenarios_measured_again(tmp_path: Path) -> None:
    """Our tree takes narrow everywhere; the other takes wide where rows are many.

    Here ours takes 10 and the other 5; there ours takes 20 and the other 5.
    """
    here, there = (
        problem(tmp_path / "a", times=_slow_below_64),
        problem(tmp_path / "b", times=_measured_again),
    )
    narrow, _, wide = here.configs
    ours, theirs = Leaf(narrow), Split("rows", 8, Leaf(narrow), Leaf(wide))
    found = refit(here, ours, there, theirs)
    assert found is not None
    assert found.here.scenarios == found.there.scenarios == 9
    assert found.here.changed == found.there.changed == pytest.approx(3 / 9)
    assert found.here.slower == pytest.approx((1 / 2) ** (1 / 3), rel=1e-5)
    assert found.here.apart == pytest.approx(2 ** (1 / 3), rel=1e-5)
    assert found.there.slower == pytest.approx(4 ** (1 / 3), rel=1e-5)


def test_scenarios_are_matched_by_id_whatever_their_order(tmp_path: Path) -> None:
    here, there = (problem(tmp_path / name, times=_slow_below_64) for name in "ab")
    narrow, _, wide = here.configs
    turned = there.rows(np.arange(9)[::-1])
    found = refit(here, Leaf(narrow), turned, Split("rows", 8, Leaf(narrow), Leaf(wide)))
    assert found == refit(here, Leaf(narrow), there, Split("rows", 8, Leaf(narrow), Leaf(wide)))
    assert found is not None and found.there.slower == pytest.approx(2 ** (1 / 3), rel=1e-5)


def test_the_same_id_of_another_scenario_is_not_the_same(tmp_path: Path) -> None:
    here = problem(tmp_path / "a")
    moved = [(rows, columns, 4) for rows, columns, _ in grid()]
    there = problem(tmp_path / "b", shapes=moved)
    assert here.scenarios and set(here.scenarios) == set(there.scenarios)
    assert refit(here, Leaf(here.configs[0]), there, Leaf(there.configs[0])) is None
    partly = problem(tmp_path / "c", shapes=[*grid()[:4], *moved[4:]])
    found = refit(here, Leaf(here.configs[0]), partly, Leaf(partly.configs[0]))
    assert found is not None and found.here.scenarios == 4

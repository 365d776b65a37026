"""Which scenarios and groups are held out, the figures of rows, and what other methods learn."""

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import MEDIUM, NARROW, SIDES, WIDE, problem
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.heuristic import Heuristic, RegimeRows, Split
from treegen.core.heuristic import Row as HeuristicRow
from treegen.core.problem import UNIT
from treegen.crossval.folds import cross_validate, split, standard_error
from treegen.crossval.parallel import processes
from treegen.crossval.peers import FOREST, OURS, PEERS, SINGLE, classifier, learn
from treegen.fit.costs import copies
from treegen.fit.fit import fit
from treegen.read.problem import read_table

LINE = [(i + 1, 5, 2) for i in range(12)]


@examples(50)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=40), st.integers(2, 5))
def test_each_scenario_is_held_out_once_and_groups_together(numbers, folds):
    """As copies of a scenario, or scenarios of a model; few groups one at a time."""
    found = split(copies(np.array([[number] for number in numbers])), folds)
    groups = len(set(numbers))
    assert len(found) == (0 if groups == 1 else min(groups, folds))
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == list(range(len(numbers)))
        assert not {numbers[row] for row in fold.train} & {numbers[row] for row in fold.test}
    if found:
        assert sorted(np.concatenate([fold.test for fold in found])) == list(range(len(numbers)))


def test_the_standard_error_is_the_bootstrap_s_and_of_single_scenarios_the_textbook_s():
    random = np.random.RandomState(1)
    group = np.repeat(np.arange(60), random.randint(1, 12, size=60))
    apart = 0.1 * random.exponential(size=60)[group] + 0.02 * random.exponential(size=len(group))
    cost = np.rint(UNIT * apart).astype(np.int64)
    parts = [cost[group == number] for number in range(60)]
    drawn = (np.concatenate([parts[p] for p in random.randint(60, size=60)]).mean() for _ in range(2000))
    assert standard_error(cost, group) == pytest.approx(np.std([*drawn]) / UNIT, rel=0.1)
    expected = np.std(cost, ddof=1) / math.sqrt(len(cost)) / UNIT
    single = np.arange(len(cost))
    assert standard_error(cost, single) == pytest.approx(expected)
    copies = np.concatenate([cost, cost]), np.concatenate([single, single])
    assert standard_error(*copies) == pytest.approx(expected)  # which add no evidence


def _evaluated(folder, low, high):
    """Of twelve scenarios in a line, with the times of two configs in the first and the last six."""
    made = problem(
        folder,
        {"constraints": [], "derived": {}},
        shapes=LINE,
        times=lambda shape: low if shape[0] <= 6 else high,
        configs=(NARROW, WIDE),
    )
    found = cross_validate(made, fit)
    assert found is not None and found.groups is None
    return found


def test_a_planted_threshold_costs_only_its_neighbours_and_failed_choices_are_counted(tmp_path):
    """Only scenarios 6 and 7 can be wrong, by a factor of 2; a choice that failed counts as much."""
    found = _evaluated(tmp_path / "slow", (10.0, 20.0), (20.0, 10.0)).folds.quality
    failed = _evaluated(tmp_path / "failed", (10.0, math.inf), (math.inf, 10.0)).folds.quality
    for one in (found, failed):
        assert 10 / 12 <= one.agreement < 1
        assert one.slowdown == pytest.approx(2 ** (1 - one.agreement))
    assert (found.untimed, failed.untimed) == (0, pytest.approx(1 - failed.agreement))
    both = _evaluated(tmp_path / "one", (10.0, 20.0), (10.0, 20.0))  # which has one best config
    assert (both.folds.quality.slowdown, both.classifier.slowdown, both.folds.error) == (1, 1, 0)
    for small in (LINE[:9], [(1, 8, 2)] * 12):  # nine scenarios, and copies of one, have no figures
        made = problem(tmp_path / "small", shapes=small, configs=(NARROW, MEDIUM, WIDE))
        assert cross_validate(made, fit) is None


def test_results_of_several_processes_keep_their_order(tmp_path):
    made = problem(tmp_path)
    with processes(2) as parallel_map:
        assert parallel_map("squares", abs, range(-20, 0)) == list(range(20, 0, -1))
        assert parallel_map("fits", fit, [made] * 2) == [fit(made)] * 2
        with pytest.raises(InputError, match=r"^no folder: "):
            parallel_map("refused", read_table, [Path("no folder")])


SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


def _bands(row):
    """Three bands of rows, in which another config is best each time."""
    best = 0 if row[0] <= 1 else 1 if row[0] <= 64 else 2
    return [10.0 + 5 * abs(best - config) for config in range(3)]


def test_peers_get_as_many_leaves_as_our_rows_have_cells(tmp_path):
    """Two rows, of which a class of models launches one with another config."""
    made = problem(
        tmp_path, {"classes": {"few": "heads <= 4", "many": "otherwise"}}, shapes=SHAPES, times=_bands
    )
    narrow, medium, wide = made.configs
    rows = HeuristicRow(narrow, {"many": wide}), HeuristicRow(medium)
    heuristic = Heuristic((RegimeRows(made.kernel.regimes[0].name, Split("rows", 1, 0, 1), rows),))
    rules = learn(made, heuristic)
    assert list(rules) == [OURS, *PEERS]
    assert rules[OURS].leaves == rules["classifier"].leaves == 3
    assert rules[FOREST].leaves is None and rules[SINGLE].leaves == 1
    for leaves in (1, 2, 3):
        rule = classifier(made, leaves)
        assert rule.leaves == leaves and len(set(rule.columns(made))) == leaves
        assert leaves > 1 or set(rule.columns(made)) == {made.cost.sum(axis=0).argmin()}


def test_scenarios_with_winners_of_their_own_give_no_warning(tmp_path):
    made = problem(tmp_path, shapes=[(i + 1, 5, 2) for i in range(24)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(replace(made, cost=UNIT * (1 - np.eye(24, dtype=np.int64))), 3)

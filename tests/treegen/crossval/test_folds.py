"""Which scenarios are held out, and that all methods get the same."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import SIDES, problem
from treegen_strategies import examples

from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.tree import Leaf, Tree
from treegen.crossval.choices import Decisions
from treegen.crossval.folds import nested, resampled, split, split_copies
from treegen.crossval.parallel import in_order
from treegen.crossval.peers import Rule
from treegen.fit.significance import copies
from treegen.review.eval import ways
from treegen.review.eval.ways import OURS, FoldTask, peers, score_fold

SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


@examples(30)
@given(st.integers(2, 30), st.integers(2, 6), st.integers(1, 3))
def test_every_repeat_holds_out_each_scenario_once(scenarios: int, folds: int, repeats: int) -> None:
    folds = min(folds, scenarios)
    found = split(scenarios, folds, repeats)
    assert len(found) == folds * repeats
    for repeat in range(repeats):
        held = np.concatenate([fold.test for fold in found[repeat * folds : (repeat + 1) * folds]])
        assert sorted(held) == list(range(scenarios))
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == list(range(scenarios))


@examples(30)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=40), st.integers(1, 2))
def test_copies_are_held_out_together(numbers: list[int], repeats: int) -> None:
    copy = copies(np.array([[number] for number in numbers]))
    if copy.max() == 0:
        return
    found = split_copies(copy, 2, repeats)
    assert len(found) == 2 * repeats
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == list(range(len(numbers)))
        assert not {numbers[row] for row in fold.train} & {numbers[row] for row in fold.test}


def test_scenarios_without_copies_are_split_as_ever() -> None:
    for one, other in zip(split(20, 4, 2), split_copies(np.arange(20), 4, 2), strict=True):
        assert one.train.tolist() == other.train.tolist() and one.test.tolist() == other.test.tolist()


def test_repeats_shuffle_anew() -> None:
    first, second = split(20, 2, 2)[0], split(20, 2, 2)[2]
    assert first.test.tolist() != second.test.tolist()


@examples(30)
@given(st.integers(8, 60), st.integers(0, 5))
def test_parts_of_a_fold_hold_the_smaller_ones(scenarios: int, seed: int) -> None:
    fold = split(scenarios, 2, 1)[0]
    parts = [Fraction(1, 4), Fraction(1, 2), Fraction(1)]
    found = nested(fold, parts, seed)
    assert [len(part.train) for part in found] == [int(len(fold.train) * part) for part in parts]
    for smaller, larger in pairwise(found):
        assert set(smaller.train) <= set(larger.train)
    assert found[-1].train.tolist() == fold.train.tolist()
    for part in found:
        assert part.train.tolist() == sorted(part.train) and part.test is fold.test


def test_bootstrap_samples_draw_with_replacement() -> None:
    samples = resampled(50, 20)
    assert all(len(rows) == 50 and set(rows) <= set(range(50)) for rows in samples)
    assert all(len(set(rows)) < 50 for rows in samples)
    assert len({tuple(rows) for rows in samples}) == 20
    drawn = Counter(np.concatenate(samples).tolist())
    assert min(drawn.values()) > 5  # each about 20 times


def test_all_methods_learn_and_choose_in_the_same_scenarios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = problem(tmp_path, shapes=SHAPES)
    seen: dict[str, list[tuple[object, ...]]] = {}

    def spy(name: str) -> ways.Method:
        def method(known: Problem, budget: Budget) -> Rule:
            def choose(unseen: Problem) -> Decisions:
                if len(unseen.cost) < len(made.cost):
                    seen.setdefault(name, []).append((known.scenarios, unseen.scenarios, budget))
                return (known.configs[0],) * len(unseen.cost)

            return Rule(choose, 1)

        return method

    def fit(known: Problem) -> Tree:
        seen.setdefault(OURS, []).append((known.scenarios,))
        return Leaf(known.configs[0])

    spies = {name: spy(name) for name in peers()}
    monkeypatch.setattr(ways, "peers", lambda: spies)
    folds = split(len(made.cost), 4, 2)
    rows = ways.held_out(made, folds, fit, in_order, "")
    assert [row.way for row in rows] == [OURS, *spies]
    for row in rows:
        assert row.quality.choices == 2 * len(SHAPES)
    for name in spies:
        assert seen[name] == seen["single_best"]
        assert [(known,) for known, _, _ in seen[name]] == seen[OURS]
    for known, unseen, budget in seen["greedy"]:
        assert isinstance(known, tuple) and isinstance(unseen, tuple)
        assert not set(known) & set(unseen)
        assert budget == Budget(made.kernel.budget.max_depth, 1)


def test_only_the_named_ways_are_scored(tmp_path: Path) -> None:
    made = problem(tmp_path)
    (fold, *_) = split(len(made.cost), 3, 1)
    found = score_fold(FoldTask(made, fold, lambda known: Leaf(known.configs[0]), ("single_best",)))
    assert list(found) == [OURS, "single_best"]

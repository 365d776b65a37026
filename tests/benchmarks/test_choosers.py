"""benchmarks.choosers: each way against a computation by hand, and one charge for choices that cannot launch."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import DEVICE, KERNEL, Row, problem

from benchmarks.choosers.costs import NONE_CHOSEN, charged
from benchmarks.choosers.judge import AUTOTUNER, autotuned, columns, judge
from benchmarks.choosers.tables import Case, shapes
from benchmarks.choosers.ways import NEIGHBOURS, WAYS, Chooser, NotApplicable, tree_text
from treegen.core.problem import UNIT, Problem
from treegen.crossval.score import Score
from treegen.fit.decide import ABSENT
from treegen.fit.fit import fit

SHAPES = list(itertools.product((1, 3, 8, 20, 64, 512), (1, 8, 64), (2, 16)))
WAVE = 132


def tiles(shape: Row, block: int) -> tuple[int, int]:
    return -(-shape[0] // block) * shape[1], shape[2]


def times(shape: Row) -> list[float]:
    """Each program takes as long as its block and half; and a launch 20."""
    programs = [(block, *tiles(shape, block)) for block in (16, 64, 128)]
    return [20 + -(-count // WAVE) * steps * (block + 50) for block, count, steps in programs]


@pytest.fixture
def made(tmp_path: Path) -> Problem:
    return problem(tmp_path, shapes=SHAPES, times=times)


def case(folder: Path) -> Case:
    names = ("rows", "columns", "heads")
    return Case("", str(folder), KERNEL, DEVICE, None, "rows", ("heads",), lambda shape, config: tiles(
        tuple(shape[name] for name in names), config["block"]))  # fmt: skip


def learned(way: str, made: Problem, folder: Path) -> Chooser:
    try:
        return WAYS[way](made, case(folder))
    except NotApplicable as error:
        pytest.skip(str(error))


def test_choices_that_cannot_launch_cost_what_the_fallback_costs(tmp_path: Path) -> None:
    """The fallback takes 15; `narrow` breaks the constraint for 64 heads, and `wide` failed."""
    made = problem(tmp_path, shapes=[(1, 1, 64), (1, 1, 2)], times=lambda shape: [10.0, 15.0, "inf"])
    narrow, fallback, wide = (made.configs.index(c) for c in sorted(made.configs, key=lambda c: c.parameters))
    row = made.scenarios.index("s001")
    chosen = [narrow, fallback, wide, NONE_CHOSEN, ABSENT]
    found = [tuple(part[row] for part in charged(np.full(2, column), made)) for column in chosen]
    best = math.log(15 / 15)  # of those that may be launched
    assert [fell for _, fell in found] == [True, False, True, True, False]
    assert [cost / UNIT for cost, _ in found[:4]] == pytest.approx([best] * 4)
    other = 1 - row
    assert [charged(np.full(2, c), made)[0][other] / UNIT for c in (narrow, wide)] == pytest.approx(
        [0, math.log(1.5)], abs=1e-6
    )


def test_the_nearest_entry_of_the_nearest_model(made: Problem, tmp_path: Path) -> None:
    """By M itself and by its power of two, for a model that no file is of."""
    for way, entry in (
        ("nearest M (vLLM)", lambda m: m),
        ("powers of two", lambda m: math.ceil(math.log2(m))),
    ):
        found = learned(way, made, tmp_path)
        for rows in (1, 2, 5, 13, 40, 300, 9000):
            near = made.column("heads") == 16  # of 11 heads
            gap = np.array([abs(entry(m) - entry(rows)) for m in made.column("rows").tolist()])
            inside = near & (gap == gap[near].min())
            wanted = {entry(m) for m in made.column("rows")[inside].tolist()}
            inside &= np.array([entry(m) == min(wanted) for m in made.column("rows").tolist()])
            best = int(made.cost[inside].sum(axis=0).argmin())
            assert found.of_model({"heads": 11})({"rows": rows, "heads": 11}) == best


def test_neighbours_are_near_in_standardised_logarithms(made: Problem, tmp_path: Path) -> None:
    found = learned(f"{NEIGHBOURS} neighbours", made, tmp_path)
    logs = np.log2(1 + made.features[:, [made.names.index(name) for name in ("rows", "columns", "area")]])
    scaled = (logs - logs.mean(axis=0)) / logs.std(axis=0)
    for row, column in enumerate(columns(found, made)):
        distance = np.sort(((scaled - scaled[row]) ** 2).sum(axis=1))
        near = ((scaled - scaled[row]) ** 2).sum(axis=1) < distance[NEIGHBOURS] - 1e-9
        if near.sum() == NEIGHBOURS:
            mean = made.cost[near].mean(axis=0)
            assert mean[column] == pytest.approx(mean.min(), abs=1)


def test_the_wave_model_finds_planted_waves(made: Problem, tmp_path: Path) -> None:
    cost, _ = charged(columns(learned("wave model (WaveTune)", made, tmp_path), made), made)
    assert cost.max() < 1e-3 * UNIT


@pytest.mark.parametrize("way", ["treegen", "one config", "Helion's tree", "classifier (Inductor)"])
def test_a_way_launches_what_its_own_tools_say(way: str, made: Problem, tmp_path: Path) -> None:
    chosen = columns(learned(way, made, tmp_path), made)
    if way == "treegen":
        assert (chosen == Score.of(made, fit(made)).columns).all()
    elif way == "one config":
        every = [charged(np.full(len(made.cost), c), made)[0].sum() for c in range(len(made.configs))]
        assert set(chosen) == {int(np.argmin(every))}
    else:
        wins = [(made.cost.argmin(axis=1) == column).mean() for column in range(len(made.configs))]
        assert (chosen == made.cost.argmin(axis=1)).mean() >= max(wins)


def test_a_printed_classifier_is_unsure_in_its_unsafe_leaves(made: Problem) -> None:
    from sklearn.tree import DecisionTreeClassifier

    features = np.stack([made.column(name) for name in made.names], axis=1)
    model = DecisionTreeClassifier(max_depth=3).fit(features, made.cost.argmin(axis=1))
    leaves = model.apply(features)
    scope: dict[str, object] = {}
    exec(tree_text(model, list(made.names), {int(leaves[0])}), scope)
    printed = [scope["choose"](shape) for shape in shapes(made)]  # type: ignore[operator]
    wanted = [
        None if leaf == leaves[0] else p for leaf, p in zip(leaves, model.predict(features), strict=True)
    ]
    assert printed == wanted


def test_any_shape_of_an_autotuners_key_may_come_first(made: Problem) -> None:
    best, heads = made.cost.argmin(axis=1), made.column("heads")
    for row, cost in enumerate(autotuned(made, ["heads"])):
        firsts = np.flatnonzero(heads == heads[row])
        assert cost == pytest.approx(charged_mean(made, row, best[firsts].tolist()), abs=1)


def charged_mean(made: Problem, row: int, chosen: list[int]) -> float:
    return float(np.mean([charged(np.full(len(made.cost), column), made)[0][row] for column in chosen]))


@pytest.mark.parametrize("way", [*WAYS, AUTOTUNER])
def test_every_way_is_judged_on_groups_left_out(way: str, made: Problem, tmp_path: Path) -> None:
    found = judge(way, case(tmp_path))
    if isinstance(found, str):
        pytest.skip(found)
    assert found.quality.choices == len(made.cost) and found.quality.slowdown and found.quality.slowdown >= 1
    assert found.size > 0 and found.stored > 0 and found.nanoseconds > 0 and 0 <= found.worse <= 1

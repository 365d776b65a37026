"""benchmarks.choosers: ways of choosing against computations by hand, and what a barred choice costs."""

import itertools
import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from treegen_builders import DEVICE, FEATURES, KERNEL, problem

from benchmarks.choosers.judge import AUTOTUNER, autotuned, columns, judge
from benchmarks.choosers.tables import Case, shapes
from benchmarks.choosers.ways import NEIGHBOURS, NONE_CHOSEN, WAYS, charged, tree_text
from treegen.core.launches import ABSENT
from treegen.core.problem import UNIT
from treegen.crossval.score import Score
from treegen.fit.fit import fit

SHAPES = list(itertools.product((1, 3, 8, 20, 64, 512), (1, 8, 64), (2, 16)))


def tiles(shape, config):
    return -(-shape["rows"] // config["block"]) * shape["columns"], shape["heads"]


def times(row):
    """A launch takes 20, and a step of a wave of programs as long as its block and 50."""
    shape = dict(zip(FEATURES, row, strict=True))
    programs = [(block, *tiles(shape, {"block": block})) for block in (16, 64, 128)]
    return [20 + -(-count // 132) * steps * (block + 50) for block, count, steps in programs]


@pytest.fixture
def made(tmp_path):
    return problem(tmp_path, shapes=SHAPES, times=times)


@pytest.fixture
def case(tmp_path):
    return Case("", str(tmp_path), KERNEL, DEVICE, None, "rows", ("heads",), tiles)


def cost_of(made, column):
    return charged(np.full(len(made.cost), column), made)


def test_choices_that_cannot_launch_cost_what_the_fallback_costs(tmp_path):
    """`narrow` breaks the constraint for 64 heads, and `wide` failed everywhere."""
    made = problem(tmp_path, shapes=[(1, 1, 64), (1, 1, 2)], times=lambda shape: [10.0, 15.0, "inf"])
    row = made.scenarios.index("s001")
    found = {column: cost_of(made, column) for column in (0, 1, 2, NONE_CHOSEN, ABSENT)}
    assert [bool(fell[row]) for _, fell in found.values()] == [True, False, True, True, False]
    assert [found[column][0][row] for column in (0, 1, 2, NONE_CHOSEN)] == [0] * 4
    slow = pytest.approx(math.log(1.5) * UNIT, abs=1)
    assert [found[column][0][1 - row] for column in (0, 1, 2)] == [0, slow, slow]


@pytest.mark.parametrize(
    ("way", "entry"), [("nearest M (vLLM)", int), ("powers of two", lambda m: math.floor(math.log2(m)))]
)
def test_the_nearest_entry_of_the_nearest_model(way, entry, made, case):
    file = [row for row, heads in enumerate(made.column("heads")) if heads == 16]  # no file is of 11 heads
    entries = {row: entry(int(made.column("rows")[row])) for row in file}
    for rows in (1, 2, 5, 13, 40, 300, 9000):
        nearest = min(sorted(entries.values()), key=lambda known: abs(known - entry(rows)))
        total = sum(made.cost[row] for row in file if entries[row] == nearest)
        chosen = WAYS[way](made, case).of_model({"heads": 11})({"rows": rows, "heads": 11})
        assert chosen == total.argmin()


def test_neighbours_are_near_in_standardised_logarithms(tmp_path, case):
    made = problem(tmp_path, shapes=[shape for shape in SHAPES if shape[2] == 2], times=times)
    chosen, sure = columns(WAYS[f"{NEIGHBOURS} neighbours"](made, case), made), 0
    logs = np.log2(1 + np.stack([made.column(name) for name in ("rows", "columns", "area")], axis=1))
    scaled = (logs - logs.mean(axis=0)) / logs.std(axis=0)
    for row, column in enumerate(chosen):
        distance = ((scaled - scaled[row]) ** 2).sum(axis=1)
        near = distance < np.sort(distance)[NEIGHBOURS] - 1e-9
        if near.sum() == NEIGHBOURS:  # no tie
            sure += 1
            assert made.cost[near].mean(axis=0)[column] <= made.cost[near].mean(axis=0).min() + 1
    assert sure > 5


def test_the_module_the_single_best_config_and_the_wave_model(made, case):
    assert (columns(WAYS["treegen"](made, case), made) == Score.of(made, fit(made)).columns).all()
    every = [cost_of(made, column)[0].sum() for column in range(len(made.configs))]
    assert set(columns(WAYS["one config"](made, case), made)) == {int(np.argmin(every))}
    chosen = columns(WAYS["wave model (WaveTune)"](made, case), made)
    assert charged(chosen, made)[0].max() < 1e-3 * UNIT


def test_a_printed_classifier_is_unsure_in_leaves_and_any_shape_of_a_key_is_first(made):
    features = np.stack([made.column(name) for name in made.names], axis=1)
    model = DecisionTreeClassifier(max_depth=3).fit(features, made.cost.argmin(axis=1))
    leaves, scope = model.apply(features), {}
    exec(tree_text(model, list(made.names), {int(leaves[0])}), scope)
    places = np.where(leaves == leaves[0], None, model.predict(features).astype(object))
    assert [scope["choose"](shape) for shape in shapes(made)] == places.tolist()
    heads = made.column("heads")
    for row, cost in enumerate(autotuned(made, ["heads"])):
        firsts = made.cost.argmin(axis=1)[heads == heads[row]]
        assert cost == pytest.approx(np.mean([cost_of(made, column)[0][row] for column in firsts]), abs=1)


@pytest.mark.parametrize("way", [*WAYS, AUTOTUNER])
def test_every_way_is_judged_on_groups_left_out(way, made, case):
    found = judge(way, case)
    if isinstance(found, str):
        pytest.skip(found)
    assert found.quality.choices == len(made.cost) and (found.quality.slowdown or 0) >= 1
    assert found.size > 0 and found.stored > 0 and found.nanoseconds > 0 and 0 <= found.worse <= 1

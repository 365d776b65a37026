"""From a table to rows: the budget, what was planted, failures, runners-up, and no influence of any order."""

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import CONFIGS, NARROW, WIDE, paths, problem, time_rows
from treegen_strategies import examples

from treegen.core.heuristic import Split, choose, depth, fits
from treegen.core.problem import FORBIDDEN
from treegen.crossval.score import Score
from treegen.fit.fit import fit

FREE = {"constraints": [], "derived": {}}
CLASSES = {"classes": {"few": "heads <= 4", "many": "otherwise"}}
GRID = [(1 << r, 1 << c, h) for r in range(8) for c in range(8) for h in (2, 8)]


@pytest.mark.parametrize(("deep", "rows", "configs"), [(1, 12, 3), (2, 3, 2), (4, 12, 1), (4, 12, 3)])
def test_the_budget_holds(tmp_path, deep, rows, configs):
    budget = {"max_depth": deep, "max_rows": rows, "max_configs": configs, "row_price": 0, "cell_price": 0}
    regimes = {"regimes": {"one": "rows <= 4", "more": "otherwise"}}
    rng = random.Random(1)
    times = {shape: [rng.uniform(10, 20) for _ in range(3)] for shape in GRID}
    sections = {**FREE, **CLASSES, **regimes, "tree": budget}
    heuristic = fit(problem(tmp_path, sections, shapes=GRID, times=lambda shape: times[shape]))
    assert [regime.name for regime in heuristic.regimes] == ["one", "more"]
    for regime in heuristic.regimes:
        assert depth(regime.tree) <= deep and len(regime.rows) <= rows
        assert [row for row, _ in paths(regime.tree)] == list(range(len(regime.rows)))
    launched = {c for r in heuristic.regimes for row in r.rows for c in (row.config, *row.others.values())}
    assert len(launched) <= configs


def test_the_few_configs_lose_least_and_of_equal_splits_the_feature_named_first_wins(tmp_path):
    def times(shape):
        return [10.0, 40.0, 13.0] if shape[1] in (1, 4, 16, 64) else [40.0, 10.0, 13.0]

    made = problem(tmp_path, {**FREE, "tree": {"max_configs": 1, "max_rows": 1}}, shapes=GRID, times=times)
    assert fit(made).configs == (made.configs[2],)
    shapes = [(1 << k, 512 >> k, 2) for k in range(10)] * 3

    def tied(shape):
        return [10.0, 30.0, 20.0] if shape[0] <= 16 else [20.0, 30.0, 10.0]

    for names in (["rows", "columns"], ["columns", "rows"]):
        made = problem(tmp_path / names[0], {**FREE, "split_on": names}, shapes=shapes, times=tied)
        tree = fit(made).regimes[0].tree
        assert isinstance(tree, Split) and tree.feature == names[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_tree_with_planted_classes_is_found_in_noise(tmp_path, seed):
    """Rows decide, then columns where rows are few; models with many heads differ in one row. 2% a cell."""
    rng = random.Random(seed)
    shapes = [(1 << r, 1 << c, h) for r in range(10) for c in range(10) for h in (1, 2, 8, 16)]

    def cells(shape):
        best = 2 if shape[0] > 32 else 1 if shape[1] > 64 else 0
        best = 0 if shape[2] > 4 and best == 2 else best
        return [(10 if c == best else 13) * rng.lognormvariate(0, 0.02) for c in range(3)]

    made = problem(tmp_path, {**FREE, **CLASSES}, shapes=shapes, rows=time_rows(shapes, cells))
    narrow, medium, wide = made.configs
    (steps,) = fit(made).regimes
    assert steps.tree == Split("rows", 48, Split("columns", 96, 0, 1), 2)
    found = [row.config for row in steps.rows]
    cells_of = [[next(row.candidates(name)) for name in ("few", "many")] for row in steps.rows]
    assert cells_of == [[narrow, narrow], [medium, medium], [wide, narrow]]
    assert found[:2] == [narrow, medium] and not steps.rows[0].others and not steps.rows[1].others


def test_each_regime_has_rows_of_its_own_features(tmp_path):
    regimes = {
        "one": {"when": "rows <= 1", "split_on": ["columns"]},
        "more": {"when": "otherwise", "split_on": ["rows"]},
    }

    def times(shape):
        size = shape[1] * 2 if shape[0] <= 1 else shape[0]
        return [10.0, 15.0, 20.0] if size <= 32 else [20.0, 15.0, 10.0]

    found = fit(problem(tmp_path / "all", {**FREE, "regimes": regimes}, shapes=GRID, times=times))
    assert [regime.tree for regime in found.regimes] == [Split("columns", 24, 0, 1), Split("rows", 48, 0, 1)]
    regimes["one"]["max_rows"] = 1
    found = fit(problem(tmp_path / "few", {**FREE, "regimes": regimes}, shapes=GRID, times=times))
    assert [len(regime.rows) for regime in found.regimes] == [1, 2]
    none = {"none": "rows <= -1", "every": "otherwise"}
    found = fit(
        problem(tmp_path / "none", {**FREE, "regimes": none}, shapes=GRID, times=lambda s: [9, 10, 11])
    )
    assert [regime.rows[0].config for regime in found.regimes] == [found.configs[0]] * 2


@pytest.mark.parametrize("key", ["row_price", "cell_price"])
def test_a_row_and_a_cell_must_pay_their_price(tmp_path, key):
    """Either saves ln(1.1) / 2 = 0.048 of the mean log slowdown."""

    def times(shape):
        odd = shape[0] > 8 if key == "row_price" else shape[2] > 4
        return [11.0, 20.0, 10.0] if odd else [10.0, 20.0, 11.0]

    counts = []
    for price in (0.01, 0.06):
        sections = {**FREE, **CLASSES, "tree": {key: price}}
        (steps,) = fit(problem(tmp_path / str(price), sections, shapes=GRID, times=times)).regimes
        counts.append(len(steps.rows) + sum(len(row.others) for row in steps.rows))
    assert counts == [2, 1]


@examples(30)
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_what_failed_is_not_launched(tmp_path_factory, seed, works):
    rng = random.Random(seed)

    def cell(column):
        time = rng.uniform(10, 20) * (4 if column == works else 1)
        return time if column == works or rng.random() < 0.9 else "inf"

    times = {shape: [cell(column) for column in range(3)] for shape in GRID[::3]}
    sections = {**FREE, **CLASSES}
    made = problem(tmp_path_factory.mktemp("t"), sections, shapes=list(times), times=lambda s: times[s])
    assert Score.of(made, fit(made)).cost.max() < FORBIDDEN


@pytest.mark.parametrize("by_class", [False, True])
def test_what_failed_is_not_launched_where_a_split_can_part_it(tmp_path, by_class):
    def times(shape):
        odd = shape[2] > 4 if by_class else shape[0] > 8
        return ["inf", 20.0] if odd else [10.0, "inf"]

    sections = {**FREE, **CLASSES, "fallback": {"variant": "plain", "block": 16, "warps": 2}}
    made = problem(tmp_path, sections, shapes=GRID, times=times, configs=(NARROW, WIDE))
    assert Score.of(made, fit(made)).cost.max() == 0


@examples(30)
@given(st.integers(0, 10**6))
def test_the_launched_config_fits_where_any_does(tmp_path_factory, seed):
    """On the models of the table, and on those with half or twice as many heads."""
    rng = random.Random(seed)
    rules = ["block >= heads * 4", "block * heads <= 512", "warps * heads >= 8", "heads <= 64"]
    rules += ["heads % 3 != 0 or block <= 64", "not (heads > 16 and warps > 4)"]
    heads = rng.sample([1, 2, 3, 6, 8, 12, 16, 24, 32], 4)
    shapes = [(1 << r, 1 << c, h) for r, c, h in product(range(4), range(4), heads)]
    times = {shape: [rng.uniform(10, 20) for _ in range(3)] for shape in shapes}
    sections = {**FREE, **CLASSES, "constraints": rng.sample(rules, rng.randint(1, 3))}
    try:
        made = problem(tmp_path_factory.mktemp("t"), sections, shapes=shapes, times=lambda s: times[s])
    except Exception:  # no scenario with a config that may be launched
        return
    heuristic, limits = fit(made), made.device.limits
    measured = set(made.column("heads").tolist())
    for model in sorted(measured | {h // 2 for h in measured} | {h * 2 for h in measured}):
        for rows, columns in ((1, 1), (3, 100), (8, 1)):
            point = {"rows": rows, "columns": columns, "heads": model}
            found = choose(heuristic, made.kernel, limits, point)
            fitting = [config for config in made.configs if fits(config, made.kernel, {**limits, **point})]
            assert found.config in fitting or (not fitting and found.config == made.kernel.fallback)


def test_runners_up_stand_behind_configs_that_a_step_may_forbid(tmp_path):
    sections = {**FREE, "constraints": ["block >= 100 or rows <= 8"]}
    made = problem(tmp_path, sections, shapes=GRID, times=lambda s: [10.0, 11.0, 12.0])
    heuristic = fit(made)
    for rows in (1, 8, 9, 1 << 30):
        found = choose(heuristic, made.kernel, {}, {"rows": rows, "columns": 5, "heads": 2})
        assert dict(found.config.parameters)["block"] == (16 if rows <= 8 else 128)


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_scenarios_configs_or_rows_changes_anything(tmp_path, seed):
    rng = random.Random(seed)
    shapes = [(r, c, h) for r in range(1, 9) for c in range(1, 21, 4) for h in (2, 8)]
    times = {shape: [rng.uniform(10, 14) for _ in range(3)] for shape in shapes}
    found = []
    for k in range(4):
        order = rng.sample(range(3), 3) if k else [0, 1, 2]
        mixed = rng.sample(shapes, len(shapes)) if k else shapes
        rows = time_rows(mixed, lambda shape, order=order: [times[shape][c] for c in order])
        configs = tuple(CONFIGS[c] for c in order)
        rows = rng.sample(rows, len(rows))
        sections = {**FREE, **CLASSES, "tree": {"row_price": 0, "cell_price": 0}}
        found.append(fit(problem(tmp_path / str(k), sections, shapes=mixed, rows=rows, configs=configs)))
    assert all(one == found[0] for one in found) and len(found[0].regimes[0].rows) > 2

"""From a table to the finished tree: its size, the constraints, and no influence of the order of rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import (
    DEVICE,
    NARROW,
    WIDE,
    Cell,
    Row,
    problem,
    spec,
    time_rows,
    write_project,
    write_spec,
    write_table,
)
from treegen_strategies import examples

from treegen.build import build, fit_tree
from treegen.core.errors import InputError
from treegen.core.problem import FORBIDDEN, Problem, holds
from treegen.core.spec import Budget
from treegen.core.tree import Leaf, Split, Tree, choose, depth, leaves, size
from treegen.fit import search
from treegen.fit.costs import costs
from treegen.fit.search import greedy, search_tree
from treegen.passes.guards import guard_tree
from treegen.read.spec import read_spec

FREE = {"constraints": [], "derived": {}}
LINE: list[Row] = [(i + 1, 5, 2) for i in range(12)]


def _line(folder: Path, times: dict[Row, tuple[Cell, ...]], **sections: object) -> Problem:
    """Twelve scenarios that differ in one feature, two configs."""
    return problem(
        folder, {**FREE, **sections}, shapes=LINE, times=lambda shape: times[shape], configs=(NARROW, WIDE)
    )


def test_differences_without_a_pattern_are_not_fitted(tmp_path: Path) -> None:
    times = {s: (10.0, 10.1) if s[0] % 2 else (10.1, 10.0) for s in LINE}
    made = _line(tmp_path, {**times, (12, 5, 2): (10.0, 13.0)})
    assert size(fit_tree(made)) < 6


@pytest.mark.parametrize(("deep", "wide"), [(1, 9), (2, 9), (4, 1), (4, 2), (4, 3)])
@pytest.mark.parametrize("method", [search_tree, greedy])
def test_the_budget_holds(
    tmp_path: Path, method: Callable[[Problem, Budget], Tree], deep: int, wide: int
) -> None:
    times = {s: (10.0, 20.0) if s[0] // 3 % 2 else (20.0, 10.0) for s in LINE}
    tree = method(_line(tmp_path, times), Budget(deep, wide))
    assert depth(tree) <= deep and size(tree) <= wide


@examples(30)
@given(st.integers(1, 7), st.integers(0, 1), st.lists(st.integers(1, 50), min_size=8, max_size=8))
def test_a_planted_threshold_is_found_whatever_else_varies(
    tmp_path_factory: pytest.TempPathFactory, cut: int, feature: int, noise: list[int]
) -> None:
    """Rows and columns, one of which decides; the other one must not happen to tell the same."""
    shapes: list[Row] = []
    for i, other in enumerate(noise):
        pair = (1 << i, other) if feature == 0 else (other, 1 << i)
        shapes.append((*pair, 2))
    assume(len(set(shapes)) == 8)
    assume(all(len({(n <= v) == (i < cut) for i, n in enumerate(noise)}) == 2 for v in noise))
    times = {shape: ((10.0, 15.0, 20.0) if i < cut else (20.0, 15.0, 10.0)) for i, shape in enumerate(shapes)}
    made = problem(tmp_path_factory.mktemp("t"), FREE, shapes=shapes, times=lambda shape: times[shape])
    tree = search_tree(made, Budget(4, 2))
    narrow, _, wide = made.configs
    assert isinstance(tree, Split)
    assert (tree.feature, tree.gap) == (("rows", "columns")[feature], (1 << cut - 1, 1 << cut))
    assert (tree.low, tree.high) == (Leaf(narrow), Leaf(wide))


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_tree_is_found_in_noise(tmp_path: Path, seed: int) -> None:
    """Rows decide, then columns where rows are few; 2% of noise a cell."""
    rng = random.Random(seed)
    shapes: list[Row] = [(1 << r, 1 << c, h) for r in range(10) for c in range(10) for h in (1, 2)]

    def cells(shape: Row) -> list[Cell]:
        best = 2 if shape[0] > 32 else 1 if shape[1] > 64 else 0
        return [(10 if c == best else 13) * rng.lognormvariate(0, 0.02) for c in range(3)]

    made = problem(tmp_path, FREE, shapes=shapes, rows=time_rows(shapes, cells))
    narrow, medium, wide = map(Leaf, made.configs)
    below = Split("columns", 96, narrow, medium, (64, 128))
    assert fit_tree(made) == Split("rows", 48, below, wide, (32, 64))


def test_of_equal_splits_the_feature_named_first_wins(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = {(2, 3, 2): (10.0, 20.0, 20.0), (3, 2, 2): (20.0, 10.0, 20.0)}
    for place, names in enumerate((["rows", "columns"], ["columns", "rows"])):
        made = problem(
            tmp_path / str(place), {**FREE, "split_on": names}, shapes=list(times), times=lambda s: times[s]
        )
        tree = search_tree(made, Budget(4, 8))
        assert isinstance(tree, Split) and tree.feature == names[0]


def test_equal_shapes_share_a_config(tmp_path: Path) -> None:
    times = iter([[10, 20, 20], [20, 10, 20], [10, 20, 20]] * 2)
    made = problem(tmp_path, FREE, shapes=[(1, 1, 2)] * 3, times=lambda shape: next(times))
    assert search_tree(made, Budget(4, 8)) == Leaf(made.configs[0])


@pytest.mark.parametrize(("price", "expected"), [(0.0, 2), (0.02, 2), (0.06, 1)])
def test_a_leaf_must_pay_its_price(tmp_path: Path, price: float, expected: int) -> None:
    """Two leaves save ln(1.1) / 2 = 0.048 of the mean log slowdown."""
    times: dict[Row, tuple[Cell, ...]] = {s: (10.0, 11.0) if s[0] <= 6 else (11.0, 10.0) for s in LINE}
    made = _line(tmp_path, times)
    assert size(search_tree(made, Budget(4, 8, leaf_price=price))) == expected


@pytest.mark.parametrize(("price", "expected"), [(0.0, 3), (0.01, 2), (0.2, 1)])
def test_a_config_must_pay_its_price(tmp_path: Path, price: float, expected: int) -> None:
    """The second band of rows saves ln(1.02) / 3 = 0.0066 by a config of its own, the third far more."""

    def cells(shape: Row) -> list[Cell]:
        return [[10.0, 10.2, 15.0], [10.2, 10.0, 15.0], [15.0, 15.0, 10.0]][(shape[0] - 1) // 4]

    made = problem(tmp_path, FREE, shapes=LINE, times=cells)
    tree = search_tree(made, Budget(4, 8, config_price=price))
    assert len({leaf.config for leaf, _ in leaves(tree)}) == expected


def test_a_config_that_breaks_a_constraint_is_not_chosen_where_it_was_measured(tmp_path: Path) -> None:
    shapes: list[Row] = [(rows, 8, heads) for rows in (*range(1, 9), 64, 512) for heads in (2, 40, 100)]
    made = problem(tmp_path, shapes=shapes, times=lambda s: [1.0, 2.0, 3.0] if s[0] < 10 else [3.0, 2.0, 1.0])
    tree = guard_tree(made, fit_tree(made))
    chosen = set()
    for row in made.features.tolist():
        point = dict(zip(made.names, row, strict=True))
        config = choose(tree, point)
        assert all(holds(c, {**point, **dict(config.parameters)}) for c in made.kernel.constraints) or (
            config == made.kernel.fallback
        )
        chosen.add(dict(config.parameters)["block"])
    assert {16, 128} <= chosen


@examples(40)
@given(
    st.lists(
        st.lists(st.sampled_from(["inf", 10.0, 12.0, ""]), min_size=3, max_size=3), min_size=2, max_size=8
    )
)
def test_what_failed_is_not_chosen_where_the_budget_allows(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[Cell]]
) -> None:
    assume(all(any(isinstance(cell, float) for cell in row) for row in cells))
    times = {(i + 1, 5, 2): tuple(row) for i, row in enumerate(cells)}
    made = problem(
        tmp_path_factory.mktemp("t"),
        {**FREE, "tree": {"max_depth": 8, "max_leaves": 16}},
        shapes=list(times),
        times=lambda shape: times[shape],
    )
    assert costs(fit_tree(made), made).max() < FORBIDDEN
    guard_tree(made, fit_tree(made))


@pytest.mark.parametrize(("rows", "columns", "expected"), [(400, 1, 2), (20, 20, 3)])
def test_a_lone_failure_in_a_large_table_gets_a_leaf_of_its_own(
    tmp_path: Path, rows: int, columns: int, expected: int
) -> None:
    """Any other leaf of such a table holds at least two scenarios. On a grid, one split saves nothing."""
    shapes: list[Row] = [(r + 1, c + 1, 2) for r in range(rows) for c in range(columns)]

    def cells(shape: Row) -> list[Cell]:
        odd = shape == (1, 1, 2)
        return ["inf" if odd else 10.0, 20.0 if odd else "inf"]

    made = problem(tmp_path, FREE, shapes=shapes, times=cells, configs=(NARROW, WIDE))
    tree = fit_tree(made)
    assert costs(tree, made).max() < FORBIDDEN and size(tree) == expected


def test_a_failure_between_others_gets_a_leaf_of_its_own(tmp_path: Path) -> None:
    """No single split parts it from the rest."""
    times: dict[Row, tuple[Cell, ...]] = dict.fromkeys(LINE, (10.0, "inf"))
    times[(7, 5, 2)] = ("inf", 10.0)
    assert costs(fit_tree(_line(tmp_path, times)), _line(tmp_path / "same", times)).max() == 0


def test_failures_in_scenarios_that_the_search_left_out_are_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 scenarios it reads eight; one more is served by no other config than its own."""
    monkeypatch.setattr(search, "_MOST_ROWS", 8)
    shapes: list[Row] = [(1 << r, 1 << c, 2) for r in range(20) for c in range(20)]

    def cells(shape: Row) -> list[Cell]:
        odd = shape == (1 << 19, 1, 2)
        best = 10.0 if shape[1] <= 512 else 15.0
        return ["inf", "inf", 20.0] if odd else [best, 25.0 - best, "inf"]

    made = problem(tmp_path, FREE, shapes=shapes, times=cells)
    assert costs(fit_tree(made), made).max() < FORBIDDEN


def test_what_failed_is_not_chosen_though_a_smaller_tree_predicts_better(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = dict.fromkeys(LINE, (10.0, 11.0))
    times[(3, 5, 2)] = ("inf", 11.0)
    times[(4, 5, 2)] = (10.0, "inf")
    made = _line(tmp_path, times)
    assert costs(fit_tree(made), made).max() < FORBIDDEN


def test_one_config_that_always_runs_beats_faster_ones_that_fail(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = {(i, 5, 2): (1.0, 900.0, 2.0) for i in range(1, 6)}
    times[(3, 5, 2)] = ("inf", 900.0, "inf")
    made = problem(tmp_path, FREE, shapes=list(times), times=lambda shape: times[shape])
    assert search_tree(made, Budget(1, 1)) == Leaf(made.configs[1])


def test_what_failed_is_not_chosen_though_the_budget_is_too_small(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = dict.fromkeys(LINE, (10.0, 11.0))
    times[(3, 5, 2)] = ("inf", 11.0)
    times[(9, 5, 2)] = (10.0, "inf")
    made = _line(tmp_path, times, tree={"max_depth": 1, "max_leaves": 1})
    with pytest.raises(InputError, match="1 scenarios would get a config that failed; 1 leaves and depth 1"):
        guard_tree(made, fit_tree(made))


def _module(folder: Path, shapes: list[Row], times: dict[Row, list[Cell]], order: list[int]) -> str:
    """The module's text when the scenarios stand in that order in scenarios.csv."""
    content = spec(**FREE, tree={"max_depth": 3, "max_leaves": 4})
    path = write_project(folder, content, shapes=[shapes[i] for i in order], times=lambda s: times[s])
    return build(read_spec(path)).files["scale/nvidia_h100.py"]


def _random_table(count: int, seed: int) -> tuple[list[Row], dict[Row, list[Cell]]]:
    """A table without a pattern and without ties, so that narrow decisions have their say."""
    rng = random.Random(seed)
    shapes: list[Row] = [(i + 1, rng.randint(1, 9), 2) for i in range(count)]
    return shapes, {shape: [rng.uniform(10, 14) for _ in range(3)] for shape in shapes}


@pytest.mark.parametrize(("count", "seed"), [(9, 0), (9, 1), (12, 2), (100, 0), (100, 1)])
def test_the_order_of_scenarios_changes_nothing(tmp_path: Path, count: int, seed: int) -> None:
    """Of 100 scenarios there are enough sizes to mix neighbours, of which many are equally near."""
    shapes, times = _random_table(count, seed)
    if count == 100:
        shapes = [(r, c, 2) for r in range(1, 21) for c in range(1, 21, 4)]
        times = dict(zip(shapes, times.values(), strict=True))
    texts = {
        _module(tmp_path / str(k), shapes, times, random.Random(k).sample(range(count), count))
        for k in range(3)
    }
    assert len(texts) == 1


def test_the_order_of_rows_in_times_changes_no_module(tmp_path: Path) -> None:
    path = write_project(tmp_path)
    before = build(read_spec(path)).files["scale/nvidia_h100.py"]
    times = tmp_path / "tables/h100/times.csv"
    header, *rows = times.read_text().splitlines(keepends=True)
    times.write_text(header + "".join(reversed(rows)))
    assert build(read_spec(path)).files["scale/nvidia_h100.py"] == before


@pytest.mark.parametrize(("count", "seed"), [(9, 0), (9, 1), (12, 2)])
def test_the_order_of_configs_changes_nothing(tmp_path: Path, count: int, seed: int) -> None:
    shapes, times = _random_table(count, seed)
    texts = set()
    for order in ([0, 1, 2], [2, 0, 1], [1, 0, 2]):
        configs = [{"id": f"c{c}", "variant": "plain", "block": 16 << c, "warps": 4} for c in order]
        folder = tmp_path / "".join(map(str, order))
        write_table(
            folder / "tables/h100",
            shapes=shapes,
            configs=configs,
            times=lambda shape, order=order: [times[shape][c] for c in order],
        )
        read = read_spec(write_spec(folder, spec(**FREE)))
        texts.add(build(read).files["scale/nvidia_h100.py"])
    assert len(texts) == 1


def test_noise_too_small_to_mean_anything_changes_nothing(tmp_path: Path) -> None:
    shapes, times = _random_table(12, 4)
    rng = random.Random(0)
    noisy = {shape: [time * (1 + rng.uniform(-1e-6, 1e-6)) for time in row] for shape, row in times.items()}
    order = list(range(12))
    assert _module(tmp_path / "a", shapes, times, order) == _module(tmp_path / "b", shapes, noisy, order)


def test_guards_that_the_tree_implies_already_are_left_out(tmp_path: Path) -> None:
    shapes: list[Row] = [(5, 5, heads) for heads in (2, 4, 8, 30, 60, 100)]
    made = problem(tmp_path, shapes=shapes, times=lambda s: [1.0, 3.0, 2.0] if s[2] < 10 else [9.0, 3.0, 1.0])
    narrow, _, wide = sorted(made.configs)
    fitted = Split("heads", 16, Leaf(narrow), Leaf(wide), (8, 30))
    assert guard_tree(made, fit_tree(made)) == Split("heads", 128, fitted, Leaf(made.kernel.fallback))


def test_two_devices_with_one_table_and_other_limits(tmp_path: Path) -> None:
    write_table(tmp_path / "tables/h100")
    content = spec(
        constraints=["block * 1000 <= shared_memory"], tables={DEVICE: "tables/h100", "small": "tables/h100"}
    )
    content["devices"]["small"] = {"vendor": "nvidia", "limits": {"shared_memory": 100_000}}
    files = build(read_spec(write_spec(tmp_path, content))).files
    assert "PLAIN_B128_W8" in files["scale/nvidia_h100.py"]
    assert "PLAIN_B128_W8" not in files["scale/small.py"]

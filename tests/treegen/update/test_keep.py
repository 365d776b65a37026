"""Keeping cell by cell: only what the table gives evidence for changes, and noise is no evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from treegen_builders import Row as Shape
from treegen_builders import committed, problem

from treegen.core.heuristic import Heuristic, Split
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config, KernelSpec
from treegen.fit.decide import Scenarios
from treegen.fit.fit import fit
from treegen.read.problem import build_problem
from treegen.update.keep import Chosen, Origin, keep

Floats = npt.NDArray[np.float64]
SHAPES: list[Shape] = [(1 << r, 1 << c, h) for r in range(8) for c in range(6) for h in (2, 8)]
SECTIONS = {"constraints": [], "derived": {}, "classes": {"few": "heads <= 4", "many": "otherwise"}}
GONE = Config("plain", (("block", 256), ("warps", 2)))


def _timed(made: Problem, times: Floats) -> Problem:
    """The problem with other times; what was not timed stays so."""
    times = np.where(made.cost == UNTIMED, np.nan, times)
    with np.errstate(invalid="ignore"):
        cost = np.rint(np.log(times / np.nanmin(times, axis=1, keepdims=True)) * UNIT)
    measured = (made.cost < UNTIMED) & np.isfinite(times)
    failed = np.isinf(times) & (made.cost < UNTIMED)
    return replace(
        made, cost=np.where(measured, cost, np.where(failed, FORBIDDEN, made.cost)).astype(np.int64)
    )


def _noisy(made: Problem, sigma: float, seed: int) -> Problem:
    """The table measured with more noise: each repeat of a cell differs by it."""
    noise = np.random.default_rng(seed).normal(0, sigma, made.table.times.shape)
    table = replace(made.table, times=made.table.times * np.exp(noise))
    return build_problem(made.kernel, made.device, table)


def _kept(made: Problem, previous: Heuristic) -> Chosen:
    """What a build takes; held out, fits lose 1% more than where they were fitted."""
    fresh = fit(made)

    def held_out() -> npt.NDArray[np.int64]:
        columns = Scenarios(made).columns(fresh)
        return np.asarray(made.cost[np.arange(len(columns)), columns] + UNIT // 100)

    return keep(made, previous, fresh, held_out)


def _cells(heuristic: Heuristic, made: Problem) -> dict[tuple[str, int, str], Config]:
    """What each cell launches first."""
    return {
        (regime.name, number, entry.name): next(row.candidates(entry.name))
        for regime in heuristic.regimes
        for number, row in enumerate(regime.rows)
        for entry in made.kernel.classes
    }


def _trees(heuristic: Heuristic) -> list[object]:
    return [regime.tree for regime in heuristic.regimes]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """96 scenarios and three configs: rows decide, and the class where rows are many."""

    def times(shape: Shape) -> list[float]:
        best = 2 if shape[0] > 8 else 0
        best = 1 if shape[2] > 4 and best == 2 else best
        return [10.0 if column == best else 11.0 for column in range(3)]

    return problem(tmp_path_factory.mktemp("project"), SECTIONS, shapes=SHAPES, times=times)


def _of_rows(made: Problem, rows: npt.NDArray[np.bool_]) -> Problem:
    """The problem of some rows of a table."""
    table = made.table
    visited, row_scenario = np.unique(table.row_scenario[rows], return_inverse=True)
    table = replace(
        table,
        scenarios=tuple(table.scenarios[place] for place in visited),
        features=table.features[visited],
        row_scenario=row_scenario,
        row_repeat=table.row_repeat[rows],
        times=table.times[rows],
    )
    return build_problem(made.kernel, made.device, table)


@cache
def _committed() -> tuple[Problem, Heuristic]:
    """Every fourth scenario of the H200's table, and its fit."""
    whole = committed("unified_attention", "nvidia_h200")
    made = _of_rows(whole, whole.table.row_scenario % 4 == 0)
    return made, fit(made)


Load = Callable[[Problem], tuple[Problem, Heuristic]]
TABLES: dict[str, Load] = {
    "planted": lambda base: (base, fit(base)),
    "nvidia_h200": lambda base: _committed(),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_same_table_again_changes_nothing(base: Problem, table: str) -> None:
    made, before = TABLES[table](base)
    assert _kept(made, before) == Chosen(before, Origin.KEPT, before)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("sigma", "seed"), [(0.01, 0), (0.02, 1), (0.03, 2)])
def test_noise_changes_no_cell(base: Problem, table: str, sigma: float, seed: int) -> None:
    made, before = TABLES[table](base)
    found = _kept(_noisy(made, sigma, seed), before)
    assert (found.origin, found.cells, found.bounds) == (Origin.KEPT, 0, 0)
    assert found.heuristic == before


def _rounds(device: str) -> tuple[Problem, Problem]:
    """The first and the second round of a run, as tables of their own."""
    made = committed("unified_attention", device)
    first, second = (_of_rows(made, made.table.row_repeat == repeat) for repeat in (1, 2))
    return first, second


@pytest.mark.parametrize("device", ["nvidia_h100", "nvidia_h200"])
def test_the_second_round_of_a_run_keeps_the_tree_of_the_first(device: str) -> None:
    first, second = _rounds(device)
    before = fit(first)
    found = _kept(second, before)
    assert (found.origin, found.heuristic) == (Origin.KEPT, before)


@pytest.mark.parametrize("table", TABLES)
def test_a_config_that_became_slower_changes_only_cells_that_launch_it(base: Problem, table: str) -> None:
    made, before = TABLES[table](base)
    launched = Scenarios(made).columns(before)
    column = int(np.bincount(launched).argmax())
    config = made.configs[column]
    times = np.exp(np.minimum(made.cost, UNTIMED) / UNIT)
    times[:, column] *= 1.2
    found = _kept(_timed(made, times), before)
    assert found.origin == Origin.EDITED and found.cells > 0 and found.bounds == 0
    assert _trees(found.heuristic) == _trees(before)
    old, new = _cells(before, made), _cells(found.heuristic, made)
    changed = [cell for cell in old if old[cell] != new[cell]]
    assert changed and all(old[cell] == config for cell in changed)


def _without(made: Problem, column: int) -> Problem:
    """The problem of a table that lacks a config."""
    left = [place for place in range(len(made.configs)) if place != column]
    rest = replace(
        made,
        configs=tuple(made.configs[place] for place in left),
        cost=made.cost[:, left],
        allowed=made.allowed[:, left],
        table_columns=tuple(made.table_columns[place] for place in left),
    )
    return _timed(rest, np.exp(np.minimum(rest.cost, UNTIMED - 1) / UNIT))


@pytest.mark.parametrize("table", TABLES)
def test_a_config_that_vanished_is_replaced(base: Problem, table: str) -> None:
    made, before = TABLES[table](base)
    column = int(np.bincount(Scenarios(made).columns(before)).argmax())
    config = made.configs[column]
    found = _kept(_without(made, column), before)
    assert config in _cells(before, made).values()
    assert config not in _cells(found.heuristic, made).values()


def test_a_config_that_failed_is_replaced_where_it_failed(base: Problem) -> None:
    before = fit(base)
    times = np.exp(base.cost / UNIT)
    times[base.column("rows") > 8, 2] = np.inf
    failed = _timed(base, times)
    found = _kept(failed, before)
    columns = Scenarios(failed).columns(found.heuristic)
    assert failed.cost[np.arange(len(columns)), columns].max() < FORBIDDEN
    assert _trees(found.heuristic) == _trees(before)


def test_a_config_that_was_never_in_the_table_is_replaced(base: Problem) -> None:
    before = fit(base)
    (steps,) = before.regimes
    odd = replace(steps, rows=(replace(steps.rows[0], config=GONE), *steps.rows[1:]))
    found = _kept(base, Heuristic((odd,)))
    assert _cells(found.heuristic, base) == _cells(before, base)


def test_a_bound_moves_where_the_table_says_so(base: Problem) -> None:
    before = fit(base)
    (steps,) = before.regimes
    assert isinstance(steps.tree, Split)
    moved = Heuristic((replace(steps, tree=replace(steps.tree, threshold=steps.tree.threshold * 4)),))
    found = _kept(base, moved)
    assert found.origin == Origin.EDITED and (found.cells, found.bounds) == (0, 1)
    cost = base.cost[np.arange(len(base.cost)), Scenarios(base).columns(found.heuristic)]
    assert cost.max() == 0


Change = Callable[[KernelSpec], KernelSpec]
NOT_ALLOWED: dict[str, Change] = {
    "regimes": lambda k: replace(k, regimes=(replace(k.regimes[0], name="x"),)),
    "classes": lambda k: replace(k, classes=(replace(k.classes[1], name="x"),)),
    "budget": lambda k: replace(k, budget=replace(k.budget, max_rows=1)),
    "split_on": lambda k: replace(k, regimes=(replace(k.regimes[0], split_on=("columns",)),)),
}


@pytest.mark.parametrize("what", NOT_ALLOWED)
def test_what_the_spec_no_longer_allows_is_fitted_again(base: Problem, what: str) -> None:
    before = fit(base)
    found = _kept(replace(base, kernel=NOT_ALLOWED[what](base.kernel)), before)
    assert found.origin == Origin.FRESH and found.why_fresh


@pytest.mark.parametrize(("weight", "edits"), [(1.001, 0), (1.3, 1)])
def test_only_what_is_worth_a_change_is_changed(base: Problem, weight: float, edits: int) -> None:
    """One cell's config is slower than another by a tenth of a percent, or by 30 percent."""
    before = fit(base)
    cells = (base.column("rows") <= 8) & (base.column("heads") <= 4)
    times = np.exp(base.cost / UNIT)
    times[np.ix_(cells, [1])] = times[np.ix_(cells, [0])] / weight
    found = _kept(_timed(base, times), before)
    assert (found.cells, found.bounds) == (edits, 0)

"""benchmarks.fit.scale on small tables: the planted structure is there, and its tree finds it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit import scale, scale_model, scale_one
from treegen.build import fit_tree
from treegen.core.problem import UNTIMED
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree
from treegen.read.problem import build_problem


def _planted_tree(planted: scale_model.PlantedModel, node: int = 0) -> Tree:
    if node >= len(planted.split_feature):
        best = int(planted.effect[node - len(planted.split_feature)].argmin())
        return Leaf(Config(scale_model.VARIANT, ((scale_model.PARAMETER, best),)))
    feature, threshold = scale_model.FEATURES[planted.split_feature[node]], int(planted.threshold[node])
    return Split(
        feature, threshold, _planted_tree(planted, 2 * node + 1), _planted_tree(planted, 2 * node + 2)
    )


def _splits(tree: Tree) -> Iterator[tuple[str, int]]:
    if isinstance(tree, Split):
        yield tree.feature, tree.threshold
        yield from _splits(tree.low)
        yield from _splits(tree.high)


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_tree_is_the_optimum_and_reaches_all_leaves(seed: int) -> None:
    planted = scale_model.model(50, seed)
    assert scale_one.slowdown(planted, _planted_tree(planted), seed) == 1.0
    features = scale_model.scenarios(20_000, np.random.default_rng(seed))
    assert set(planted.leaf(features).tolist()) == set(range(8))


def test_a_table_is_as_the_model_says() -> None:
    planted = scale_model.model(60, 0)
    table = scale_model.table(planted, 4000, 0)
    first, second = np.log(table.times[:4000]), np.log(table.times[4000:])
    assert (np.isnan(first) == np.isnan(second)).all()
    assert np.nanstd(first - second) == pytest.approx(math.sqrt(2) * scale_model.NOISE, rel=0.02)
    own = first - planted.effect[planted.leaf(table.features)]
    size = np.log(table.features).mean(axis=1, keepdims=True)
    assert np.nanmean(own - size) == pytest.approx(0, abs=1e-3)
    portfolio = first[:, :: 60 // scale_model.PORTFOLIO]
    assert not np.isnan(portfolio).any() and portfolio.shape[1] >= scale_model.PORTFOLIO
    assert 0.2 < np.isnan(first).mean() < 0.5


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_the_fitted_tree_finds_what_was_planted(seed: int) -> None:
    planted = scale_model.model(60, seed)
    made = build_problem(scale_model.kernel(), scale_model.DEVICE, scale_model.table(planted, 2000, seed))
    assert (made.cost == UNTIMED).any()
    tree = fit_tree(made)
    planted_splits, found = set(_splits(_planted_tree(planted))), set(_splits(tree))
    assert {feature for feature, _ in found} <= {feature for feature, _ in planted_splits}
    assert len(found & planted_splits) >= 5, "of seven, and thresholds exactly"
    assert scale_one.slowdown(planted, tree, seed) < 1.01


def test_the_command_prints_and_writes_every_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--sizes", "300x20,600x20", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["300", "20"], ["600", "20"]]
    results = json.loads((tmp_path / "fit_scale.json").read_text())["results"]
    assert [(r["scenarios"], r["configs"]) for r in results] == [(300, 20), (600, 20)]
    for result in results:
        assert 1 <= result["slowdown"] < (1 + result["single_best"]) / 2
        assert result["table_gib"] == pytest.approx(2 * 8 * result["scenarios"] * 20 / 2**30)
        assert result["table_gib"] < result["problem_peak_gib"] <= result["peak_gib"]
        assert min(result[key] for key in ("write_s", "read_s", "problem_s", "fit_s")) > 0


@pytest.mark.parametrize("sizes", ["", "100", "100x", "1x5", "100x20x3", "axb", "100x20,"])
def test_sizes_that_mean_nothing_are_refused(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        scale.main(["--sizes", sizes])
    assert stopped.value.code == 2 and capsys.readouterr().err.startswith("--sizes must be like")

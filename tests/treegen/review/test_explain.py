"""`treegen explain`: the way through the tree, what would change the config, and what it prints."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from treegen_builders import (
    DEVICE,
    FEATURES,
    KERNEL,
    SIDES,
    Cell,
    Row,
    as_h100,
    build,
    error_of,
    planted,
    spec,
    winners,
    write_project,
    write_spec,
    write_winners,
)
from treegen_strategies import examples

from treegen.cli.main import main
from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree, choose
from treegen.review.explain import TunedModule, alternatives, explain, read_module_and_table, show, trace
from treegen.review.regions import holds
from treegen.review.shapes import complete

Explain = Callable[..., str]
GOLDEN = Path(__file__).parent / "golden"
SHAPES: list[Row] = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 8)]
SECTIONS = {
    "trusted_as_measured": ["heads"],
    "words": {"rows": "batch", "area": "batch x width", "columns": "width", "warps": "waves"},
    "regimes": {"small": "area <= 128"},
}


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explain:
    def text(path: Path, *words: str) -> str:
        capsys.readouterr()
        assert main(["explain", KERNEL, *words, "--spec", str(path)]) == 0
        return capsys.readouterr().out

    return text


def _times(row: Row) -> list[Cell]:
    """Work makes `planted` slower; medium was timed in small shapes only."""
    narrow, medium, wide = (time * (1 + row[0] * row[1] / 1000) for time in planted(row))
    return [round(narrow, 2), round(medium, 2) if row[0] <= 8 else "", round(wide, 2)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_project(tmp_path_factory.mktemp("measured"), spec(**SECTIONS), shapes=SHAPES, times=_times)
    assert build(path) == 0
    return path


@pytest.fixture(scope="module")
def tuned(project: Path) -> TunedModule:
    return read_module_and_table(project, KERNEL, DEVICE)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("measured", ["rows=8", "columns=64", "heads=2"]),
        ("outside", ["rows=8", "columns=4_096", "heads=16"]),
        ("assumed", ["rows=6"]),
    ],
)
def test_the_text(project: Path, explained: Explain, name: str, words: list[str]) -> None:
    """Of a measured shape, of one outside the tuned ones, and of one with features taken from a scenario."""
    text = explained(project, *words, "--top", "2")
    assert text == (GOLDEN / f"explain_{name}.txt").read_text()


def test_the_text_of_a_table_of_winners(tmp_path: Path, explained: Explain) -> None:
    write_winners(tmp_path / "tables/h100", shapes=SHAPES, times=winners)
    path = write_spec(tmp_path, spec(**SECTIONS))
    assert build(path) == 0
    text = explained(path, "rows=8", "columns=32", "heads=2", "--top", "2")
    assert text == (GOLDEN / "explain_winners.txt").read_text()


@examples(100)
@given(st.fixed_dictionaries(dict.fromkeys(FEATURES, st.integers(-2, 200))))
def test_the_path_is_the_tree_s_and_guards_are_what_no_scenario_passes(
    tuned: TunedModule, known: dict[str, int]
) -> None:
    problem = tuned.problem
    narrow, _, wide = map(Leaf, problem.configs)
    # No scenario with at most 8 rows has an area over 5,000.
    nested = Split("rows", 8, Split("area", 5000, narrow, Leaf(problem.kernel.fallback)), wide)
    for tree in (tuned.module.tree, nested):
        _check_path(tree, complete(known, problem).values, problem)


def _check_path(tree: Tree, values: Mapping[str, int], problem: Problem) -> None:
    steps, config, region = trace(tree, values, problem)
    assert config == choose(tree, values) and holds(region, values)
    rows = np.arange(len(problem.cost))
    for step in steps:
        assert isinstance(tree, Split) and (tree.feature, tree.threshold) == (step.feature, step.at_most)
        assert step.value == values[step.feature]
        is_low, goes_low = problem.column(tree.feature)[rows] <= tree.threshold, step.value <= step.at_most
        side = tree.low if goes_low else tree.high
        assert (step.kind == "fitted") == (bool(is_low.any()) and not is_low.all())
        rows = rows[is_low == goes_low]
        assert (step.kind == "beyond a guard") == (not len(rows))
        tree = side
    assert tree == Leaf(config)


@examples(100)
@given(st.fixed_dictionaries(dict.fromkeys(FEATURES, st.integers(0, 700))))
def test_an_alternative_is_the_smallest_change_that_launches_its_config(
    tuned: TunedModule, known: dict[str, int]
) -> None:
    """Against every change of rows, columns and heads to a bound of the tree."""
    problem, tree = tuned.problem, tuned.module.tree
    values = complete(known, problem).values
    config = choose(tree, values)
    found = alternatives(tree, config, values, problem)
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    for one in found:
        moved = dict(values)
        for name, (least, greatest) in one.bounds.items():
            assert not holds({name: (least, greatest)}, values)
            moved[name] = least if least is not None and values[name] < least else greatest or 0
        assert problem.kernel.constant_name(choose(tree, moved)) == one.config
        away = (math.log2(max(moved[n], 0.5) / max(values[n], 0.5)) for n in one.bounds)
        assert one.distance == pytest.approx(math.hypot(*away), abs=1e-5)
    assert problem.kernel.constant_name(config) not in {one.config for one in found}


def test_of_configs_that_are_equally_fast_the_launched_one_is_the_best(tmp_path: Path) -> None:
    path = write_project(tmp_path, times=lambda row: [10.0, 10.0, 20.0])
    assert build(path) == 0
    tuned = read_module_and_table(path, KERNEL, None)
    for config in tuned.problem.configs[:2]:
        module = replace(tuned.module, tree=Leaf(config))
        found = explain(replace(tuned, module=module), {"rows": 8, "columns": 8, "heads": 2}, 1)
        assert (found.nearest[0].best, found.nearest[0].time) == (found.config, 10.0)


def test_a_tree_that_splits_on_an_unknown_feature_names_its_parts(tuned: TunedModule) -> None:
    values = {"columns": 3, "heads": 2}
    tree = Split("area", 5, Leaf(tuned.problem.kernel.fallback), tuned.module.tree)
    assert "rows, columns" in error_of(trace, tree, values, tuned.problem)


@examples(60)
@given(st.dictionaries(st.sampled_from(FEATURES), st.integers(1 - 2**62, 2**62 - 1), min_size=1))
def test_any_integers_are_explained_or_refused_in_one_line(
    tuned: TunedModule, values: dict[str, int]
) -> None:
    try:
        found = explain(tuned, values, 2)
    except InputError as error:
        assert "62 bits" in str(error)
        return
    assert values.items() <= found.shape.items()
    assert len(found.nearest) == 2 and len(found.alternatives) <= 2
    out = io.StringIO()
    show(found, tuned.problem.kernel, Console(file=out, width=100))
    assert f"launches {found.config}" in out.getvalue()
    assert ("OUTSIDE" in out.getvalue()) == bool(found.outside)


def test_a_device_without_module_is_refused_by_name_and_passed_over_otherwise(
    tmp_path: Path, explained: Explain, refusal: Callable[..., str]
) -> None:
    content: dict[str, Any] = spec(tables={DEVICE: "tables/h100", "gpu_b": as_h100()})
    content["devices"]["gpu_b"] = {"names": ["B"], "vendor": "nvidia", "limits": {"shared_memory": 1}}
    path = write_project(tmp_path, content)
    assert build(path) == 0
    assert json.loads(explained(path, "rows=8", "--json"))["other_devices"] == ["gpu_b"]
    (tmp_path / f"generated/{KERNEL}/{DEVICE}.py").unlink()
    assert json.loads(explained(path, "rows=8", "--json"))["device"] == "gpu_b"
    message = refusal(tmp_path, "explain", KERNEL, "rows=8", "--device", DEVICE, "--spec", path)
    assert f"{DEVICE}.py" in message


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["nothing", "rows=1"], "nothing"),
        ([KERNEL, "rows=1", "--device", "amd"], "amd"),
        ([KERNEL, "rows=1", "--top", "0"], "--top 0"),
        ([KERNEL, "rows=4k"], "rows=4k"),
        ([KERNEL, "rows=1", "colums=1"], "colums"),
        ([KERNEL, "\x1b[31m=1"], "\\x1b[31m"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    project: Path, refusal: Callable[..., str], words: list[str], names: str
) -> None:
    message = refusal(project.parent, "explain", "--spec", project, *words)
    assert names in message and message.isprintable()


def test_text_from_outside_is_neither_a_terminal_escape_nor_markup(
    tmp_path: Path, explained: Explain
) -> None:
    name = "GPU \x1b[2J\u202e[bold]x[/bold] :smile:"
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": name}})
    path = write_project(tmp_path, content, device={"name": name})
    assert build(path) == 0
    text = explained(path, "rows=8")
    assert "GPU \\x1b[2J\\u202e[bold]x[/bold] :smile:" in text
    assert all(line.isprintable() for line in text.splitlines())

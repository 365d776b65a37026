"""A module chooses in a table's scenarios as its executed text does, also by another spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import FEATURES, device_and_kernel, grid, problem
from treegen_strategies import CONFIGS, examples

from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree
from treegen.emit.package import device_module
from treegen.review.diff.decisions import known_decisions, with_new_names
from treegen.review.modules import Module

HERE = {"area": "rows * columns", "volume": "area * heads", "limited": "min(rows, shared_memory // 58112)"}
THERE = {
    "area": "columns * rows * 2",  # another thing of the same name
    "volume": "area * heads",  # written alike, but of another area
    "limited": "min(rows, shared_memory // 58112)",  # 4 on an H100
    "longer": "area + limited + volume",
}
SHAPES = [(rows, columns, heads) for rows, columns, _ in grid() for heads in (1, 3)]
ONE, OTHER = (Leaf(config) for config in CONFIGS[:2])

trees = st.recursive(
    st.sampled_from(CONFIGS).map(Leaf),
    lambda inner: st.builds(Split, st.sampled_from([*FEATURES, *THERE]), st.integers(0, 200), inner, inner),
    max_leaves=8,
)


def _module(kernel: KernelSpec, device: DeviceSpec, tree: Tree) -> Module:
    text = device_module(kernel, device.key, device.limits, tree)
    return Module(kernel, device, Path("old/module.py"), text, tree)


def _executed(text: str, names: tuple[str, ...]) -> Callable[..., tuple[str, dict[str, int]]]:
    """`choose` of a generated module, with a Config that just holds what it is given."""
    space: dict[str, Any] = {"Config": lambda variant, **parameters: (variant, parameters)}
    exec(text.replace("from .config import Config", ""), space)
    return lambda values: space["choose"](**{name: values[name] for name in names})


@pytest.fixture(scope="module")
def table_problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("new"), {"derived": HERE}, shapes=SHAPES)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    return device_and_kernel(tmp_path_factory.mktemp("old"), derived=THERE)


@examples(60)
@given(tree=trees)
def test_another_specs_module_chooses_as_its_text_does(
    table_problem: Problem, old: tuple[DeviceSpec, KernelSpec], tree: Tree
) -> None:
    device, kernel = old
    module = _module(kernel, device, tree)
    choose = _executed(module.text, kernel.features)
    chosen = known_decisions(module, table_problem)
    for row, values in enumerate(table_problem.features.tolist()):
        variant, parameters = choose(dict(zip(table_problem.names, values, strict=True)))
        assert chosen[row] == Config(variant, tuple(parameters.items()))


def test_renamed_parameters_get_defaults_and_unknown_ones_go(tmp_path: Path, table_problem: Problem) -> None:
    """The old kernel knows stages, which went, and no warps, which have a default now."""
    parameters: dict[str, Any] = {"block": "B", "warps": {"letter": "W", "default": 4}}
    _, new = device_and_kernel(
        tmp_path / "new", config={"variants": ["plain"], "parameters": parameters}, derived=HERE
    )
    device, kernel = device_and_kernel(
        tmp_path / "old",
        config={"variants": ["plain"], "parameters": {"stages": "S", "block": "B"}},
        fallback={"variant": "plain", "block": 64, "stages": 1},
    )
    leaf = Leaf(Config("plain", (("stages", 3), ("block", 16))))
    chosen = known_decisions(_module(kernel, device, leaf), replace(table_problem, kernel=new))
    assert set(chosen) == {Config("plain", (("block", 16), ("warps", 4)))}


def test_a_split_on_a_feature_that_the_table_lacks_leaves_choices_unknown(tmp_path: Path) -> None:
    table_problem = problem(tmp_path / "table", {"constraints": [], "derived": {}}, shapes=SHAPES)
    device, kernel = device_and_kernel(
        tmp_path / "old", features=[*FEATURES, "depth"], constraints=[], derived={"deep": "depth * rows"}
    )
    known = known_decisions(_module(kernel, device, Split("rows", 4, ONE, OTHER)), table_problem)
    assert known == tuple((ONE, OTHER)[row > 4].config for row in table_problem.column("rows").tolist())
    for name in ("depth", "deep"):
        unknown = known_decisions(_module(kernel, device, Split(name, 4, ONE, OTHER)), table_problem)
        assert unknown == (None,) * len(table_problem.scenarios)


def test_only_features_defined_differently_are_renamed(
    tmp_path: Path, old: tuple[DeviceSpec, KernelSpec]
) -> None:
    device, kernel = device_and_kernel(tmp_path, derived=HERE)
    new = _module(kernel, device, ONE)
    for name, renamed in {
        "rows": "rows",
        "limited": "limited",
        "longer": "longer",  # the new spec does not have it
        "area": "area (old)",
        "volume": "volume (old)",
    }.items():
        tree = with_new_names(_module(old[1], old[0], Split(name, 7, ONE, OTHER)), new)
        assert tree == Split(renamed, 7, ONE, OTHER)
    smaller = replace(device, limits={"shared_memory": 58112})
    module = _module(kernel, smaller, Split("limited", 2, ONE, OTHER))
    assert with_new_names(module, new) == Split("limited (old)", 2, ONE, OTHER), "another limit"

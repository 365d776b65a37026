"""A module chooses in a table's scenarios as its executed text does."""

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

from treegen.core import expr
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree
from treegen.emit.python import device_module
from treegen.review.diff.decisions import known_decisions, with_new_names
from treegen.review.modules import Module
from treegen.review.regions import tree_differences

HERE = {"area": "rows * columns", "volume": "area * heads"}
THERE = {
    "area": "columns * rows * 2",  # another thing of the same name
    "volume": "rows * columns * heads",  # the same in other words
    "limited": "min(rows, shared_memory // 58112)",  # 4 on an H100
    "longer": "area + limited + volume",
}
SHAPES = [(rows, columns, heads) for rows, columns, _ in grid() for heads in (1, 3)]


def trees(names: list[str], configs: list[Config]) -> st.SearchStrategy[Tree]:
    return st.recursive(
        st.sampled_from(configs).map(Leaf),
        lambda inner: st.builds(Split, st.sampled_from(names), st.integers(0, 200), inner, inner),
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
@given(tree=trees([*FEATURES, *THERE], list(CONFIGS)))
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
    leaves = [Leaf(config) for config in CONFIGS[:2]]
    known = known_decisions(_module(kernel, device, Split("rows", 4, *leaves)), table_problem)
    assert known == tuple(leaves[row > 4].config for row in table_problem.column("rows").tolist())
    for name in ("depth", "deep"):
        unknown = known_decisions(_module(kernel, device, Split(name, 4, *leaves)), table_problem)
        assert unknown == (None,) * len(table_problem.scenarios)


def test_only_features_defined_differently_are_renamed(
    tmp_path: Path, old: tuple[DeviceSpec, KernelSpec]
) -> None:
    device, kernel = device_and_kernel(tmp_path, derived=HERE)
    one, other = (Leaf(config) for config in CONFIGS[:2])

    def splitting(name: str, its: tuple[DeviceSpec, KernelSpec] = old) -> Module:
        return _module(its[1], its[0], Split(name, 7, one, other))

    here = (device, kernel)
    assert (
        tree_differences(
            with_new_names(splitting("volume"), splitting("volume", here)), splitting("volume", here).tree
        )
        == ()
    )
    apart = with_new_names(splitting("area"), splitting("area", here))
    assert apart == Split("area (old)", 7, one, other)
    assert tree_differences(apart, splitting("area", here).tree) != ()
    assert with_new_names(splitting("limited"), splitting("area", here)) == splitting("limited").tree


def test_a_feature_with_another_limit_is_renamed(old: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = old
    smaller = replace(device, limits={"shared_memory": 58112})
    one, other = (Leaf(config) for config in CONFIGS[:2])
    tree = Split("limited", 2, one, Split("longer", 3, one, Split("volume", 4, one, other)))
    before, after = (_module(kernel, limited, tree) for limited in (smaller, device))
    assert with_new_names(before, before) == tree
    renamed = with_new_names(before, after)
    assert isinstance(renamed, Split)
    names = [renamed.feature, renamed.high.feature, renamed.high.high.feature]
    assert names == ["limited (old)", "longer (old)", "volume"]


def test_definitions_are_compared_without_writing_them_out(tmp_path: Path) -> None:
    """Each of these doubles the one before: written out, the last would have 2^60 terms."""
    chain = {"d0": "rows + 1"} | {f"d{i}": f"min(d{i - 1}, d{i - 1})" for i in range(1, 61)}
    tree = Split("d60", 7, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
    modules = []
    for name in ("old", "new"):
        device, kernel = device_and_kernel(tmp_path / name, derived=chain)
        modules.append(Module(kernel, device, tmp_path, "", tree))
    assert with_new_names(*modules) == tree
    other = replace(modules[1].kernel, derived={**modules[1].kernel.derived, "d0": expr.parse("rows + 2")})
    assert with_new_names(modules[0], replace(modules[1], kernel=other)) != tree

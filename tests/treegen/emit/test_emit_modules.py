"""A printed module is the tree: for any integers the same choice, as one of its constants."""

from __future__ import annotations

import ast
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import device_and_kernel
from treegen_strategies import CONFIGS, FALLBACK, FEATURES, any_integer, examples, near_thresholds, points

from treegen.core import expr
from treegen.core.spec import DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose
from treegen.emit.package import device_module, kernel_package, top_package

DERIVED = {
    "area": "rows * columns",
    "share": "area // max(1, heads)",
    "padded": "next_power_of_2(columns) - share",
    "room": "max(shared_memory - area, 0 - rows, -7)",
}
Load = Callable[[Tree], ModuleType]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    device, kernel = device_and_kernel(tmp_path_factory.mktemp("spec"), derived=DERIVED)
    return device, dataclasses.replace(kernel, fallback=FALLBACK)


@pytest.fixture(scope="module")
def load(parts: tuple[DeviceSpec, KernelSpec]) -> Iterator[Load]:
    """A function that prints a tree as a module and runs the text, as if it lay in a package `printed`."""
    device, kernel = parts

    def execute(name: str, text: str) -> ModuleType:
        module = ModuleType(name)
        module.__package__ = "printed"
        exec(compile(text, name, "exec"), module.__dict__)
        return module

    sys.modules["printed"] = ModuleType("printed")
    sys.modules["printed"].__path__ = []
    sys.modules["printed.config"] = execute(
        "printed.config", kernel_package(kernel, {device.key: device})["config.py"]
    )
    yield lambda tree: execute("printed.module", device_module(kernel, device.key, device.limits, tree))
    del sys.modules["printed"], sys.modules["printed.config"]


trees: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(CONFIGS).map(Leaf),
    lambda inner: st.builds(Split, st.sampled_from([*FEATURES, *DERIVED]), any_integer, inner, inner),
    max_leaves=12,
)


@examples(200)
@given(st.data(), trees)
def test_the_module_chooses_as_the_tree_does(
    parts: tuple[DeviceSpec, KernelSpec], load: Load, data: st.DataObject, tree: Tree
) -> None:
    device, kernel = parts
    module = load(tree)
    near = st.fixed_dictionaries({name: st.sampled_from(near_thresholds(tree, name)) for name in FEATURES})
    for point in data.draw(st.lists(st.one_of(points, near), min_size=3, max_size=6)):
        values = {**device.limits, **point}
        for name in DERIVED:
            values[name] = expr.evaluate(kernel.derived[name], values)
        expected = choose(tree, values)
        found = module.choose(**point)
        assert found._asdict() == {"variant": expected.variant, **dict(expected.parameters)}
        assert found is getattr(module, kernel.constant_name(expected))


@examples(100)
@given(trees)
def test_constants_are_the_configs_of_the_tree_each_once(load: Load, tree: Tree) -> None:
    module = load(tree)
    constants = [value for value in vars(module).values() if isinstance(value, module.Config)]
    assert len(constants) == len(set(constants)) == len(set(_configs(tree)))


def _configs(tree: Tree) -> list[object]:
    return [tree.config] if isinstance(tree, Leaf) else [*_configs(tree.low), *_configs(tree.high)]


ALLOWED = (
    "FunctionDef arguments arg Name Load Store If Return Assign Compare IfExp LtE Lt Gt Constant BinOp Add"
)
ALLOWED += " Sub Mult FloorDiv LShift UnaryOp USub Call Attribute BoolOp Or"


@examples(100)
@given(trees)
def test_the_function_holds_nothing_but_arithmetic_and_comparisons(
    parts: tuple[DeviceSpec, KernelSpec], tree: Tree
) -> None:
    device, kernel = parts
    module = ast.parse(device_module(kernel, device.key, device.limits, tree))
    docstring, imports, *constants, function = module.body
    assert isinstance(docstring, ast.Expr) and isinstance(imports, ast.ImportFrom)
    assert all(
        isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Config(") for node in constants
    )
    assert isinstance(function, ast.FunctionDef) and function.name == "choose"
    for node in ast.walk(function):
        assert type(node).__name__ in ALLOWED.split()
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) in ("min", "max") or ast.unparse(node.func).endswith(".bit_length")
        if isinstance(node, ast.Constant):
            assert type(node.value) is int


def test_arguments_are_keywords_and_all_are_needed(load: Load) -> None:
    choose = load(Leaf(CONFIGS[0])).choose
    assert choose(rows=1, columns=2, heads=3).variant == "plain"
    for wrong in (
        lambda: choose(1, 2, 3),
        lambda: choose(rows=1, columns=2),
        lambda: choose(rows=1, columns=2, heads=3, x=4),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_nothing_is_imported_but_typing_and_abstract_classes(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    texts = [
        device_module(kernel, device.key, device.limits, Leaf(CONFIGS[0])),
        top_package({kernel.name: kernel}),
        *kernel_package(kernel, {device.key: device}).values(),
    ]
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            assert not isinstance(node, ast.Import)
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module in ("typing", "collections.abc")


def test_an_expression_of_many_minus_signs_can_be_imported(tmp_path: Path) -> None:
    device, kernel = device_and_kernel(tmp_path, derived={"area": "-" * 250 + "rows"})
    tree = Split("area", 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
    compile(device_module(kernel, device.key, device.limits, tree), "module", "exec")


def test_a_long_chain_of_derived_features_takes_no_time(tmp_path: Path) -> None:
    derived = {"d0": "rows", "d1": "d0 + columns"}
    derived |= {f"d{k}": f"d{k - 1} + d{k - 2}" for k in range(2, 22)}
    device, kernel = device_and_kernel(tmp_path, derived=derived)
    start = time.process_time()
    device_module(kernel, device.key, {}, Split("d21", 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1])))
    assert time.process_time() - start < 0.1


def test_a_deep_chain_of_leaves_stays_flat(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    tree: Tree = Leaf(CONFIGS[0])
    for threshold in range(30):
        tree = Split("rows", threshold * 10, Leaf(CONFIGS[threshold % 5]), tree)
    text = device_module(kernel, device.key, device.limits, tree)
    assert "else:" not in text and max(len(line) - len(line.lstrip()) for line in text.splitlines()) == 8

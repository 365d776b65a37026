"""What is printed for Triton is the tree, computed here by Python in a stand-in's place.

The stand-in's integers have no width, so it refuses those beyond 64 bits; how Triton divides and casts is
tested with Triton (tests/kernels/test_in_kernel.py).
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from generated_modules import check_source
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import device_and_kernel
from treegen_strategies import (
    CONFIGS,
    FALLBACK,
    FEATURES,
    any_integer,
    examples,
    expressions,
    near_thresholds,
)

from treegen.core import expr
from treegen.core.expr import Call, Name, Number
from treegen.core.spec import DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose
from treegen.emit.triton import Unprintable, in_kernel_module

DERIVED = {
    "area": "rows * columns",
    "share": "area // max(1, heads)",
    "padded": "next_power_of_2(columns) - share",
    "room": "max(shared_memory - area, 0 - rows, -7)",
    "below": "(padded - 3 * area) // max(3, rows, 2) - room // 5",
}
GREATEST = (1 << 63) - 1


def _language() -> SimpleNamespace:
    def where(condition: bool, one: int, other: int) -> int:
        return one if condition else other

    def cast(value: int, kind: str) -> int:
        assert kind == "int64" and -GREATEST - 1 <= value <= GREATEST
        return value

    def two(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
        return lambda one, other: function(one, other)  # not more

    return SimpleNamespace(int64="int64", cast=cast, where=where, minimum=two(min), maximum=two(max))


def execute(text: str) -> dict[str, Any]:
    """What a module defines, run with a stand-in for Triton."""
    triton = SimpleNamespace(jit=lambda function: function, language=_language())

    def imported(name: str, *_: object) -> SimpleNamespace:
        assert name in ("triton", "triton.language")
        return triton

    names: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": imported}}
    exec(compile(text, "module", "exec"), names)
    return names


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    folder = tmp_path_factory.mktemp("spec")
    device, kernel = device_and_kernel(folder, derived=DERIVED, in_kernel=["warps", "block"])
    return device, dataclasses.replace(kernel, fallback=FALLBACK)


def _trees(names: list[str]) -> st.SearchStrategy[Tree]:
    return st.recursive(
        st.sampled_from(CONFIGS).map(Leaf),
        lambda inner: st.builds(Split, st.sampled_from(names), any_integer, inner, inner),
        max_leaves=12,
    )


trees = _trees([*FEATURES, *DERIVED])


def _parts_of(expression: expr.Expression) -> Iterator[expr.Expression]:
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _parts_of(argument)


def _fits(derived: dict[str, expr.Expression], values: dict[str, int]) -> bool:
    """Whether 64 bits are enough for all that is computed."""
    return all(
        -GREATEST <= expr.evaluate(part, values) <= GREATEST
        for expression in derived.values()
        for part in _parts_of(expression)
    )


def _compare(device: DeviceSpec, kernel: KernelSpec, tree: Tree, point: dict[str, int]) -> None:
    derived = {name: expr.substitute(e, device.limits) for name, e in kernel.derived.items()}
    values = dict(point)
    for name, expression in derived.items():
        values[name] = expr.evaluate(expression, values)
    assume(_fits(derived, values))
    names = execute(in_kernel_module(kernel, device.key, device.limits, tree))
    expected = dict(choose(tree, values).parameters)
    for parameter in kernel.in_kernel:
        assert names[parameter](*(point[name] for name in kernel.features)) == expected[parameter]


@examples(300)
@given(st.data(), trees)
def test_it_chooses_as_the_tree_does(
    parts: tuple[DeviceSpec, KernelSpec], data: st.DataObject, tree: Tree
) -> None:
    sizes = st.one_of(st.integers(0, 300), st.integers(0, 1 << 21), st.integers(0, GREATEST))
    near = {name: [n for n in near_thresholds(tree, name) if 0 <= n <= GREATEST] for name in FEATURES}
    point = {name: data.draw(st.one_of(sizes, st.sampled_from(near[name]))) for name in FEATURES}
    _compare(*parts, tree, point)


@examples(300)
@given(st.data(), expressions(), _trees([*FEATURES, "area"]))
def test_any_expression(
    parts: tuple[DeviceSpec, KernelSpec], data: st.DataObject, expression: expr.Expression, tree: Tree
) -> None:
    device, kernel = parts
    point = {name: data.draw(st.integers(0, 1000)) for name in FEATURES}
    value = expr.evaluate(expression, point)
    tree = Split("area", value + data.draw(st.integers(-1, 1)), tree, Leaf(CONFIGS[0]))
    try:
        _compare(device, dataclasses.replace(kernel, derived={"area": expression}), tree, point)
    except Unprintable:
        assert any(abs(part.value) > GREATEST for part in _numbers(expr.substitute(expression, {})))


def _numbers(expression: expr.Expression) -> list[Number]:
    return [part for part in _parts_of(expression) if isinstance(part, Number)]


@examples(200)
@given(trees)
def test_it_holds_nothing_else_and_returns_only_at_its_end(
    parts: tuple[DeviceSpec, KernelSpec], tree: Tree
) -> None:
    device, kernel = parts
    text = in_kernel_module(kernel, device.key, device.limits, tree)
    check_source("scale/in_kernel/device.py", text)
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert [f.name for f in functions if not f.name.startswith("_")] == list(kernel.in_kernel)
    for function in functions:
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        assert returns == [function.body[-1]]


def test_questions_that_the_width_of_integers_answers_are_not_printed(
    parts: tuple[DeviceSpec, KernelSpec],
) -> None:
    device, kernel = parts
    inner = Split("room", -(1 << 63) - 1, Leaf(CONFIGS[3]), Leaf(CONFIGS[0]))
    tree = Split("rows", -1, Leaf(CONFIGS[1]), Split("area", GREATEST, inner, Leaf(CONFIGS[2])))
    text = in_kernel_module(kernel, device.key, device.limits, tree)
    assert "if " not in text and "cast" not in text
    assert execute(text)["block"](1, 2, 3) == 8


def test_a_device_without_the_limits_of_the_others_has_no_splits(
    parts: tuple[DeviceSpec, KernelSpec],
) -> None:
    _, kernel = parts
    names = execute(in_kernel_module(kernel, "default", {}, Leaf(FALLBACK)))
    assert (names["block"](1, 2, 3), names["warps"](1, 2, 3)) == (64, 1)


def test_only_what_may_be_negative_is_divided_with_care(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    for name, careful in (("share", False), ("padded", False), ("below", True)):
        tree = Split(name, 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
        text = in_kernel_module(kernel, device.key, device.limits, tree)
        assert ("_floor_division" in text) == careful


def test_nothing_is_computed_from_constants_alone(tmp_path: Path) -> None:
    """Triton would compute it in 32 bits."""
    derived = {
        "memory": "shared_memory * 4",
        "padded": "next_power_of_2(memory - 1) * rows",
        "scaled": "max(memory, 3) * 100000 + rows",
    }
    device, kernel = device_and_kernel(tmp_path, derived=derived, in_kernel=["warps"], constraints=[])
    for name, printed in (("padded", "1_048_576 * rows"), ("scaled", "92_979_200_000 + rows")):
        tree = Split(name, 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
        text = in_kernel_module(kernel, device.key, device.limits, tree)
        assert f"    {name} = {printed}\n" in text and "memory" not in text


def test_a_product_of_limits_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    derived = {"square": "shared_memory * shared_memory", "area": "min(rows, square * square)"}
    device, kernel = device_and_kernel(tmp_path, derived=derived, in_kernel=["warps"], constraints=[])
    tree = Split("area", 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
    with pytest.raises(Unprintable, match="depends on area, which holds a number beyond 64 bits"):
        in_kernel_module(kernel, device.key, device.limits, tree)


def test_numbers_beyond_64_bits_are_refused(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    huge = {"area": Call("+", (Name("rows"), Number(1 << 63)))}
    with pytest.raises(Unprintable, match="warps depends on area, which holds a number beyond 64 bits"):
        in_kernel_module(
            dataclasses.replace(kernel, derived=huge),
            device.key,
            {},
            Split("area", 5, Leaf(CONFIGS[0]), Leaf(CONFIGS[1])),
        )


def test_a_tree_that_python_would_not_read_is_refused(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    derived = {f"d{k}": Call("+", (Name("rows"), Number(k))) for k in range(100)}
    tree: Tree = Leaf(CONFIGS[0])
    for k in range(100):
        tree = Split(f"d{k}", k, Leaf(CONFIGS[1 + k % 2]), tree)
    with pytest.raises(Unprintable, match="more than 90 deep"):
        in_kernel_module(dataclasses.replace(kernel, derived=derived), device.key, {}, tree)


def test_a_long_chain_of_questions_stays_flat(parts: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = parts
    tree: Tree = Leaf(CONFIGS[0])
    for threshold in range(300):
        tree = Split("rows", 3000 - threshold * 10, Leaf(CONFIGS[threshold % 5]), tree)
    text = in_kernel_module(kernel, device.key, device.limits, tree)
    assert max(len(line) - len(line.lstrip()) for line in text.splitlines()) == 8
    assert execute(text)["block"](15, 2, 3) == choose(tree, {"rows": 15}).parameters[0][1]

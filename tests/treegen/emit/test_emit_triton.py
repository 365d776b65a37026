"""The Triton function gives the row of the Python module.

Most of it is computed here by Python, with a stand-in for Triton whose integers have no width, so that it
refuses those beyond 64 bits; the last test runs Triton's interpreter.
"""

import ast
import builtins
import itertools
import re
import runpy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import device_and_kernel
from treegen_strategies import FEATURES, LIMITS, examples, heuristics, kernels

from treegen.core import expr
from treegen.core.expr import Call, Name, Number
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, choose
from treegen.core.spec import Config
from treegen.emit.triton import Unprintable, in_kernel_module

GREATEST = (1 << 63) - 1
CONFIG = Config("plain", (("block", 16), ("warps", 2)))


def execute(text):
    """What a module defines, run with a stand-in for Triton."""

    def cast(value, kind):
        assert kind == "int64" and -GREATEST - 1 <= value <= GREATEST
        return value

    language = SimpleNamespace(
        int64="int64",
        cast=cast,
        where=lambda condition, one, other: one if condition else other,
        minimum=lambda one, other: min(one, other),  # not of more
        maximum=lambda one, other: max(one, other),
    )
    triton = SimpleNamespace(jit=lambda function: function, language=language)
    names = {"__builtins__": {**vars(builtins), "__import__": lambda *_: triton}}
    exec(compile(text, "module", "exec"), names)
    return names


def place(heuristic, kernel, point):
    """The number of the row, counted over all regimes."""
    found = choose(heuristic, kernel, LIMITS, point)
    before = heuristic.regimes[: heuristic.regimes.index(found.regime)]
    return found.row + sum(len(regime.rows) for regime in before)


def _parts_of(expression):
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _parts_of(argument)


def _fits(kernel, point):
    """Whether 64 bits are enough for all that is computed."""
    values = kernel.with_derived({**LIMITS, **point})
    found = [*kernel.derived.values(), *(r.when for r in kernel.regimes if r.when is not None)]
    parts = [part for expression in found for part in _parts_of(expression)]
    return all(abs(expr.evaluate(part, values)) <= GREATEST for part in parts)


def _printed(kernel, heuristic):
    try:
        return in_kernel_module(kernel, "nvidia_h100", LIMITS, heuristic)
    except Unprintable:
        assume(False)
        raise


@examples(300, shrink=False)
@given(st.data(), kernels())
def test_the_row_is_that_of_the_heuristic(data, kernel):
    heuristic = data.draw(heuristics(kernel))
    text = _printed(kernel, heuristic)
    row = execute(text)["row"]
    for function in (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)):
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        assert returns == [function.body[-1]]  # or Triton would not inline it
    sizes = st.one_of(st.integers(0, 70), st.integers(0, 1 << 21), st.integers(0, GREATEST))
    for _ in range(4):
        point = {name: data.draw(sizes) for name in FEATURES}
        if _fits(kernel, point):
            assert row(**point) == place(heuristic, kernel, point)


def _asking(name):
    return Heuristic((RegimeRows("steps", Split(name, 5, 0, 1), (Row(CONFIG), Row(CONFIG))),))


def _kernel(folder, **derived):
    return device_and_kernel(folder, derived=derived, constraints=[])[1]


def test_what_is_divided_with_care_and_computed_from_constants(tmp_path):
    """Care is for what may be negative. Triton would compute what constants alone make in 32 bits."""
    for definition, careful in (("rows * columns // max(1, heads)", False), ("(rows - columns) // 5", True)):
        text = in_kernel_module(_kernel(tmp_path, area=definition), "nvidia_h100", LIMITS, _asking("area"))
        assert ("_floor_division" in text) == careful
    kernel = _kernel(tmp_path, memory="shared_memory * 4", scaled="max(memory, 3) * 100000 + rows")
    text = in_kernel_module(kernel, "h", {"shared_memory": 232448}, _asking("scaled"))
    assert "    scaled = 92_979_200_000 + rows\n" in text and "memory" not in text
    names = execute(in_kernel_module(_kernel(tmp_path), "default", {}, Heuristic(())))
    assert names["row"](rows=1, columns=2, heads=3) == 0  # of a device without a table


def test_numbers_beyond_64_bits_are_refused(tmp_path):
    huge = {"area": Call("+", (Name("rows"), Number(1 << 63)))}
    with pytest.raises(Unprintable):
        in_kernel_module(replace(_kernel(tmp_path), derived=huge), "h", {}, _asking("area"))


# In Triton's interpreter


@triton.jit
def rows_kernel(out_ptr, rows_ptr, count, FUNCTION: tl.constexpr):
    for row in range(count):
        at = rows_ptr + row * 3
        tl.store(out_ptr + row, FUNCTION(tl.load(at), tl.load(at + 1), tl.load(at + 2)))


@triton.jit
def constants_kernel(out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(A, B, C))


SIZES = st.one_of(st.integers(0, 70), st.integers(0, 1 << 21), st.integers(0, (1 << 31) - 1))
numbers = itertools.count()


@examples(60, shrink=False)
@given(st.data(), kernels(), st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=4, max_size=4))
def test_the_interpreter_gives_the_same_row_for_tensors_of_both_widths_and_for_constants(
    tmp_path, data, kernel, points
):
    heuristic = data.draw(heuristics(kernel))
    shapes = [dict(zip(FEATURES, point, strict=True)) for point in points]
    shapes = [shape for shape in shapes if _fits(kernel, shape)]
    assume(shapes)
    text = _printed(kernel, heuristic)
    assume(max(map(int, re.findall(r"\d[\d_]*", text))) <= GREATEST)  # as in all that a table can teach
    path = tmp_path / f"in_kernel_{next(numbers)}.py"
    path.write_text(text)
    function = runpy.run_path(str(path))["row"]
    expected = [place(heuristic, kernel, shape) for shape in shapes]
    points = [tuple(shape.values()) for shape in shapes]
    for dtype in (torch.int32, torch.int64):
        out = torch.full((len(points),), -1, dtype=torch.int32)
        rows_kernel[(1,)](out, torch.tensor(points, dtype=dtype), len(points), function)
        assert out.tolist() == expected
    out = torch.full((1,), -1, dtype=torch.int32)
    constants_kernel[(1,)](out, *points[0], function)
    assert out.tolist() == expected[:1]

"""The Triton function gives the row of the Python module, in Triton's interpreter."""

import ast
import itertools
import re
import runpy
from dataclasses import replace

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
    without_a_table = in_kernel_module(_kernel(tmp_path), "default", {}, Heuristic(()))
    assert "    row = 0\n" in without_a_table


def test_numbers_beyond_64_bits_are_refused(tmp_path):
    huge = {"area": Call("+", (Name("rows"), Number(1 << 63)))}
    with pytest.raises(Unprintable):
        in_kernel_module(replace(_kernel(tmp_path), derived=huge), "h", {}, _asking("area"))


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


@examples(100, shrink=False)
@given(
    st.data(),
    kernels(),
    st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=4, max_size=4),
    st.tuples(*[SIZES | st.integers(0, GREATEST)] * 3),
)
def test_the_row_is_that_of_the_heuristic_for_tensors_of_both_widths_and_for_constants(
    tmp_path, data, kernel, points, large
):
    heuristic = data.draw(heuristics(kernel))
    text = _printed(kernel, heuristic)
    for node in (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)):
        returns = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        assert returns == [node.body[-1]]  # or Triton would not inline it
    assume(max(map(int, re.findall(r"\d[\d_]*", text))) <= GREATEST)  # as in all that a table can teach
    path = tmp_path / f"in_kernel_{next(numbers)}.py"
    path.write_text(text)
    function = runpy.run_path(str(path))["row"]
    for dtype, own in ((torch.int32, points), (torch.int64, [*points, large])):
        shapes = [dict(zip(FEATURES, point, strict=True)) for point in own]
        shapes = [shape for shape in shapes if _fits(kernel, shape)]
        expected = [place(heuristic, kernel, shape) for shape in shapes]
        fitting = torch.tensor([[*shape.values()] for shape in shapes], dtype=dtype)
        out = torch.full((len(shapes),), -1, dtype=torch.int32)
        rows_kernel[(1,)](out, fitting, len(shapes), function)
        assert out.tolist() == expected
    for shape, row in zip(shapes[-1:], expected[-1:], strict=True):
        out = torch.full((1,), -1, dtype=torch.int32)
        constants_kernel[(1,)](out, *shape.values(), function)
        assert out.tolist() == [row]

"""Functions printed for any trees over any expression find in a kernel the row that the trees lead to."""

import importlib.util
from itertools import count

import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from treegen.core import expr
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, choose
from treegen.core.spec import Budget, Config, KernelSpec, ModelClass, Parameter, Regime
from treegen.emit.triton import Unprintable, in_kernel_module


@triton.jit
def rows_kernel(out_ptr, rows_ptr, count, FUNCTION: tl.constexpr):
    for row in range(count):
        at = rows_ptr + row * 3
        tl.store(out_ptr + row, FUNCTION(tl.load(at), tl.load(at + 1), tl.load(at + 2)))


@triton.jit
def constants_kernel(out_ptr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, FUNCTION: tl.constexpr):
    tl.store(out_ptr, FUNCTION(A, B, C))


NAMES = ("rows", "columns", "heads")
CONFIG = Config("plain", (("parts", 1),))
REGIMES = ("few", "many")
ROWS = 4  # of each regime


def spec_of(derived, few):
    """``few``: the condition of the first regime."""
    return KernelSpec(
        name="scale",
        features=NAMES,
        derived=derived,
        constants=("heads",),
        regimes=(Regime("few", few, NAMES), Regime("many", None, NAMES)),
        classes=(ModelClass("all", None),),
        hold_out_by=("heads",),
        variants=("plain",),
        parameters={"parts": Parameter("N")},
        constraints=(),
        fallback=CONFIG,
        budget=Budget(),
        translations={},
        tables={},
        in_kernel=True,
    )


def texts(inner):
    positive = st.one_of(st.integers(1, 1 << 40).map(str), inner.map("max(1, {}, 3)".format))
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
        st.builds("({} // {})".format, inner, positive),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        inner.map("next_power_of_2({})".format),
    )


ATOMS = st.one_of(st.sampled_from(NAMES), st.integers(-(1 << 33), 1 << 33).map("({})".format))
EXPRESSIONS = st.recursive(ATOMS, texts, max_leaves=8).map(expr.parse)
SIZES = st.one_of(st.integers(0, 100), st.integers(0, (1 << 31) - 1))
numbers = count()


def parts_of(expression):
    yield expression
    for argument in expression.arguments if isinstance(expression, expr.Call) else ():
        yield from parts_of(argument)


def fits(expression, point):
    """Whether 64 bits suffice for all that is computed."""
    return all(abs(expr.evaluate(part, point)) < 1 << 63 for part in parts_of(expression))


def module_of(folder, text):
    path = folder / f"in_kernel_{next(numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(EXPRESSIONS, st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=4, max_size=4), st.data())
def test_any_expression_and_trees(tmp_path_factory, expression, points, data):
    expression = expr.substitute(expression, {})
    shapes = [dict(zip(NAMES, point, strict=True)) for point in points]
    shapes = [shape for shape in shapes if fits(expression, shape)]
    assume(shapes)
    values = [expr.evaluate(expression, shape) for shape in shapes]
    near = st.builds(lambda value, step: value + step, st.sampled_from(values), st.integers(-1, 1))
    trees = st.recursive(
        st.integers(0, ROWS - 1),
        lambda inner: st.builds(Split, st.sampled_from(["value", "columns"]), near, inner, inner),
        max_leaves=6,
    )
    regimes = [RegimeRows(name, data.draw(trees), (Row(CONFIG),) * ROWS) for name in REGIMES]
    few = expr.parse_condition(f"value <= {data.draw(near)} or rows <= {data.draw(SIZES)}")
    kernel, heuristic = spec_of({"value": expression}, few), Heuristic(tuple(regimes))
    try:
        text = in_kernel_module(kernel, "device", {}, heuristic)
    except Unprintable:
        assume(False)
    function = module_of(tmp_path_factory.getbasetemp(), text).row
    choices = [choose(heuristic, kernel, {}, shape) for shape in shapes]
    expected = [ROWS * REGIMES.index(choice.regime) + choice.row for choice in choices]
    points = [tuple(shape.values()) for shape in shapes]
    for dtype in (torch.int32, torch.int64):
        out = torch.full((len(points),), -1, dtype=torch.int32)
        rows_kernel[(1,)](out, torch.tensor(points, dtype=dtype), len(points), function)
        assert out.tolist() == expected
    out = torch.full((1,), -1, dtype=torch.int32)
    constants_kernel[(1,)](out, *points[0], function)
    assert out.tolist() == expected[:1]

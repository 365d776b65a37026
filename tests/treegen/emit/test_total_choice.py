"""Whatever spec, table and tree: a module chooses a config that its spec allows, for any integers at all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from generated_modules import EXTREMES, check_modules, features, points, wrong_choice
from hypothesis import assume, event, given
from hypothesis import strategies as st
from treegen_builders import DEVICE, REPOSITORY, Row, build, device_and_kernel, guard, spec, write_project
from treegen_strategies import any_integer, examples, expressions

from generated import unified_attention
from treegen.core import expr
from treegen.core.errors import InputError
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree
from treegen.emit.package import device_module, kernel_package
from treegen.passes.bounds import UnprovableConstraint
from treegen.read.spec import read_spec
from treegen.review.modules import NO_DEVICE

NAMES = ("rows", "columns", "heads")
LARGEST = 2**62
sizes = st.one_of(st.integers(-3, 40), st.sampled_from([0, 1, 10**6, LARGEST, -LARGEST]), any_integer).filter(
    lambda value: abs(value) <= LARGEST
)


@st.composite
def comparisons(draw: st.DrawFn, known: list[str]) -> str:
    """Constraints as specs have them, most of which bound one feature, some of which cannot be proved."""
    feature, number = draw(st.sampled_from(known)), draw(st.integers(-5, 300))
    return draw(
        st.sampled_from(
            [
                f"block >= {feature}",
                f"{feature} >= {number}",
                f"{feature} < block * warps - {number}",
                f"{abs(number)} * block * next_power_of_2({feature}) <= memory",
                f"max({feature} // 3, block) <= memory",
                f"block * warps <= {number}",
                f"min({feature}, memory) > {number}",
                f"{number} <= {feature} + warps",
                f"block <= {number} - {feature}",
                f"rows * {feature} <= memory",
            ]
        )
    )


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec of one kernel with random derived features, constraints, trust, limits and fallback."""
    derived = {
        f"d{k}": expr.to_python(draw(expressions(power_of_2=False))) for k in range(draw(st.integers(0, 3)))
    }
    known = [*NAMES, *derived]
    kernel = {
        "derived": derived,
        "constraints": draw(st.lists(comparisons(known), max_size=3, unique=True)),
        "trusted_as_measured": draw(st.lists(st.sampled_from(known), max_size=2, unique=True)),
        "fallback": {
            "variant": "plain",
            "block": draw(st.integers(0, 300)),
            "warps": draw(st.integers(0, 9)),
        },
        "tree": {"max_depth": draw(st.integers(1, 5)), "max_leaves": draw(st.integers(1, 8))},
    }
    content = spec(**kernel)
    content["devices"][DEVICE]["limits"] = {"memory": draw(sizes)}
    return content


@examples(30)
@given(
    specs(),
    st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_what_a_build_of_any_spec_and_table_writes(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any], shapes: list[Row], random: Random
) -> None:
    def times(_: Row) -> list[float | str]:
        return [random.choice((5.0, 10.0, 20.0, "", "inf")), random.choice((7.0, 12.0, "")), 11.0]

    folder = tmp_path_factory.mktemp("p")
    status = build(write_project(folder, content, shapes=shapes, times=times))
    event("built" if status == 0 else "refused")
    if status == 0:
        check_modules(read_spec(folder / "treegen.yaml"), Random(0))


# Trees that no table would give


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    derived = {"area": "rows * columns", "share": "area // max(1, heads) - next_power_of_2(rows)"}
    constraints = ["block >= heads", "4 * block * next_power_of_2(columns) <= shared_memory", "area >= warps"]
    folder = tmp_path_factory.mktemp("spec")
    return device_and_kernel(folder, derived=derived, constraints=constraints)


configs = st.builds(
    lambda block, warps: Config("plain", (("block", block), ("warps", warps))),
    st.sampled_from([0, 16, 64, 2**31 - 1]),
    st.sampled_from([2, 4]),
)
trees: st.SearchStrategy[Tree] = st.recursive(
    configs.map(Leaf),
    lambda inner: st.builds(Split, st.sampled_from([*NAMES, "area", "share"]), any_integer, inner, inner),
    max_leaves=12,
)


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory, parts: tuple[DeviceSpec, KernelSpec]) -> Iterator[Path]:
    """A folder that is imported as the package `printed`, with the kernel's config in it."""
    folder = tmp_path_factory.mktemp("printed")
    (folder / "config.py").write_text(kernel_package(parts[1], {})["config.py"])
    sys.modules["printed"] = ModuleType("printed")
    sys.modules["printed"].__path__ = [str(folder)]
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "printed"]:
        del sys.modules[name]


@examples(80)
@given(trees, st.one_of(st.none(), st.tuples(any_integer, any_integer)))
def test_a_guarded_tree_of_any_shape(
    parts: tuple[DeviceSpec, KernelSpec], package: Path, tree: Tree, measured: tuple[int, int] | None
) -> None:
    device, kernel = parts
    ranges = {} if measured is None else {"heads": (min(measured), max(measured))}
    text = device_module(kernel, device.key, device.limits, guard(tree, kernel, device, ranges))
    module = ModuleType("printed.module")
    module.__file__, module.__package__ = str(package / "module.py"), "printed"
    (package / "module.py").write_text(text)
    exec(compile(text, "module", "exec"), module.__dict__)
    for point in points(module, Random(text), 60):
        assert wrong_choice(module, kernel, device, point) is None


def test_a_module_without_guards_is_caught(parts: tuple[DeviceSpec, KernelSpec], package: Path) -> None:
    device, kernel = parts
    config = Config("plain", (("block", 16), ("warps", 2)))
    text = device_module(
        kernel, device.key, device.limits, Split("rows", 5, Leaf(config), Leaf(kernel.fallback))
    )
    (package / "bare.py").write_text(text)
    module = importlib.import_module("printed.bare")
    wrong = [wrong_choice(module, kernel, device, point) for point in points(module, Random(0), 50)]
    assert any(found is not None and "breaks block >= heads" in found for found in wrong)


# The committed modules

SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNEL = SPEC.kernels["unified_attention"]


@pytest.mark.parametrize("key", unified_attention.MODULES)
def test_a_committed_module_at_thousands_of_points(key: str) -> None:
    module, device = unified_attention.MODULES[key], SPEC.devices.get(key, NO_DEVICE)
    for point in points(module, Random(key), 2000):
        assert wrong_choice(module, KERNEL, device, point) is None


@pytest.mark.parametrize("key", unified_attention.MODULES)
@examples(30)
@given(st.data())
def test_a_committed_module_where_arguments_meet_extremes(key: str, data: st.DataObject) -> None:
    module, device = unified_attention.MODULES[key], SPEC.devices.get(key, NO_DEVICE)
    ordinary = {name: data.draw(st.sampled_from((1, 8, 128, 4096))) for name in features(module)}
    for name in features(module):
        for value in EXTREMES:
            assert wrong_choice(module, KERNEL, device, {**ordinary, name: value}) is None


# Expressions that would never come to an end


@pytest.mark.parametrize(
    "step", ["{0} * {0} * {0}", "{0} * ({0} + 1)", "max(0, {0} * {0}) // 3", "9 * {0} * {0}"]
)
def test_a_chain_of_products_is_refused(tmp_path: Path, step: str) -> None:
    """Of zeros and ones all powers are small, so the table alone would not tell."""
    derived = {"d0": "rows * columns"} | {f"d{k + 1}": step.format(f"d{k}") for k in range(30)}
    content = spec(derived=derived, split_on=["d30"])
    shapes = [(rows, columns, 2) for rows in (0, 1) for columns in (0, 1)]
    with pytest.raises(InputError, match=r"derived\.d[0-9]+: multiplies [0-9]+ numbers; 64 are the most"):
        read_spec(write_project(tmp_path, content, shapes=shapes))


def test_a_product_of_64_numbers_is_accepted(tmp_path: Path) -> None:
    derived = {"half": " * ".join(["rows"] * 32), "whole": "half * half"}
    found = read_spec(write_project(tmp_path, spec(derived=derived)))
    assert list(found.kernels["scale"].derived) == list(derived)


@examples(200)
@given(expressions(), st.dictionaries(st.sampled_from(NAMES), st.integers(1, 200)))
def test_a_degree_bounds_the_digits(expression: expr.Expression, bits: dict[str, int]) -> None:
    """Of degree d over integers of b bits, a value has at most d b bits, and a few for sums."""
    values = {name: (1 << bits.get(name, 1)) - 1 for name in NAMES}
    widest = max(20, *values.values()).bit_length()
    degree = expr.degree(expression, {})
    assume(degree <= expr.MAX_DEGREE)
    assert expr.evaluate(expression, values).bit_length() <= degree * max(widest, 20) + 64


def test_too_many_derived_features_are_refused(tmp_path: Path) -> None:
    """Each is computed from the one before, and Python's stack is not endless."""
    derived = {"d0": "rows"} | {f"d{k}": f"d{k - 1} - 1" for k in range(1, 254)}
    with pytest.raises(InputError, match="has 257 features with derived ones; 256 are the most"):
        read_spec(write_project(tmp_path, spec(derived=derived)))
    del derived["d253"]
    shapes = [(rows, columns, 2) for rows in (1, 8, 300) for columns in (1, 8)]
    path = write_project(tmp_path, spec(derived=derived, split_on=["d252"]), shapes=shapes)
    assert build(path) == 0
    check_modules(read_spec(path), Random(0))


def test_an_unprovable_constraint_is_no_traceback(
    parts: tuple[DeviceSpec, KernelSpec], tmp_path: Path
) -> None:
    device, kernel = device_and_kernel(tmp_path, constraints=["rows * columns <= 4"])
    with pytest.raises(UnprovableConstraint):
        guard(Leaf(Config("plain", (("block", 1), ("warps", 1)))), kernel, device, {})

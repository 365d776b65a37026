"""align: no measured scenario changes its choice, and a threshold lies where a constraint ends a side."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import device_and_kernel, guard
from treegen_strategies import CONFIGS, FALLBACK, FEATURES, examples

from treegen.core.expr import parse_comparison
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, size
from treegen.passes.simplify import align, simplify

NARROW, WIDE = CONFIGS[1], CONFIGS[4]  # blocks 16 and 128


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    device, kernel = device_and_kernel(tmp_path_factory.mktemp("spec"))
    return device, dataclasses.replace(kernel, fallback=FALLBACK)


def _with(kernel: KernelSpec, *texts: str) -> KernelSpec:
    return dataclasses.replace(
        kernel, constraints=tuple(Constraint(text, *parse_comparison(text)) for text in texts)
    )


def _split(low: Config, high: Config, gap: tuple[int, int] | None, threshold: int) -> Split:
    return Split("heads", threshold, Leaf(low), Leaf(high), gap)


def test_a_side_ends_where_its_config_may_no_longer_be_launched(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], _with(spec[1], "block >= heads")
    found = align(_split(NARROW, WIDE, (12, 64), 32), kernel, device)
    assert found == _split(NARROW, WIDE, (12, 64), 16)
    measured = {"heads": (1, 100)}
    assert size(simplify(guard(found, kernel, device, measured))) == 3  # with one at the root
    assert size(simplify(guard(_split(NARROW, WIDE, (12, 64), 32), kernel, device, measured))) == 4


def test_a_side_begins_where_its_config_may_be_launched(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], _with(spec[1], "heads * 4 >= block")
    assert align(_split(NARROW, WIDE, (12, 64), 20), kernel, device) == _split(NARROW, WIDE, (12, 64), 31)


@pytest.mark.parametrize(
    ("gap", "threshold"),
    [
        (None, 32),  # a constraint's own split is exact
        ((20, 64), 32),  # a measured scenario lies beyond the bound: that is for a guard
        ((12, 64), 14),  # the side ends before its bound
    ],
)
def test_other_thresholds_stay(
    spec: tuple[DeviceSpec, KernelSpec], gap: tuple[int, int] | None, threshold: int
) -> None:
    tree = _split(NARROW, WIDE, gap, threshold)
    assert align(tree, _with(spec[1], "block >= heads"), spec[0]) == tree


@examples(200)
@given(st.data())
def test_measured_points_keep_their_choice(spec: tuple[DeviceSpec, KernelSpec], data: st.DataObject) -> None:
    values = {
        n: data.draw(st.lists(st.integers(1, 200), min_size=2, max_size=6, unique=True)) for n in FEATURES
    }

    def split(name: str, place: int, share: float, low: Tree, high: Tree) -> Split:
        known = sorted(values[name])
        below, above = known[place % (len(known) - 1) :][:2]
        return Split(name, below + int(share * (above - below)), low, high, (below, above))

    tree = data.draw(
        st.recursive(
            st.sampled_from(CONFIGS).map(Leaf),
            lambda t: st.builds(
                split, st.sampled_from(FEATURES), st.integers(0, 5), st.floats(0, 1, exclude_max=True), t, t
            ),
            max_leaves=8,
        )
    )
    moved = align(
        tree, _with(spec[1], "block >= heads", "rows * 2 <= block * warps", "columns >= warps"), spec[0]
    )
    point = {name: data.draw(st.sampled_from(values[name])) for name in FEATURES}
    assert choose(moved, point) == choose(tree, point)

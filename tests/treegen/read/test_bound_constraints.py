"""Constraints that bind the configs of some variants only."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    CONFIGS,
    device_and_kernel,
    error_of,
    guard,
    line_of,
    problem,
    spec,
    write_project,
)
from treegen_strategies import FALLBACK, FEATURES, examples, near_thresholds, points, trees

from treegen.build import build
from treegen.core.expr import parse_comparison
from treegen.core.problem import FORBIDDEN, holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, map_leaves
from treegen.passes.simplify import simplify
from treegen.read.spec_file import read_spec

TWO = {"config": {"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}}}
BOUND = {"holds": "block >= heads", "variants": ["split"]}


def test_a_bound_constraint_forbids_its_variants_only(tmp_path: Path) -> None:
    configs = [
        {**config, "id": v + config["id"], "variant": v} for v in ("plain", "split") for config in CONFIGS
    ]
    built = problem(
        tmp_path,
        {**TWO, "constraints": [BOUND]},
        shapes=[(1, 8, 40)],
        configs=configs,
        times=lambda shape: range(1, 7),
    )
    forbidden = {c for i, c in enumerate(built.configs) if built.cost[0, i] == FORBIDDEN}
    assert forbidden == {
        c for c in built.configs if c.variant == "split" and dict(c.parameters)["block"] == 16
    }


def test_a_bound_constraint_that_no_guard_can_express_is_named_with_its_line(tmp_path: Path) -> None:
    constraint = {"holds": "block >= heads * rows", "variants": ["plain"]}
    path = write_project(tmp_path, spec(**TWO, constraints=[constraint]))
    message = error_of(build, read_spec(path))
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'heads * rows')}: ")


CONSTRAINTS = ["block >= heads", "heads < warps * 4", "rows * 4 <= block", "0 < columns", "block < 100"]
bound_constraints = st.lists(
    st.builds(
        lambda text, variants: Constraint(text, *parse_comparison(text), variants=variants),
        st.sampled_from(CONSTRAINTS),
        st.sampled_from([None, ("plain",), ("split",), ("plain", "split")]),
    ),
    max_size=3,
    unique_by=lambda constraint: constraint.text,
)
boxes = st.fixed_dictionaries({name: st.sampled_from([(0, 9), (1, 40), (-5, 60)]) for name in FEATURES})


def _meets(kernel: KernelSpec, device: DeviceSpec, config: Config, point: dict[str, int]) -> bool:
    values = {**device.limits, **dict(config.parameters), **point}
    return all(
        holds(c, values) for c in kernel.constraints if c.variants is None or config.variant in c.variants
    )


def _mixed(tree: Tree) -> Tree:
    """The tree with every second kind of config of the variant `split`."""

    def change(leaf: Leaf) -> Tree:
        odd = dict(leaf.config.parameters)["warps"] % 2
        return Leaf(dataclasses.replace(leaf.config, variant="split" if odd else "plain"))

    return map_leaves(tree, change)


@examples(200)
@given(st.data(), trees(st.integers(-5, 130)).map(_mixed), bound_constraints, boxes)
def test_guards_hold_for_the_variants_that_are_bound(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    tree: Tree,
    constraints: list[Constraint],
    box: dict[str, tuple[int, int]],
) -> None:
    device, kernel = device_and_kernel(tmp_path_factory.mktemp("t"), **TWO)
    kernel = dataclasses.replace(kernel, fallback=FALLBACK, constraints=tuple(constraints))
    guarded = simplify(guard(tree, kernel, device, box))
    near = st.fixed_dictionaries({n: st.sampled_from(near_thresholds(guarded, n)) for n in FEATURES})
    for point in data.draw(st.lists(st.one_of(near, points), min_size=5, max_size=10)):
        config = choose(guarded, point)
        assert config == FALLBACK or (config == choose(tree, point) and _meets(kernel, device, config, point))
    point = {name: data.draw(st.integers(*box[name])) for name in FEATURES}
    config = choose(tree, point)
    assert choose(guarded, point) == (config if _meets(kernel, device, config, point) else FALLBACK)


def test_a_leaf_of_another_variant_needs_no_guard(tmp_path: Path) -> None:
    device, kernel = device_and_kernel(tmp_path, **TWO, constraints=[BOUND])
    plain, split = (Leaf(Config(v, (("block", 16), ("warps", 2)))) for v in ("plain", "split"))
    guarded = guard(Split("rows", 3, plain, split), kernel, device, {"heads": (1, 40)})
    assert guarded == Split("rows", 3, plain, Split("heads", 16, split, Leaf(kernel.fallback)))

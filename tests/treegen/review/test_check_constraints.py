"""Proofs of constraints: sound against brute force, and they find every removed guard."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, REPOSITORY, device_and_kernel, guard
from treegen_strategies import CONFIGS, FALLBACK, FEATURES, examples, trees

from treegen.core import expr
from treegen.core.problem import holds
from treegen.core.spec import Budget, Config, Constraint, DeviceSpec, KernelSpec, Parameter, Spec
from treegen.core.tree import Leaf, Region, Split, Tree, choose, leaves
from treegen.read.spec import read_spec
from treegen.review import regions
from treegen.review.check.proof import check_constraints, prove
from treegen.review.modules import NO_DEVICE, Module, read_modules

SPEC = read_spec(REPOSITORY / "treegen.yaml")
MODULES = read_modules(SPEC)
SHARED = DeviceSpec("gpu", (), None, "nvidia", MappingProxyType({"shared": 4096}))
DERIVED = MappingProxyType(
    {"area": expr.parse("rows * columns"), "share": expr.parse("columns // max(1, heads)")}
)


def constraint(text: str) -> Constraint:
    left, operator, right = expr.parse_comparison(text)
    return Constraint(text, left, operator, right, 7)


def kernel(*constraints: str) -> KernelSpec:
    return KernelSpec(
        name="scale",
        features=FEATURES,
        derived=DERIVED,
        split_on=FEATURES,
        variants=("plain",),
        parameters={"block": Parameter("B"), "warps": Parameter("W")},
        constraints=tuple(map(constraint, constraints)),
        trusted_as_measured=(),
        fallback=FALLBACK,
        budget=Budget(4, 8),
        translations={},
        tables={},
    )


GUARDABLE = ("block >= heads", "block * next_power_of_2(columns) <= shared", "share < warps", "area <= 4096")


def values(point: Mapping[str, int], of: KernelSpec, config: Config) -> dict[str, int]:
    found = {**SHARED.limits, **dict(config.parameters), **point}
    for name, expression in of.derived.items():
        found[name] = expr.evaluate(expression, found)
    return found


bounds = st.one_of(st.none(), st.integers(-3, 12))
boxes = st.fixed_dictionaries(
    {}, optional={n: st.tuples(bounds, bounds) for n in (*FEATURES, "area", "share")}
)


@examples(300)
@given(
    boxes, st.sampled_from(CONFIGS), st.sampled_from([*GUARDABLE, "rows - columns <= heads", "area > share"])
)
def test_proofs_and_counterexamples_agree_with_brute_force(region: Region, config: Config, text: str) -> None:
    subject = kernel(text)
    unproved = list(prove(region, config, subject, SHARED))
    for point in product(range(-4, 14, 3), repeat=3):
        found = values(dict(zip(FEATURES, point, strict=True)), subject, config)
        if regions.holds(region, found) and not holds(subject.constraints[0], found):
            assert unproved, found
    for one in unproved:
        if one.counterexample is not None:
            found = values({**dict.fromkeys(FEATURES, 1), **one.counterexample}, subject, config)
            assert regions.holds(region, found)
            assert not holds(subject.constraints[0], found)


@examples(200)
@given(trees(st.integers(-5, 300)))
def test_every_guarded_tree_is_proved(tree: Tree) -> None:
    subject = kernel(*GUARDABLE)
    for leaf, region in leaves(guard(tree, subject, SHARED, {"heads": (1, 8), "columns": (1, 64)})):
        if leaf.config != FALLBACK:
            assert list(prove(region, leaf.config, subject, SHARED)) == []


def test_a_region_without_shapes_needs_no_proof() -> None:
    region = {"heads": (500, None), "rows": (1, 4), "columns": (1, 4), "area": (17, None)}
    assert list(prove(region, CONFIGS[0], kernel("block >= heads"), SHARED)) == []
    assert list(prove({**region, "area": (16, None)}, CONFIGS[0], kernel("block >= heads"), SHARED))


def test_a_constraint_over_a_limit_that_the_device_lacks_is_not_proved() -> None:
    (one,) = prove({}, CONFIGS[0], kernel("block <= shared"), NO_DEVICE)
    assert one.unknown == ("shared",)


def test_a_constraint_binds_only_its_variants(tmp_path: Path) -> None:
    device, subject = device_and_kernel(
        tmp_path,
        config={"variants": ["plain", "other"], "parameters": {"block": "B", "warps": "W"}},
        constraints=[{"holds": "block >= heads", "variants": ["plain"]}],
    )
    parameters = (("block", 16), ("warps", 2))
    assert list(prove({}, Config("plain", parameters), subject, device))
    assert list(prove({}, Config("other", parameters), subject, device)) == []


def test_the_repositorys_modules_are_proved() -> None:
    assert check_constraints(SPEC, MODULES.values()).problems == ()


def without_guards(tree: Tree, feature: str, fallback: Config) -> Tree:
    """The tree without the splits on a feature whose high side is a leaf, or whose low side the fallback."""
    if isinstance(tree, Leaf):
        return tree
    low, high = (without_guards(side, feature, fallback) for side in (tree.low, tree.high))
    if tree.feature == feature and (isinstance(high, Leaf) or low == Leaf(fallback)):
        return low if isinstance(high, Leaf) else high
    return Split(tree.feature, tree.threshold, low, high)


ROWS, MEMORY = ("block_m >= min(64, queries_per_kv)",), ("<= shared_memory", "descriptors * ")


@pytest.mark.parametrize(
    ("key", "feature", "texts"),
    [
        ("nvidia", "queries_per_kv", ROWS),
        ("amd_mi300x", "queries_per_kv", ROWS),
        ("amd_mi300x", "head_size", MEMORY),
    ],
)
def test_a_removed_guard_is_found_with_a_shape_that_breaks_the_constraint(
    key: str, feature: str, texts: tuple[str, ...]
) -> None:
    module = MODULES["unified_attention", key]
    kernel_spec, device = module.kernel, module.device
    tree = without_guards(module.tree, feature, kernel_spec.fallback)
    found = [
        (leaf, one)
        for leaf, region in leaves(tree)
        if leaf.config != kernel_spec.fallback
        for one in prove(region, leaf.config, kernel_spec, device)
    ]
    assert {text for text in texts[:1] for _, one in found if text in one.constraint.text}
    assert any(one.counterexample is not None for _, one in found)
    for leaf, one in found:
        assert any(text in one.constraint.text for text in texts)
        if one.counterexample is None:  # the search for a shape is not complete
            continue
        shape = {**dict.fromkeys(kernel_spec.features, 1), **one.counterexample, **device.limits}
        for name, expression in kernel_spec.derived.items():
            shape[name] = expr.evaluate(expression, shape)
        assert choose(tree, shape) == leaf.config
        assert not holds(one.constraint, {**shape, **dict(leaf.config.parameters)})


def test_a_problem_names_leaf_region_constraint_line_and_shape(tmp_path: Path) -> None:
    device, subject = device_and_kernel(tmp_path, words={"heads": "KV heads"})
    config = Config("plain", (("block", 16), ("warps", 2)))
    tree = Split("rows", 4, Split("heads", 17, Leaf(config), Leaf(subject.fallback)), Leaf(subject.fallback))
    module = Module(subject, device, tmp_path / "m.py", "", tree)
    spec = Spec(tmp_path / "treegen.yaml", tmp_path, {DEVICE: device}, {subject.name: subject})
    report = check_constraints(spec, [module])
    (line,) = report.problems
    where = f"treegen.yaml:{subject.constraints[0].line}"
    for word in (DEVICE, "PLAIN_B16_W2", "rows up to 4, KV heads up to 17", where, "rows=1 heads=17"):
        assert word in line
    assert report.seen == "0 constraints proved at 1 leaf; 2 more launch the fallback and are exempt"

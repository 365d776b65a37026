"""What a spec says: defaults, ranges, paths, constraints of variants, defaults of parameters, words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    CONFIGS,
    DEVICE,
    KERNEL,
    build,
    device_and_kernel,
    error_of,
    guard,
    imported,
    line_of,
    problem,
    spec,
    write_project,
    write_spec,
)
from treegen_strategies import FALLBACK, FEATURES, examples, near_thresholds, points, trees

from treegen.build import build as build_texts
from treegen.core.expr import Number, parse, parse_comparison
from treegen.core.problem import FORBIDDEN, holds
from treegen.core.spec import Budget, Config, Constraint, DeviceSpec, KernelSpec, Objective, Regime
from treegen.core.tree import Leaf, Split, Tree, choose, map_leaves
from treegen.emit.package import device_module, kernel_package
from treegen.passes.simplify import simplify
from treegen.read.spec import read_spec

SIZE = {"max_depth": 4, "max_leaves": 8}


def kernel_of(folder: Path, **kernel: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(**kernel))).kernels[KERNEL]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, Budget(4, 8, leaf_price=0, config_price=0)),
        ({"config_price": 0.25}, Budget(4, 8, config_price=0.25)),
        ({"leaf_price": 0.0005, "config_price": 1}, Budget(4, 8, leaf_price=0.0005, config_price=1.0)),
    ],
)
def test_prices_are_optional(tmp_path: Path, tree: dict[str, Any], expected: Budget) -> None:
    assert kernel_of(tmp_path, tree={**SIZE, **tree}).budget == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, Objective(weight=Number(1), worst_case=0, untimed=2)),
        ({"weight": 3}, Objective(weight=Number(3))),
        ({"weight": "rows"}, Objective(weight=parse("rows"))),
        ({"worst_case": 100}, Objective(worst_case=100.0)),
        ({"untimed": 1.0001}, Objective(untimed=1.0001)),
        (
            {"weight": "max(1, shared_memory - area)", "worst_case": 0.5, "untimed": 100},
            Objective(parse("max(1, shared_memory - area)"), worst_case=0.5, untimed=100.0),
        ),
    ],
)
def test_each_word_of_the_objective_is_optional(
    tmp_path: Path, words: dict[str, Any], expected: Objective
) -> None:
    assert kernel_of(tmp_path, objective=words).objective == expected


def test_the_ends_of_ranges_are_accepted(tmp_path: Path) -> None:
    content = spec(
        tree={"max_depth": 32, "max_leaves": 1024, "leaf_price": 1, "config_price": 0},
        fallback={"variant": "plain", "block": 2**31 - 1, "warps": 0},
        features=["rows", "columns", "heads", "a" * 64],
        derived={"area": "rows" + " + rows" * 42 + "  "},
    )
    content["devices"][DEVICE]["limits"] = {"memory": 2**62, "less": -(2**62)}
    read = read_spec(write_spec(tmp_path, content))
    assert read.devices[DEVICE].limits["memory"] == -read.devices[DEVICE].limits["less"] == 2**62
    kernel = read.kernels[KERNEL]
    assert kernel.budget == Budget(32, 1024, leaf_price=1, config_price=0)
    assert kernel.fallback.parameters == (("block", 2**31 - 1), ("warps", 0))
    assert kernel.features[-1] == "a" * 64


@pytest.mark.parametrize("divisor", ["3", "max(1, columns)", "max(columns, 1)", "next_power_of_2(columns)"])
def test_a_divisor_that_is_surely_positive_is_accepted(tmp_path: Path, divisor: str) -> None:
    assert "area" in kernel_of(tmp_path, derived={"area": f"rows // {divisor}"}).derived


def test_paths_start_at_the_specs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**spec(), "output": "my-package/trees"}
    path = write_spec(tmp_path / "project", content)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    read = read_spec(path)
    assert read.output == tmp_path / "project/my-package/trees"
    assert read.kernels[KERNEL].tables[DEVICE] == tmp_path / "project/tables/h100"


def test_words_name_features_derived_features_and_parameters(tmp_path: Path) -> None:
    words = {"rows": "batch", "area": "rows x columns", "block": "rows"}
    assert dict(kernel_of(tmp_path, words=words).words) == words


@pytest.mark.parametrize(
    ("text", "regime"),
    [
        ("rows <= 1", Regime("rows", None, 1)),
        ("rows < 1", Regime("rows", None, 0)),
        ("rows >= 1", Regime("rows", 1, None)),
        ("rows > 1", Regime("rows", 2, None)),
    ],
)
def test_a_regime_is_a_half_line_of_a_feature(tmp_path: Path, text: str, regime: Regime) -> None:
    assert dict(kernel_of(tmp_path, regimes={"decode": text}).regimes) == {"decode": regime}


TWO = {"config": {"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}}}
BOUND = {"holds": "block >= heads", "variants": ["split"]}


def test_a_constraint_of_a_variant_forbids_that_variant_only(tmp_path: Path) -> None:
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


def test_a_constraint_that_no_guard_can_express_is_named_with_its_line(tmp_path: Path) -> None:
    constraint = {"holds": "block >= heads * rows", "variants": ["plain"]}
    path = write_project(tmp_path, spec(**TWO, constraints=[constraint]))
    message = error_of(build_texts, read_spec(path))
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


def meets(kernel: KernelSpec, device: DeviceSpec, config: Config, point: dict[str, int]) -> bool:
    values = {**device.limits, **dict(config.parameters), **point}
    return all(holds(c, values) for c in kernel.constraints if c.binds(config))


def with_split_configs(tree: Tree) -> Tree:
    def change(leaf: Leaf) -> Tree:
        odd = dict(leaf.config.parameters)["warps"] % 2
        return Leaf(dataclasses.replace(leaf.config, variant="split" if odd else "plain"))

    return map_leaves(tree, change)


@examples(150)
@given(st.data(), trees(st.integers(-5, 130)).map(with_split_configs), bound_constraints, boxes)
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
        assert config == FALLBACK or (config == choose(tree, point) and meets(kernel, device, config, point))
    point = {name: data.draw(st.integers(*box[name])) for name in FEATURES}
    config = choose(tree, point)
    assert choose(guarded, point) == (config if meets(kernel, device, config, point) else FALLBACK)


def test_a_leaf_of_another_variant_needs_no_guard(tmp_path: Path) -> None:
    device, kernel = device_and_kernel(tmp_path, **TWO, constraints=[BOUND])
    plain, split = (Leaf(Config(v, (("block", 16), ("warps", 2)))) for v in ("plain", "split"))
    guarded = guard(Split("rows", 3, plain, split), kernel, device, {"heads": (1, 40)})
    assert guarded == Split("rows", 3, plain, Split("heads", 16, split, Leaf(kernel.fallback)))


PARAMETERS: dict[str, Any] = {
    "parts": {"letter": "N", "default": 1},
    "block": "B",
    "warps": "W",
    "far": {"letter": "F", "default": 0},
}
WITH_DEFAULTS = {"config": {"variants": ["plain", "split"], "parameters": PARAMETERS}}
SHAPES = [(1, 8, 2), (64, 64, 2)]


def made(variant: str = "plain", parts: int = 1, block: int = 16, warps: int = 2, far: int = 0) -> Config:
    return Config(variant, (("parts", parts), ("block", block), ("warps", warps), ("far", far)))


def test_a_table_without_a_parameter_has_its_default(tmp_path: Path) -> None:
    built = problem(tmp_path / "a", WITH_DEFAULTS, shapes=SHAPES)
    expected = [made(block=c["block"], warps=c["warps"]).parameters for c in CONFIGS]
    assert [c.parameters for c in built.configs] == expected
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    built = problem(tmp_path / "b", WITH_DEFAULTS, shapes=SHAPES, configs=configs)
    assert [(dict(c.parameters)["parts"], dict(c.parameters)["far"]) for c in built.configs] == [
        (1, 0),
        (2, 0),
        (3, 0),
    ]


def test_the_fallback_may_leave_out_what_has_a_default(tmp_path: Path) -> None:
    fallback = {"variant": "plain", "block": 64, "warps": 4}
    for given_, expected in (({}, (1, 0)), ({"far": 1}, (1, 1)), ({"parts": 8}, (8, 0))):
        _, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS, fallback={**fallback, **given_})
        assert kernel.fallback == made(parts=expected[0], block=64, warps=4, far=expected[1])
    without = spec(**WITH_DEFAULTS, fallback={"variant": "plain", "block": 64})
    assert "warps" in error_of(read_spec, write_spec(tmp_path, without))


@pytest.mark.parametrize(
    ("config", "name", "text"),
    [
        (made(), "PLAIN_B16_W2", 'Config("plain", block=16, warps=2)'),
        (made("split", parts=8), "SPLIT_N8_B16_W2", 'Config("split", parts=8, block=16, warps=2)'),
        (made(parts=0, far=1), "PLAIN_N0_B16_W2_F1", 'Config("plain", parts=0, block=16, warps=2, far=1)'),
    ],
)
def test_constants_leave_out_defaults(tmp_path: Path, config: Config, name: str, text: str) -> None:
    device, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS)
    assert f"\n{name} = {text}\n" in device_module(kernel, device.key, device.limits, Leaf(config))


@examples(60)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=2, max_size=2, unique=True))
def test_two_configs_never_share_a_name(
    tmp_path_factory: pytest.TempPathFactory, pair: list[tuple[int, ...]]
) -> None:
    _, kernel = device_and_kernel(tmp_path_factory.mktemp("t"), **WITH_DEFAULTS)
    assert len({kernel.constant_name(made("plain", *values)) for values in pair}) == 2


def test_variants_that_only_look_alike_are_accepted(tmp_path: Path) -> None:
    variants = ["plain", "split", "split_n", "split_x8", "splitn8"]
    assert kernel_of(tmp_path, config={"variants": variants, "parameters": PARAMETERS}).variants == tuple(
        variants
    )


def test_a_module_returns_every_parameter_and_declares_defaults_last(tmp_path: Path) -> None:
    device, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS)
    text = kernel_package(kernel, {device.key: device})["config.py"]
    assert text.endswith(
        "    variant: str\n    block: int\n    warps: int\n    parts: int = 1\n    far: int = 0\n"
    )
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    assert build(write_project(tmp_path, spec(**WITH_DEFAULTS), configs=configs)) == 0
    with imported(tmp_path) as generated:
        modules = generated.scale.MODULES
        found = modules[DEVICE].choose(rows=1, columns=1, heads=2)
        assert found._asdict() == {"variant": "plain", **dict(made().parameters)}
        assert modules[DEVICE].choose(rows=64, columns=64, heads=2).parts == 3
        assert modules["default"].choose(rows=1, columns=1, heads=1).far == 0

"""guard: every constraint of the spec holds at every integer point, or the fallback config is chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import device_and_kernel, error_of, guard, line_of, timed_at_ends, write_project
from treegen_builders import spec as spec_of
from treegen_strategies import CONFIGS, FALLBACK, FEATURES, examples, near_thresholds, points, trees

from treegen.build import build
from treegen.core.expr import parse_comparison
from treegen.core.problem import UNTIMED, Problem, holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, split_features
from treegen.emit.statements import Dialect, statements
from treegen.passes.bounds import UnprovableConstraint, bound_of
from treegen.passes.guards import guard_leaves, strip_guards
from treegen.passes.simplify import simplify
from treegen.read.spec import read_spec

CONSTRAINTS = [
    "block >= heads",
    "heads <= 100",
    "heads < warps * 4",
    "rows * 4 <= block",
    "columns // 2 - 3 > warps",
    "max(columns, 7) * warps < 4096",
    "next_power_of_2(rows) <= block",
    "min(rows, 5) + 1 >= warps - 3",
    "rows + 10 >= 0 - block",
    "0 < columns",
    "block * warps * 100 <= shared_memory",
    "block < 128",
]
Box = dict[str, tuple[int, int]]


def _constraint(text: str) -> Constraint:
    return Constraint(text, *parse_comparison(text))


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceSpec, KernelSpec]:
    device, kernel = device_and_kernel(tmp_path_factory.mktemp("spec"))
    return device, dataclasses.replace(kernel, fallback=FALLBACK)


def _with(kernel: KernelSpec, texts: list[str]) -> KernelSpec:
    return dataclasses.replace(kernel, constraints=tuple(map(_constraint, texts)))


def _meets(kernel: KernelSpec, device: DeviceSpec, config: Config, point: dict[str, int]) -> bool:
    values = {**device.limits, **dict(config.parameters), **point}
    return all(holds(constraint, values) for constraint in kernel.constraints)


constraints = st.lists(st.sampled_from(CONSTRAINTS), max_size=3, unique=True)
boxes = st.fixed_dictionaries(
    {
        name: st.tuples(st.integers(-5, 60), st.integers(-5, 60)).map(lambda b: (min(b), max(b)))
        for name in FEATURES
    }
)


@examples(200)
@given(st.data(), trees(st.integers(-5, 130)), constraints, boxes)
def test_measured_points_keep_a_config_that_meets_the_constraints(
    spec: tuple[DeviceSpec, KernelSpec], data: st.DataObject, tree: Tree, texts: list[str], box: Box
) -> None:
    device, kernel = spec[0], _with(spec[1], texts)
    guarded = guard(tree, kernel, device, box)
    point = {name: data.draw(st.integers(*box[name])) for name in FEATURES}
    config = choose(tree, point)
    assert choose(guarded, point) == (config if _meets(kernel, device, config, point) else FALLBACK)


def test_without_constraints_or_for_the_fallback_nothing_changes(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec
    tree = Split("rows", 3, Leaf(CONFIGS[0]), Leaf(CONFIGS[1]))
    assert guard(tree, _with(kernel, []), device, {}) == tree
    assert guard(Leaf(FALLBACK), _with(kernel, ["block >= heads"]), device, {}) == Leaf(FALLBACK)


def test_one_split_at_the_root_where_measurements_stay_clear_of_it(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    device, kernel = spec[0], _with(spec[1], ["block >= heads"])
    tree = Split("rows", 3, Leaf(CONFIGS[1]), Leaf(CONFIGS[4]))  # blocks 16 and 128
    assert guard(tree, kernel, device, {"heads": (1, 16)}) == Split("heads", 16, tree, Leaf(FALLBACK))


def test_a_split_for_each_leaf_where_measurements_cross_it(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], _with(spec[1], ["block >= heads"])
    small, large = Leaf(CONFIGS[1]), Leaf(CONFIGS[4])
    assert guard(Split("rows", 3, small, large), kernel, device, {"heads": (1, 17)}) == Split(
        "rows", 3, Split("heads", 16, small, Leaf(FALLBACK)), Split("heads", 128, large, Leaf(FALLBACK))
    )


def test_a_config_beyond_the_devices_limit_is_nowhere_chosen(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], _with(spec[1], ["block * 2048 < shared_memory"])
    tree = Split("rows", 3, Leaf(CONFIGS[1]), Leaf(CONFIGS[4]))
    assert guard(tree, kernel, device, {}) == Split("rows", 3, Leaf(CONFIGS[1]), Leaf(FALLBACK))


def test_a_trusted_feature_goes_to_the_fallback_beyond_what_was_measured(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    device, kernel = spec[0], dataclasses.replace(_with(spec[1], []), trusted_as_measured=("heads", "rows"))
    tree = Split("rows", 3, Leaf(CONFIGS[1]), Leaf(CONFIGS[4]))
    guarded = guard(tree, kernel, device, {"heads": (2, 30)})
    for heads in (2, 3, 17, 30):  # whether it was measured or lies between
        assert choose(guarded, {"rows": 1, "heads": heads}) == CONFIGS[1]
    for heads in (-(10**18), 0, 1, 31, 10**18):
        assert choose(guarded, {"rows": 1, "heads": heads}) == FALLBACK


def test_how_both_ends_of_trust_are_printed(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], dataclasses.replace(_with(spec[1], []), trusted_as_measured=("heads",))
    tree = Split("rows", 3, Leaf(CONFIGS[1]), Leaf(CONFIGS[4]))
    guarded = simplify(guard(tree, kernel, device, {"heads": (64, 256)}))
    lines = statements(
        guarded, kernel.derived, Dialect(lambda config: f"return {kernel.constant_name(config)}")
    )
    assert ["    " * line.indent + line.text for line in lines] == [
        "if heads <= 63 or heads > 256:",
        "    return PLAIN_B64_W1",
        "if rows <= 3:",
        "    return PLAIN_B16_W4",
        "return PLAIN_B128_W7",
    ]


def test_a_split_that_trust_decides_is_dropped(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device = spec[0]
    kernel = dataclasses.replace(_with(spec[1], ["heads >= warps"]), trusted_as_measured=("heads",))
    leaf = Leaf(CONFIGS[1])  # 4 warps
    assert simplify(guard(leaf, kernel, device, {"heads": (2, 30)})) == Split(
        "heads",
        1,
        Leaf(FALLBACK),
        Split("heads", 30, Split("heads", 3, Leaf(FALLBACK), leaf), Leaf(FALLBACK)),
    )
    assert simplify(guard(leaf, kernel, device, {"heads": (6, 30)})) == Split(
        "heads", 5, Leaf(FALLBACK), Split("heads", 30, leaf, Leaf(FALLBACK))
    )


def test_a_bound_that_follows_from_raw_features_needs_no_guard(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device = spec[0]
    kernel = dataclasses.replace(_with(spec[1], ["area <= block"]), trusted_as_measured=("rows", "columns"))
    for columns, guarded in ((16, False), (17, True)):  # CONFIGS[4] has a block of 8 * 16
        found = guard(Leaf(CONFIGS[4]), kernel, device, {"rows": (1, 8), "columns": (1, columns)})
        assert ("area" in split_features(found)) is guarded


def test_a_trusted_feature_that_was_not_measured(tmp_path: Path) -> None:
    features = ["rows", "columns", "heads", "depth"]
    path = write_project(tmp_path, spec_of(features=features, trusted_as_measured=["depth"]))
    assert "depth" in error_of(build, read_spec(path))


@examples(300)
@given(st.data(), trees(st.integers(-5, 130)), constraints, boxes, st.sets(st.sampled_from(FEATURES)))
def test_every_point_meets_every_constraint_and_is_trusted_or_gets_the_fallback(
    spec: tuple[DeviceSpec, KernelSpec],
    data: st.DataObject,
    tree: Tree,
    texts: list[str],
    box: Box,
    trust: set[str],
) -> None:
    device = spec[0]
    trust -= {name for name in trust if name in " ".join(texts)}  # both at once: the test below
    for name in data.draw(st.sets(st.sampled_from(FEATURES))) - trust:  # features that the table lacks
        del box[name]
    kernel = dataclasses.replace(_with(spec[1], texts), trusted_as_measured=tuple(sorted(trust)))
    guarded = simplify(guard(tree, kernel, device, box))
    near = st.fixed_dictionaries({n: st.sampled_from(near_thresholds(guarded, n)) for n in FEATURES})
    for point in data.draw(st.lists(st.one_of(near, points), min_size=5, max_size=10)):
        config = choose(guarded, point)
        if config != FALLBACK:
            assert config == choose(tree, point) and _meets(kernel, device, config, point)
            assert all(box[name][0] <= point[name] <= box[name][1] for name in trust)


def test_trust_and_a_constraint_on_one_feature(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device = spec[0]
    kernel = dataclasses.replace(_with(spec[1], ["heads * 4 <= block"]), trusted_as_measured=("heads",))
    guarded = guard(Split("rows", 3, Leaf(CONFIGS[1]), Leaf(CONFIGS[4])), kernel, device, {"heads": (1, 10)})
    assert choose(guarded, {"rows": 9, "heads": 10}) == CONFIGS[4]  # 40 <= 128, and measured
    assert choose(guarded, {"rows": 9, "heads": 11}) == FALLBACK  # 44 <= 128, but not measured
    assert choose(guarded, {"rows": 1, "heads": 4}) == CONFIGS[1]  # 16 <= 16, and measured
    assert choose(guarded, {"rows": 1, "heads": 5}) == FALLBACK  # 20 > 16
    assert choose(guarded, {"rows": 9, "heads": 0}) == FALLBACK  # 0 <= 128, but not measured


BOUNDS = {
    "block >= heads": (None, 64),
    "block > heads": (None, 63),
    "heads >= block": (64, None),
    "heads > block": (65, None),
    "heads * 3 <= block": (None, 21),
    "heads // 3 <= block": (None, 194),
    "next_power_of_2(heads) <= block": (None, 64),
    "heads - 5 < warps": (None, 10),
    "min(heads, 5) < warps": (None, None),
    "warps < 7": (None, None),
}


@pytest.mark.parametrize(("text", "bounds"), BOUNDS.items())
def test_bounds(
    spec: tuple[DeviceSpec, KernelSpec], text: str, bounds: tuple[int | None, int | None]
) -> None:
    config = Config("plain", (("block", 64), ("warps", 6)))
    bound = bound_of(_constraint(text), config, spec[0])
    assert bound is not None and (bound.least, bound.greatest) == bounds


@pytest.mark.parametrize(
    "text", ["warps > 6", "min(heads, 5) > warps", "max(heads, 9) < warps", "heads * 0 > warps"]
)
def test_what_can_never_hold(spec: tuple[DeviceSpec, KernelSpec], text: str) -> None:
    assert bound_of(_constraint(text), Config("plain", (("block", 64), ("warps", 6))), spec[0]) is None


UNPROVABLE = {
    "rows * heads <= block": "ties heads and rows together; name the combination a derived feature",
    "rows + heads <= block": "ties heads and rows together",
    "rows <= heads": "ties heads and rows together",
    "heads * heads <= block": "is not provably monotone in heads",
    "0 - heads <= block": "is not provably monotone",
    "heads <= heads * 2": "is not provably monotone",
}


@pytest.mark.parametrize(("text", "says"), UNPROVABLE.items())
def test_what_no_guard_can_express(spec: tuple[DeviceSpec, KernelSpec], text: str, says: str) -> None:
    with pytest.raises(UnprovableConstraint, match=says.replace("*", ".")):
        bound_of(_constraint(text), CONFIGS[0], spec[0])


def test_a_bound_beyond_62_bits(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    device, kernel = spec[0], _with(spec[1], ["heads // 4 <= 4611686018427387903"])
    guarded = guard(Leaf(CONFIGS[0]), kernel, device, {})
    assert choose(guarded, {"heads": 2**70}) == FALLBACK


def test_a_constraint_that_no_guard_can_express_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_project(tmp_path, spec_of(constraints=["block >= heads * rows"]))
    message = error_of(build, read_spec(path))
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'heads * rows')}: ")
    assert "ties heads and rows together; name the combination a derived feature" in message


# What CONFIGS[0], with 3 warps, meets for any heads, and the others up to 300, 150, 100 and 75 heads.
FEW_WARPS = "heads * (warps - 3) <= 300"
# Of FALLBACK and CONFIGS, in tenths.
COSTS = {"first": [9, 4, 0, 5, 5, 5], "second": [9, 6, 5, 5, 5, 0], "third": [9, 6, 4, 5, 5, 0]}


def _timed(parts: tuple[DeviceSpec, KernelSpec], scenarios: list[tuple[int, str]], text: str) -> Problem:
    """Scenarios, each with its rows and what it costs by COSTS."""
    device, kernel = parts[0], _with(parts[1], [text])
    features = [[rows, 1, 1] for rows, _ in scenarios]
    return dataclasses.replace(
        timed_at_ends(kernel, device, dict.fromkeys(FEATURES, (0, 1))),
        features=np.array(features),
        configs=(FALLBACK, *CONFIGS),
        cost=np.array([COSTS[name] for _, name in scenarios]) * 10**5,
    )


def test_beyond_a_bound_a_leaf_launches_its_next_config(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    made = _timed(spec, [(1, "first"), (2, "first"), (9, "second")], FEW_WARPS)
    free, of_16, of_128 = (Leaf(CONFIGS[i]) for i in (0, 1, 4))
    tree = Split("rows", 5, of_16, of_128)
    guarded = guard_leaves(tree, made)
    assert guarded == Split("rows", 5, Split("heads", 300, of_16, free), Split("heads", 75, of_128, free))
    assert guard_leaves(guarded, made) == guarded
    assert strip_guards(guarded, made) == Split("rows", 5, of_16, of_128, (2, 9))


def test_the_next_config_is_guarded_too_if_it_is_faster_by_a_tenth(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    made = _timed(spec, [(1, "third")], FEW_WARPS)
    free, of_16, of_128 = (Leaf(CONFIGS[i]) for i in (0, 1, 4))
    guarded = guard_leaves(of_128, made)
    assert guarded == Split("heads", 75, of_128, Split("heads", 300, of_16, free))
    assert guard_leaves(guarded, made) == guarded
    assert strip_guards(guarded, made) == of_128


def test_a_config_that_is_mostly_untimed_is_not_the_next_one(spec: tuple[DeviceSpec, KernelSpec]) -> None:
    made = _timed(spec, [(1, "third"), (2, "third"), (3, "third")], FEW_WARPS)
    made.cost[1:, 2] = UNTIMED
    free, of_128 = Leaf(CONFIGS[0]), Leaf(CONFIGS[4])
    assert guard_leaves(of_128, made) == Split("heads", 75, of_128, free)


def test_the_fallback_is_the_next_config_if_no_other_is_allowed_everywhere_or_better(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    wide = Leaf(CONFIGS[4])
    for text, end in (("heads * warps <= 700", 100), (FEW_WARPS, 75)):
        made = _timed(spec, [(1, "first")], text)
        made = dataclasses.replace(made, cost=made.cost * [0, 1, 1, 1, 1, 1])
        assert guard_leaves(wide, made) == Split("heads", end, wide, Leaf(FALLBACK))


def test_one_split_at_the_root_serves_leaves_whose_next_config_is_the_fallback(
    spec: tuple[DeviceSpec, KernelSpec],
) -> None:
    made = _timed(spec, [(1, "first"), (9, "second")], "heads * warps <= 700")
    made = dataclasses.replace(made, cost=made.cost * [0, 1, 1, 1, 1, 1])
    tree = Split("rows", 5, Leaf(CONFIGS[1]), Leaf(CONFIGS[4]))
    assert guard_leaves(tree, made) == Split("heads", 100, tree, Leaf(FALLBACK))


@examples(150)
@given(st.data(), trees(st.integers(-5, 130)), constraints, st.integers(0, 99))
def test_with_next_configs_every_point_meets_every_constraint(
    spec: tuple[DeviceSpec, KernelSpec], data: st.DataObject, tree: Tree, texts: list[str], seed: int
) -> None:
    device, kernel = spec[0], _with(spec[1], texts)
    numbers = np.random.default_rng(seed)
    made = dataclasses.replace(
        timed_at_ends(kernel, device, dict.fromkeys(FEATURES, (0, 1))),
        features=numbers.integers(-5, 130, (12, 3)),
        configs=(FALLBACK, *CONFIGS),
        cost=numbers.integers(0, 10**6, (12, 6)),
    )
    guarded = simplify(guard_leaves(tree, made))
    near = st.fixed_dictionaries({n: st.sampled_from(near_thresholds(guarded, n)) for n in FEATURES})
    for point in data.draw(st.lists(st.one_of(near, points), min_size=5, max_size=10)):
        config = choose(guarded, point)
        assert config == FALLBACK or _meets(kernel, device, config, point)
    for row in made.features.tolist():  # guards at the root exclude no scenario
        point = dict(zip(FEATURES, row, strict=True))
        if _meets(kernel, device, choose(tree, point), point):
            assert choose(guarded, point) == choose(tree, point)

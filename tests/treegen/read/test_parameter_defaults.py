"""Defaults of launch parameters: tables and fallbacks without them, constants' names, declared fields."""

from __future__ import annotations

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
    imported,
    line_of,
    problem,
    spec,
    write_project,
    write_spec,
)
from treegen_strategies import examples

from treegen.core.spec import Config
from treegen.core.tree import Leaf
from treegen.emit.python import device_module, kernel_package
from treegen.read.spec_file import read_spec

PARAMETERS: dict[str, Any] = {
    "parts": {"letter": "N", "default": 1},
    "block": "B",
    "warps": "W",
    "far": {"letter": "F", "default": 0},
}
WITH_DEFAULTS = {"config": {"variants": ["plain", "split"], "parameters": PARAMETERS}}
SHAPES = [(1, 8, 2), (64, 64, 2)]


def _config(variant: str = "plain", parts: int = 1, block: int = 16, warps: int = 2, far: int = 0) -> Config:
    return Config(variant, (("parts", parts), ("block", block), ("warps", warps), ("far", far)))


def test_a_table_without_a_parameter_has_its_default(tmp_path: Path) -> None:
    built = problem(tmp_path, WITH_DEFAULTS, shapes=SHAPES)
    assert [c.parameters for c in built.configs] == [
        _config(block=c["block"], warps=c["warps"]).parameters for c in CONFIGS
    ]


def test_a_table_with_the_parameter_keeps_its_own_values(tmp_path: Path) -> None:
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    built = problem(tmp_path, WITH_DEFAULTS, shapes=SHAPES, configs=configs)
    assert [dict(c.parameters)["parts"] for c in built.configs] == [1, 2, 3]
    assert {dict(c.parameters)["far"] for c in built.configs} == {0}


def test_the_fallback_may_leave_out_what_has_a_default(tmp_path: Path) -> None:
    fallback = {"variant": "plain", "block": 64, "warps": 4}
    for given_, expected in (({}, (1, 0)), ({"far": 1}, (1, 1)), ({"parts": 8}, (8, 0))):
        _, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS, fallback={**fallback, **given_})
        assert kernel.fallback == _config(parts=expected[0], block=64, warps=4, far=expected[1])


NAMES = [
    (_config(), "PLAIN_B16_W2", 'Config("plain", block=16, warps=2)'),
    (_config("split", parts=8), "SPLIT_N8_B16_W2", 'Config("split", parts=8, block=16, warps=2)'),
    (
        _config(parts=2, far=1),
        "PLAIN_N2_B16_W2_F1",
        'Config("plain", parts=2, block=16, warps=2, far=1)',
    ),
    (_config(parts=0), "PLAIN_N0_B16_W2", 'Config("plain", parts=0, block=16, warps=2)'),
]


@pytest.mark.parametrize(("config", "name", "text"), NAMES, ids=[case[1] for case in NAMES])
def test_constants_leave_out_defaults(tmp_path: Path, config: Config, name: str, text: str) -> None:
    device, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS)
    assert f"\n{name} = {text}\n" in device_module(kernel, device.key, device.limits, Leaf(config))


def test_parameters_without_a_default_are_declared_first(tmp_path: Path) -> None:
    device, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS)
    text = kernel_package(kernel, {device.key: device})["config.py"]
    assert text.endswith(
        "    variant: str\n    block: int\n    warps: int\n    parts: int = 1\n    far: int = 0\n"
    )


def test_a_built_module_returns_every_parameter(tmp_path: Path) -> None:
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    assert build(write_project(tmp_path, spec(**WITH_DEFAULTS), configs=configs)) == 0
    with imported(tmp_path) as generated:
        modules = generated.scale.MODULES
        found = modules[DEVICE].choose(rows=1, columns=1, heads=2)
        assert found._asdict() == {"variant": "plain", **dict(_config(parts=1).parameters)}
        assert modules[DEVICE].choose(rows=64, columns=64, heads=2).parts == 3
        assert modules["default"].choose(rows=1, columns=1, heads=1).far == 0


@examples(60)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=2, max_size=2, unique=True))
def test_two_configs_never_share_a_name(
    tmp_path_factory: pytest.TempPathFactory, pair: list[tuple[int, ...]]
) -> None:
    _, kernel = device_and_kernel(tmp_path_factory.mktemp("t"), **WITH_DEFAULTS)
    assert len({kernel.constant_name(_config("plain", *values)) for values in pair}) == 2


def test_what_has_no_default_must_stand_in_the_fallback(tmp_path: Path) -> None:
    content = spec(**WITH_DEFAULTS, fallback={"variant": "plain", "block": 64})
    assert error_of(read_spec, write_spec(tmp_path, content)).endswith("fallback: lacks 'warps'")


CLASHES = [["split", "split_n8"], ["split_n8", "split"], ["a_b2", "a_b2_n1_w4"], ["a", "a_f1_f2"]]


@pytest.mark.parametrize("variants", CLASHES)
def test_a_variant_whose_constants_would_clash(tmp_path: Path, variants: list[str]) -> None:
    content = spec(config={"variants": ["plain", *variants], "parameters": PARAMETERS})
    path = write_spec(tmp_path, content)
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'variants:')}: ")
    assert f"{max(variants, key=len)!r} reads like {min(variants, key=len)} with a parameter" in message


def test_variants_that_only_look_alike_are_fine(tmp_path: Path) -> None:
    variants = ["plain", "split", "split_n", "split_x8", "splitn8"]
    path = write_spec(tmp_path, spec(config={"variants": variants, "parameters": PARAMETERS}))
    assert read_spec(path).kernels[KERNEL].variants == tuple(variants)

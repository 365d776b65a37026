"""Names that the spec allows must not get in the way of those that the printed package uses itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, build, imported, spec, write_project

Content = dict[str, Any]


def _works(folder: Path, content: Content, **table: Any) -> None:
    """The build is refused with status 2, or what it writes can be imported and chooses configs."""
    path = write_project(folder, content, **table)
    status = build(path)
    if status == 2:
        return
    (kernel,) = content["kernels"].values()
    values = dict.fromkeys(kernel["features"], 3)
    variants = kernel["config"]["variants"]
    with imported(folder) as generated:
        package = generated.scale
        assert set(package.MODULES) == {*kernel["tables"], "default"}
        assert set(generated.__all__) == {"scale"}
        for module in package.MODULES.values():
            config = module.choose(**values)
            assert isinstance(config, package.Config) and config.variant in variants
        assert isinstance(package.for_device("NVIDIA H100", "sm_90", "nvidia")(**values), package.Config)
        assert isinstance(package.for_device("Other", "other", "other")(**values), package.Config)


DEVICES = "name arch vendor known module for_device _BY_NAME _BY_ARCH typing collections generated choose"
DEVICES += " Default annotations scale Config Callable MODULES"


@pytest.mark.parametrize("key", DEVICES.split())
def test_a_device_key_that_the_package_uses_itself(tmp_path: Path, key: str) -> None:
    content = spec(tables={key: "tables/h100"})
    content["devices"][key] = content["devices"].pop(DEVICE)
    _works(tmp_path, content)


USED = (
    "Config choose MODULES for_device NamedTuple config default variant annotations PLAIN_B16_W2 plain_b16_w2"
)


@pytest.mark.parametrize("name", USED.split())
def test_a_feature_or_derived_feature_that_the_module_uses_itself(tmp_path: Path, name: str) -> None:
    features = [name, "columns", "heads"]
    derived = {"area": f"{name} * columns"}
    _works(tmp_path / "feature", spec(features=features, derived=derived), features=features)
    _works(tmp_path / "derived", spec(derived={name: "rows * columns"}, split_on=[name]))


@pytest.mark.parametrize("name", ["count", "index", "NamedTuple", "Config", "choose", "_block", "_fields"])
def test_a_parameter_that_means_something_to_a_tuple(tmp_path: Path, name: str) -> None:
    content = spec(
        config={"variants": ["plain"], "parameters": {name: "B"}},
        fallback={"variant": "plain", name: 64},
        constraints=[],
    )
    configs = [{"id": f"c{k}", "variant": "plain", name: 16 << k} for k in range(3)]
    _works(tmp_path, content, configs=configs)


def test_variants_that_differ_in_case_only(tmp_path: Path) -> None:
    content = spec(config={"variants": ["plain", "Plain"], "parameters": {"block": "B", "warps": "W"}})
    configs = [
        {"id": f"c{k}", "variant": v, "block": 64, "warps": 4} for k, v in enumerate(["plain", "Plain"])
    ]
    times: Callable[[tuple[int, int, int]], list[float]] = lambda s: [1.0, 2.0] if s[0] < 10 else [2.0, 1.0]  # noqa: E731
    if build(write_project(tmp_path, content, configs=configs, times=times)) == 2:
        return
    with imported(tmp_path) as generated:
        choose = generated.scale.MODULES[DEVICE].choose
        assert choose(rows=1, columns=8, heads=2).variant == "plain"
        assert choose(rows=64, columns=8, heads=2).variant == "Plain"


def test_kernels_named_as_parts_of_the_standard_library(tmp_path: Path) -> None:
    content = spec()
    sections = content["kernels"].pop("scale")
    for name in ("typing", "collections", "sys", "treegen"):
        content["kernels"][name] = {
            **sections,
            "translate": {"scale": {"variant": "plain", "rename": {"rows": "rows"}}},
        }
    assert build(write_project(tmp_path, content)) == 0
    with imported(tmp_path) as generated:
        for name in content["kernels"]:
            choose = getattr(generated, name).for_device("NVIDIA H100", "sm_90", "nvidia")
            assert choose(rows=1, columns=1, heads=2).block == 16

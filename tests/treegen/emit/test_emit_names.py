"""Names that the spec allows must not get in the way of those that the printed package uses itself."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, imported, spec, write_package, write_project

from treegen.core.errors import InputError

Content = dict[str, Any]


def _works(folder: Path, content: Content, **table: Any) -> None:
    """The spec is refused, or what is written of it can be imported and chooses configs."""
    try:
        write_package(write_project(folder, content, **table))
    except InputError:
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
            assert module.candidates(1, **values) == (config,)
        assert isinstance(package.for_device("NVIDIA H100", "sm_90", "nvidia")(**values), package.Config)
        assert isinstance(package.for_device("Other", "other", "other")(**values), package.Config)


DEVICES = "name arch vendor known module for_device _BY_NAME _BY_ARCH typing collections generated choose"
DEVICES += " Default annotations scale Config Callable MODULES key_for heuristic"


@pytest.mark.parametrize("key", DEVICES.split())
def test_a_device_key_that_the_package_uses_itself(tmp_path: Path, key: str) -> None:
    content = spec(tables={key: "tables/h100"})
    content["devices"][key] = content["devices"].pop(DEVICE)
    _works(tmp_path, content)


USED = """
    Config choose MODULES for_device NamedTuple config default variant annotations PLAIN_B16_W2 plain_b16_w2
    Row fitting all_fitting fits kind step configs for_model model_class lru_cache Callable STEPS steps
    steps_row decode decode_row candidates ranked passed_over at_most found k Rows Step Heuristic heuristic
    step_of_model bound launched by_model fallback regimes constants module
"""


@pytest.mark.parametrize("name", USED.split())
def test_a_feature_or_derived_feature_that_the_module_uses_itself(tmp_path: Path, name: str) -> None:
    features = [name, "columns", "heads"]
    derived = {"area": f"{name} * columns"}
    _works(tmp_path / "feature", spec(features=features, derived=derived), features=features)
    _works(tmp_path / "derived", spec(derived={name: "rows * columns"}, split_on=[name]))
    classes = {"few": f"{name} <= 2", "many": "otherwise"}
    rule = [f"block >= {name}", "block >= rows - 100"]
    features = ["rows", "columns", name]
    content = spec(features=features, constants=[name], classes=classes, constraints=rule)
    _works(tmp_path / "constant", content, features=features)


def _chosen(folder: Path, name: str) -> list[tuple[object, ...]]:
    """What a module chooses whose first feature, of steps, has this name."""
    features = [name, "columns", "heads"]
    content = spec(
        features=features,
        derived={"area": f"{name} * columns"},
        constants=["heads"],
        classes={"few": "heads <= 2", "many": "otherwise"},
        regimes={"small": f"{name} <= 8", "large": "otherwise"},
        constraints=["block >= heads", f"block >= {name} - 100"],
    )
    write_package(write_project(folder, content, features=features))
    points = itertools.product([1, 8, 9, 120, 400], [1, 64, 4096], [1, 2, 3, 33])
    with imported(folder) as generated:
        choose = generated.scale.MODULES[DEVICE].choose
        return [tuple(choose(**dict(zip(features, point, strict=True)))) for point in points]


def test_a_feature_of_steps_may_have_a_name_that_only_functions_of_models_use(tmp_path: Path) -> None:
    usual = _chosen(tmp_path / "usual", "rows")
    assert len(set(usual)) > 1
    for name in ("bound", "launched", "step", "candidates", "configs", "fits", "model_class", "Row"):
        assert _chosen(tmp_path / name, name) == usual, name


@pytest.mark.parametrize("name", [*USED.split(), "Decode", "rows", "heads"])
def test_a_regime_or_class_that_the_module_uses_itself(tmp_path: Path, name: str) -> None:
    regimes = {name: {"when": "rows <= 8"}, "rest": {"when": "otherwise"}}
    _works(tmp_path / "regime", spec(regimes=regimes, constraints=["block >= heads", "block >= rows - 100"]))
    _works(tmp_path / "class", spec(classes={name: "heads <= 2", "rest": "otherwise"}))


@pytest.mark.parametrize("name", ["count", "index", "NamedTuple", "Config", "choose", "_block", "_fields"])
def test_a_parameter_that_means_something_to_a_tuple(tmp_path: Path, name: str) -> None:
    content = spec(
        config={"variants": ["plain"], "parameters": {name: "B"}},
        fallback={"variant": "plain", name: 64},
        constraints=[],
    )
    configs = [{"id": f"c{k}", "variant": "plain", name: 16 << k} for k in range(3)]
    _works(tmp_path, content, configs=configs)

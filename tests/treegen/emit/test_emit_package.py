"""A printed package: names that the spec allows get in no way, and which module serves a GPU."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import CONFIGS, DEVICE, as_h100, imported, spec, write_package, write_project

from treegen.core.errors import InputError

Content = dict[str, Any]
RULES = ["block >= heads", "block >= rows - 100"]


def _device(key: str) -> Content:
    content = spec(tables={key: "tables/h100"})
    content["devices"][key] = content["devices"].pop(DEVICE)
    return content


SPECS: dict[str, Callable[[str], Content]] = {
    "feature": lambda name: spec(features=[name, "columns", "heads"], derived={"area": f"{name} * columns"}),
    "derived": lambda name: spec(derived={name: "rows * columns"}, split_on=[name]),
    "constant": lambda name: spec(
        features=["rows", "columns", name],
        constants=[name],
        classes={"few": f"{name} <= 2", "many": "otherwise"},
        constraints=[f"block >= {name}", RULES[1]],
    ),
    "regime": lambda name: spec(regimes={name: "rows <= 8", "rest": "otherwise"}, constraints=RULES),
    "class": lambda name: spec(classes={name: "heads <= 2", "rest": "otherwise"}),
    "parameter": lambda name: spec(
        config={"variants": ["plain"], "parameters": {name: "B"}},
        fallback={"variant": "plain", name: 64},
        constraints=[],
    ),
    "device": _device,
}
USED = """
    Config choose MODULES for_device NamedTuple config default variant annotations PLAIN_B16_W2 plain_b16_w2
    Row fitting all_fitting fits kind step configs for_model model_class lru_cache Callable STEPS steps
    steps_row decode decode_row candidates ranked passed_over at_most found k Rows Step Heuristic heuristic
    step_of_model bound launched by_model fallback regimes constants module
"""
DEVICES = "name arch vendor known module for_device _BY_NAME _BY_ARCH typing collections generated choose"
DEVICES += " Default annotations scale Config Callable MODULES key_for heuristic"
NAMES = {
    "feature derived constant": USED,
    "regime class": f"{USED} Decode rows heads",
    "parameter": "count index NamedTuple Config choose _block _fields",  # which mean something to a tuple
    "device": DEVICES,
}
PLACES = [(place, n) for places, names in NAMES.items() for place in places.split() for n in names.split()]


@pytest.mark.parametrize(("place", "name"), PLACES)
def test_a_name_that_the_package_uses_itself(tmp_path: Path, place: str, name: str) -> None:
    """The spec is refused, or what is written of it can be imported and chooses configs."""
    content = SPECS[place](name)
    (kernel,) = content["kernels"].values()
    parameter, *_ = kernel["config"]["parameters"]
    configs = [{parameter if key == "block" else key: v for key, v in config.items()} for config in CONFIGS]
    try:
        write_package(write_project(tmp_path, content, features=kernel["features"], configs=configs))
    except InputError:
        return
    values = dict.fromkeys(kernel["features"], 3)
    with imported(tmp_path) as generated:
        package = generated.scale
        assert set(package.MODULES) == {*kernel["tables"], "default"}
        assert set(generated.__all__) == {"scale"}
        for module in package.MODULES.values():
            config = module.choose(**values)
            assert isinstance(config, package.Config) and config.variant in kernel["config"]["variants"]
            assert module.candidates(1, **values) == (config,)
        for gpu in (("NVIDIA H100", "sm_90", "nvidia"), ("Other", "other", "other")):
            assert isinstance(package.for_device(*gpu)(**values), package.Config)


def _chosen(folder: Path, name: str) -> list[tuple[object, ...]]:
    """What a module chooses whose first feature, of steps, has this name."""
    features = [name, "columns", "heads"]
    content = spec(
        features=features,
        derived={"area": f"{name} * columns"},
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


# Which module serves a GPU: same model, else same architecture, else same vendor, else default.

GPUS: dict[str, dict[str, Any]] = {
    "h100": {"names": ["NVIDIA H100"], "arch": "sm_90", "vendor": "nvidia"},
    "h200": {"names": ["NVIDIA H200"], "arch": "sm_90", "vendor": "nvidia"},
    "a100": {"names": ["NVIDIA A100", "NVIDIA Tesla A100"], "vendor": "nvidia"},
    "gfx90a": {"arch": "gfx90a", "vendor": "amd"},
    "nvidia": {"vendor": "nvidia"},
    "unmeasured": {"names": ["NVIDIA L4"], "arch": "sm_89", "vendor": "nvidia"},
    "h100_nvl": {"names": ["NVIDIA H100 NVL"], "vendor": "nvidia"},
}
MEASURED = ["h100", "h200", "a100", "gfx90a", "nvidia"]


def _build(folder: Path, order: list[str], measured: list[str]) -> Path:
    content = spec(constraints=[], tables={key: as_h100() for key in measured})
    content["devices"] = {key: GPUS[key] for key in order}
    return write_package(write_project(folder, content))


@pytest.fixture(scope="module")
def key_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str, str], str]]:
    folder = tmp_path_factory.mktemp("project")
    with imported(_build(folder, [*MEASURED, "unmeasured"], MEASURED)) as generated:
        yield generated.scale.key_for


@pytest.mark.parametrize(("gpu", "key"), [
    ("NVIDIA H100/sm_90/nvidia", "h100"),
    ("NVIDIA H100 80GB HBM3/sm_90/nvidia", "h100"),
    ("NVIDIA H100-SXM5-80GB/?/?", "h100"),
    ("NVIDIA H200/sm_90/nvidia", "h200"),
    ("NVIDIA Tesla A100 40GB/sm_80/nvidia", "a100"),
    ("NVIDIA H1000/sm_123/nvidia", "nvidia"),
    ("NVIDIA H10/sm_123/nvidia", "nvidia"),
    ("nvidia h100/sm_123/nvidia", "nvidia"),
    ("NVIDIA GH200/sm_90/nvidia", "h100"),
    ("AMD Instinct MI250/gfx90a/amd", "gfx90a"),
    ("NVIDIA L4/sm_89/nvidia", "nvidia"),
    ("AMD Instinct MI300X/gfx942/amd", "default"),
    ("Intel Arc/xe/intel", "default"),
    ("//", "default"),
    ("default/default/default", "default"),
])  # fmt: skip
def test_a_gpu_is_served_by_its_model_architecture_or_vendor(
    key_for: Callable[[str, str, str], str], gpu: str, key: str
) -> None:
    assert key_for(*gpu.split("/")) == key


@pytest.mark.parametrize(("order", "measured", "gpus"), [
    ("h100 h200", "h100 h200", "GH200: h100, H100: h100, H200: h200"),
    ("h200 h100", "h100 h200", "GH200: h200, H100: h100, H200: h200"),
    ("h100 h200", "h200 h100", "GH200: h100, H100: h100, H200: h200"),  # tables have no order
    ("h100 h200", "h200", "GH200: h200, H100: h200, H200: h200"),
    ("h100 h200", "h100", "GH200: h100, H100: h100, H200: h100"),
    ("h100 h100_nvl", "h100 h100_nvl", "H100 NVL: h100_nvl, H100 PCIe: h100"),  # the most exact name
    ("h100_nvl h100", "h100 h100_nvl", "H100 NVL: h100_nvl, H100 PCIe: h100"),
])  # fmt: skip
def test_the_first_measured_device_of_an_architecture_serves_its_other_gpus(
    tmp_path: Path, order: str, measured: str, gpus: str
) -> None:
    with imported(_build(tmp_path, order.split(), measured.split())) as generated:
        package = generated.scale
        for name, key in (entry.split(": ") for entry in gpus.split(", ")):
            gpu = (f"NVIDIA {name}", "sm_90", "nvidia")
            assert package.key_for(*gpu) == key
            assert package.for_device(*gpu) is package.MODULES[key].choose

"""Which module serves a GPU: same model, else same architecture, else same vendor, else default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import as_h100, imported, spec, write_package, write_project

DEVICES: dict[str, dict[str, Any]] = {
    "h100": {"names": ["NVIDIA H100"], "arch": "sm_90", "vendor": "nvidia"},
    "h200": {"names": ["NVIDIA H200"], "arch": "sm_90", "vendor": "nvidia"},
    "a100": {"names": ["NVIDIA A100", "NVIDIA Tesla A100"], "vendor": "nvidia"},
    "gfx90a": {"arch": "gfx90a", "vendor": "amd"},
    "nvidia": {"vendor": "nvidia"},
    "unmeasured": {"names": ["NVIDIA L4"], "arch": "sm_89", "vendor": "nvidia"},
}


def _build(folder: Path, devices: dict[str, dict[str, Any]], measured: list[str]) -> Path:
    content = spec(constraints=[], tables={key: as_h100() for key in measured})
    content["devices"] = devices
    return write_package(write_project(folder, content))


@pytest.fixture(scope="module")
def serves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str, str], str]]:
    """A function (name, arch, vendor) -> key of the device whose module serves that GPU."""
    measured = [key for key in DEVICES if key != "unmeasured"]
    with imported(_build(tmp_path_factory.mktemp("project"), DEVICES, measured)) as generated:
        yield generated.scale.key_for


CASES = [
    (("NVIDIA H100", "sm_90", "nvidia"), "h100"),
    (("NVIDIA H100 80GB HBM3", "sm_90", "nvidia"), "h100"),
    (("NVIDIA H100-SXM5-80GB", "?", "?"), "h100"),
    (("NVIDIA H200", "sm_90", "nvidia"), "h200"),
    (("NVIDIA Tesla A100 40GB", "sm_80", "nvidia"), "a100"),
    (("NVIDIA H1000", "sm_123", "nvidia"), "nvidia"),
    (("NVIDIA H10", "sm_123", "nvidia"), "nvidia"),
    (("nvidia h100", "sm_123", "nvidia"), "nvidia"),
    (("NVIDIA GH200", "sm_90", "nvidia"), "h100"),
    (("AMD Instinct MI250", "gfx90a", "amd"), "gfx90a"),
    (("NVIDIA L4", "sm_89", "nvidia"), "nvidia"),
    (("AMD Instinct MI300X", "gfx942", "amd"), "default"),
    (("Intel Arc", "xe", "intel"), "default"),
    (("", "", ""), "default"),
    (("default", "default", "default"), "default"),
]


@pytest.mark.parametrize(
    ("gpu", "key"), CASES, ids=lambda value: "/".join(value) if isinstance(value, tuple) else value
)
def test_fallback_chain(serves: Callable[[str, str, str], str], gpu: tuple[str, str, str], key: str) -> None:
    assert serves(*gpu) == key


@pytest.mark.parametrize("order", [["h100_nvl", "h100"], ["h100", "h100_nvl"]])
def test_the_most_exact_name_wins(tmp_path: Path, order: list[str]) -> None:
    names = {"h100": "NVIDIA H100", "h100_nvl": "NVIDIA H100 NVL"}
    devices = {key: {"names": [names[key]], "vendor": "nvidia"} for key in order}
    with imported(_build(tmp_path, devices, order)) as generated:
        package = generated.scale
        assert package.key_for("NVIDIA H100 NVL", "sm_90", "nvidia") == "h100_nvl"
        assert package.key_for("NVIDIA H100 PCIe", "sm_90", "nvidia") == "h100"


SERVED = [
    (["h100", "h200"], ["h100", "h200"], "h100"),
    (["h200", "h100"], ["h100", "h200"], "h200"),
    (["h100", "h200"], ["h200", "h100"], "h100"),  # the order of tables is nobody's business
    (["h100", "h200"], ["h200"], "h200"),
    (["h100", "h200"], ["h100"], "h100"),
]


@pytest.mark.parametrize(("order", "measured", "key"), SERVED)
def test_the_first_measured_device_of_an_architecture_serves_its_other_gpus(
    tmp_path: Path, order: list[str], measured: list[str], key: str
) -> None:
    with imported(_build(tmp_path, {key: DEVICES[key] for key in order}, measured)) as generated:
        package = generated.scale
        assert package.for_device("NVIDIA GH200", "sm_90", "nvidia") is package.MODULES[key].choose
        for name in order:
            gpu = (DEVICES[name]["names"][0], "sm_90", "nvidia")
            serves = name if name in measured else key
            assert package.key_for(*gpu) == serves
            assert package.for_device(*gpu) is package.MODULES[serves].choose

"""Read and check the spec, `treegen.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.files import try_path
from treegen.core.names import problem_with_output
from treegen.core.spec import DeviceSpec, Spec
from treegen.read.kernel_section import read_kernel
from treegen.read.spec_values import LARGEST, check_names, folder_below
from treegen.read.yaml_file import Fields, load

FORMAT = 1
DEFAULT_PATH = Path("treegen.yaml")


def read_spec(path: Path) -> Spec:
    """The spec in the file at `path`; relative paths in it start at its folder.

    Raises InputError, naming the line, for anything unknown, missing or contradictory.
    """
    root = load(path)
    root.only(["format", "output", "devices", "kernels"])
    if root.get_as("format", int) != FORMAT:
        raise root.error("format", f"must be {FORMAT}, the format that this treegen reads")
    folder = path.resolve().parent
    output = folder_below(root, "output", folder)
    if (problem := problem_with_output(Path(root["output"]))) is not None:
        raise root.error("output", f"{shown(root['output'])} {problem}")
    device_sections, kernel_sections = root.section("devices"), root.section("kernels")
    devices = {key: _device(device_sections, key) for key in device_sections}
    _refuse_shared_names(device_sections, devices)
    if not kernel_sections:
        raise root.error("kernels", "names no kernel")
    kernels = {name: read_kernel(kernel_sections, name, devices, folder) for name in kernel_sections}
    return Spec(path, output, devices, kernels)


def _device(devices: Fields, key: str) -> DeviceSpec:
    check_names(devices, [key])
    fields = devices.section(key)
    fields.only(["names", "arch", "vendor", "limits"])
    limits = fields.section("limits", optional=True)
    check_names(limits, limits, capitals=True)
    return DeviceSpec(
        key,
        names=tuple(fields.names("names", optional=True)),
        arch=fields.get_as("arch", str, None),
        vendor=fields.get_as("vendor", str),
        limits={name: limits.number(name, int, -LARGEST, LARGEST) for name in limits},
    )


def _refuse_shared_names(fields: Fields, devices: Mapping[str, DeviceSpec]) -> None:
    owner: dict[str, str] = {}
    for device in devices.values():
        # A model claims its names; a family claims all other GPUs of its vendor or architecture.
        for claim in device.names or (f"any {device.arch or device.vendor}",):
            if claim in owner:
                what = f"the GPU name {shown(claim)} already belongs to {owner[claim]}"
                raise fields.error(device.key, what)
            owner[claim] = device.key


def find_spec(path: Path | None) -> Path:
    """The spec to use: `path`, or `treegen.yaml` in this folder. Raises InputError if it does not exist."""
    spec_path = path or DEFAULT_PATH
    if not try_path(spec_path, Path.is_file):
        what = "no such spec; name one with --spec FILE or run in the folder that holds treegen.yaml"
        raise InputError(spec_path, what)
    return spec_path

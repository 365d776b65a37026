"""Read and check the spec, `treegen.yaml`: its devices, and `kernelfile` for its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from treegen.core.errors import InputError, shown
from treegen.core.files import looked_at
from treegen.core.spec import DeviceSpec, Spec
from treegen.read.kernel_section import read_kernel
from treegen.read.spec_values import LARGEST, check_name, folder_below
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
        raise root.error("format", f"must be {FORMAT}, the format this treegen reads")
    folder = path.resolve().parent
    output = folder_below(root, "output", folder)
    devices = root.get_as("devices", Fields)
    device_specs = {key: _device(devices, key) for key in devices}
    _refuse_shared_names(devices, device_specs)
    kernels = root.get_as("kernels", Fields)
    if not kernels:
        raise root.error("kernels", "names no kernel")
    kernel_specs = {name: read_kernel(kernels, name, device_specs, folder) for name in kernels}
    return Spec(path, output, MappingProxyType(device_specs), MappingProxyType(kernel_specs))


def _device(devices: Fields, key: str) -> DeviceSpec:
    check_name(devices, key, key)
    fields = devices.get_as(key, Fields)
    fields.only(["names", "arch", "vendor", "limits"])
    names = fields.names("names") if "names" in fields else []
    limits_fields = fields.get_as("limits", Fields, None)
    limits = {}
    for name in limits_fields or ():
        check_name(limits_fields, name, name)
        limits[name] = limits_fields.get_as(name, int)
        if abs(limits[name]) > LARGEST:
            raise limits_fields.error(name, "must be an integer within 62 bits")
    arch = fields.get_as("arch", str, None)
    return DeviceSpec(key, tuple(names), arch, fields.get_as("vendor", str), MappingProxyType(limits))


def _refuse_shared_names(fields: Fields, devices: Mapping[str, DeviceSpec]) -> None:
    owner: dict[str, str] = {}
    for device in devices.values():
        # A model claims its names; a family all other GPUs of its vendor, or those of one architecture.
        for claim in device.names or (f"any {device.arch or device.vendor}",):
            if claim in owner:
                raise fields.error(
                    device.key, f"the GPU name {shown(claim)} already belongs to {owner[claim]}"
                )
            owner[claim] = device.key


def find_spec(path: Path | None) -> Path:
    """The spec to use: `path`, or `treegen.yaml` in this folder."""
    found = path or DEFAULT_PATH
    if not looked_at(found, Path.is_file):
        raise InputError(
            found, "no such spec; name one with --spec FILE or run in the folder that holds treegen.yaml"
        )
    return found

"""Read and check the spec, `treegen.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from treegen.core.errors import InputError, Mistakes, shown
from treegen.core.files import problem_with_output, try_path
from treegen.core.spec import DeviceSpec, KernelSpec, Spec
from treegen.read.kernel import read_kernel
from treegen.read.yaml_file import LARGEST, Fields, check_names, folder_below, load

FORMAT = 1
DEFAULT_PATH = Path("treegen.yaml")
_UNREADABLE = DeviceSpec("", (), None, "", {})


def read_spec(path: Path, text: str | None = None) -> Spec:
    """The spec in the file at `path`; relative paths in it start at its folder.

    text: what the file would hold; None reads it. Raises InputError, naming the line, for anything unknown,
    missing or contradictory: all of it at once.
    """
    root = load(path, text)
    folder = path.resolve().parent
    root.only(["format", "output", "devices", "kernels"])
    mistakes = Mistakes()
    with mistakes.collect():
        if root.get_as("format", int) != FORMAT:
            raise root.error("format", f"must be {FORMAT}, the format that this treegen reads")
    output = folder
    with mistakes.collect():
        output = folder_below(root, "output", folder)
        if (problem := problem_with_output(Path(root["output"]))) is not None:
            raise root.error("output", f"{shown(root['output'])} {problem}")
    devices = {"": _UNREADABLE}
    kernels: dict[str, KernelSpec] = {}
    with mistakes.collect():
        sections = root.section("devices")
        devices = {}
        for key in sections:
            devices[key] = _UNREADABLE
            with mistakes.collect():
                devices[key] = _device(sections, key, mistakes)
        _refuse_shared_names(sections, devices)
    with mistakes.collect():
        sections = root.section("kernels")
        if not sections:
            raise root.error("kernels", "names no kernel")
        # Expressions use the limits of devices, so without these they cannot be judged.
        for name in sections if _UNREADABLE not in devices.values() else ():
            with mistakes.collect():
                kernels[name] = read_kernel(sections, name, devices, folder)
    with root.unknown.collect():  # first the unknown words, which the other mistakes may follow from
        mistakes.refuse()
    root.unknown.refuse()
    return Spec(path, output, devices, kernels)


def _device(devices: Fields, key: str, mistakes: Mistakes) -> DeviceSpec:
    """A device without what cannot be read, which goes into `mistakes`.

    Raises InputError if not even the names of its limits can be read.
    """
    fields = devices.section(key)
    fields.only(["names", "arch", "vendor", "limits"])
    limits = fields.section("limits", optional=True)
    device = replace(_UNREADABLE, key=key, limits=dict.fromkeys(limits, 0))
    with mistakes.collect():
        check_names(devices, [key])
    with mistakes.collect():
        check_names(limits, limits, capitals=True)
        values = {name: limits.number(name, int, -LARGEST, LARGEST) for name in limits}
        device = replace(device, limits=values)
    with mistakes.collect():
        device = replace(device, names=tuple(fields.names("names", optional=True)))
    with mistakes.collect():
        device = replace(device, arch=fields.get_as("arch", str, None))
        if device.arch == "":
            raise fields.error("arch", "is empty; leave it out where it is unknown")
    with mistakes.collect():
        device = replace(device, vendor=fields.get_as("vendor", str))
    return device


def _refuse_shared_names(fields: Fields, devices: Mapping[str, DeviceSpec]) -> None:
    owner: dict[str, str] = {}
    for device in devices.values():
        if not device.vendor:
            continue  # it could not be read
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

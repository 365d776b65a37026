"""Read and check the spec, `treegen.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from treegen.core.errors import InputError, Mistakes, shown
from treegen.core.files import problem_with_output, read_text, try_path
from treegen.core.spec import DeviceSpec, KernelSpec, Spec
from treegen.read.kernel import KernelReader, check_names, folder_below
from treegen.read.words import SPEC
from tuning_table.section import Section
from tuning_table.strict_yaml import parse

DEFAULT_PATH = Path("treegen.yaml")
_MAX_BYTES = 1 << 20  # PyYAML takes up to 20 microseconds per byte


def read_spec(path: Path, text: str | None = None) -> Spec:
    """The spec in the file at `path`; relative paths in it start at its folder.

    text: what the file would hold; None reads it. Raises InputError, naming the line, for anything unknown,
    missing or contradictory: all of it at once.
    """
    mistakes = Mistakes()
    values, lines = parse(path, read_text(path, _MAX_BYTES) if text is None else text)
    root = Section(path, values, lines, SPEC, mistakes)
    folder = path.resolve().parent
    output = folder
    devices: dict[str, DeviceSpec] = {}
    kernels: dict[str, KernelSpec] = {}
    with mistakes.collect():
        root["format"]
    with mistakes.collect():
        folder_below(root, "output", folder)
        output = Path(os.path.normpath(folder / root["output"]))  # by the name that programs import
        if (problem := problem_with_output(Path(root["output"]))) is not None:
            raise root.error("output", f"{shown(root['output'])} {problem}")
    with mistakes.collect():
        for key in root["devices"]:
            with mistakes.collect():
                devices[key] = _device(root["devices"], key)
        _refuse_shared_names(root["devices"], devices)
    with mistakes.collect():
        if not root["kernels"]:
            raise root.error("kernels", "names no kernel")
        limits = {key: [*device["limits"]] for key, device in root["devices"].all().items()}
        for name in root["kernels"]:
            with mistakes.collect():
                kernels[name] = KernelReader(root["kernels"], name, limits, folder).read()
    mistakes.refuse()
    return Spec(path, output, devices, kernels)


def _device(devices: Section, key: str) -> DeviceSpec:
    words, mistakes = devices[key], Mistakes()
    with mistakes.collect():
        check_names(devices, [key])
    with mistakes.collect():
        check_names(words["limits"], words["limits"], capitals=True)
    with mistakes.collect():
        words["limits"].all()
    with mistakes.collect():
        words.all()
    mistakes.refuse()
    return DeviceSpec(key, **{**words.all(), "limits": words["limits"].all()})


def _refuse_shared_names(fields: Section, devices: Mapping[str, DeviceSpec]) -> None:
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
        what = "is a folder" if try_path(spec_path, Path.is_dir) else "no such spec"
        raise InputError(spec_path, f"{what}; name one with --spec FILE or run in the folder of treegen.yaml")
    return spec_path

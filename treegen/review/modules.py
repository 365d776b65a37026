"""The committed modules of a spec, with what they were printed from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from treegen.core.errors import InputError
from treegen.core.files import read_text, try_path
from treegen.core.heuristic import Heuristic, choose
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec
from treegen.write.lock import committed

NO_DEVICE = DeviceSpec(FALLBACK_DEVICE, (), None, "", {})
"""The device of the `default` module, which serves GPUs that the spec does not name."""

ModuleKey = tuple[str, str]
"""A kernel's name and a device's key."""

BITS = 62  # of the longest integer
_INTEGER = re.compile(r"-?[0-9]+(_[0-9]+)*")
_MOST_CHARACTERS = 40  # of an integer within 62 bits, with any grouping


@dataclass(frozen=True)
class Module:
    """A committed module."""

    kernel: KernelSpec
    device: DeviceSpec
    path: Path
    text: str
    heuristic: Heuristic


def expected_modules(spec: Spec, output: Path) -> Iterator[tuple[KernelSpec, DeviceSpec, Path]]:
    """The kernel, device and path of every module that a build of the spec writes below `output`.

    They come in the spec's order; each kernel's `default` module is its last.
    """
    for kernel in spec.kernels.values():
        for key in (*kernel.tables, FALLBACK_DEVICE):
            yield kernel, spec.devices.get(key, NO_DEVICE), output / kernel.name / f"{key}.py"


def read_modules(spec: Spec) -> dict[ModuleKey, Module]:
    """The modules that exist in the spec's output folder.

    Raises InputError for one that no build of this spec wrote.
    """
    return {
        (kernel.name, device.key): read_committed(kernel, device, path)
        for kernel, device, path in expected_modules(spec, spec.output)
        if try_path(path, Path.is_file)
    }


def read_committed(kernel: KernelSpec, device: DeviceSpec, path: Path, *, older: bool = False) -> Module:
    """The module in a file. Raises InputError if a build of this spec prints no such text.

    older: accept what another version of treegen printed, too.
    """
    text = read_text(path)
    return Module(kernel, device, path, text, committed(kernel, device, path, text, older=older))


def choices(
    spec: Spec, kernel_name: str, device: str | None, others: Sequence[str], along: str, values: Sequence[str]
) -> dict[str, dict[str, str | int]]:
    """By value of the feature `along`, the config: its parameters, and its variant where there are several.

    Parameters at their default are among them. Raises InputError.

    device: the key of the module; None for the kernel's first that exists. others: every other feature, as
    `NAME=VALUE`.
    """
    (kernel,), modules = spec.selected(kernel_name), read_modules(spec)
    keys = [key for key in kernel.tables if (kernel_name, key) in modules]
    if device is None and keys:
        device = keys[0]
    if device is None or (kernel_name, device) not in modules:
        what = f"there is no module of {kernel_name} for {device or 'any device'}; run `treegen build`"
        raise InputError(spec.path, what)
    module = modules[kernel_name, device]
    found: dict[str, dict[str, str | int]] = {}
    for value in values:
        given = parse_features([*others, f"{along}={value}"], kernel.values)
        if unknown := [name for name in given if name not in kernel.features]:
            what = f"is no feature of {kernel_name}; it has {', '.join(kernel.features)}"
            raise InputError(unknown[0], what)
        if missing := [name for name in kernel.features if name not in given]:
            raise InputError("choices", f"give {' '.join(f'{name}=...' for name in missing)}")
        config = choose(module.heuristic, kernel, module.device.limits, given).config
        variant: dict[str, str | int] = {"variant": config.variant} if len(kernel.variants) > 1 else {}
        found[value] = {**variant, **dict(config.parameters)}
    return found


def parse_features(
    words: Sequence[str], values: Mapping[str, Mapping[int, str]] = MappingProxyType({})
) -> dict[str, int]:
    """The integers that arguments such as `num_seqs=8` or `max_seq_len=4_096` give to features.

    values: the spec's words for values, so that `dtype=bf16` is understood as well.

    Raises InputError for an argument without `=`, a name given twice, and a value that is not an integer
    within 62 bits. Whether a feature of that name exists is not checked.
    """
    given: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        place = word if len(word) <= 60 else word[:57] + "..."
        if not equals or not name:
            raise InputError(place or "''", "must be feature=value, such as num_seqs=8")
        known = values.get(name, {})
        text = next((str(number) for number, of_value in known.items() if of_value == text), text)
        if not _INTEGER.fullmatch(text):
            kind = f"one of {', '.join(known.values())}" if known else "an integer, such as 4096 or 4_096"
            raise InputError(place, f"the value must be {kind}")
        if len(text) > _MOST_CHARACTERS or int(text).bit_length() > BITS:
            raise InputError(place, f"the value must be an integer within {BITS} bits")
        if name in given:
            raise InputError(place, "the feature is given twice")
        given[name] = int(text)
    return given

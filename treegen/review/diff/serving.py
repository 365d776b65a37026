"""What a GPU is served by on a side that has no module of its own for it."""

from __future__ import annotations

from treegen.core.errors import InputError, shown
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, Spec
from treegen.review.compiled_trees import Module
from treegen.review.diff.snapshots import Key, Snapshot


def server(side: Snapshot, other: Snapshot, key: Key) -> tuple[Module | str | None, str | None]:
    """The module that serves on `side` the GPU of a kernel and device that only `other` has a module for, and
    the key of the device that it is of.

    That is the one of the GPU's model, architecture or vendor, or the default one, as `for_device` of the
    generated package has it; or, where the user named one file, the module in it.
    """
    kernel, device = key
    if side.single:
        ((of, served), module) = next(iter(side.modules.items()))
        if of != kernel:
            raise InputError(
                shown(side.label), f"is a module of {of}, which {kernel} cannot be compared with"
            )
        return module, served
    wanted = other.spec.devices.get(device)
    for served in _chain(side.spec, kernel, wanted) if wanted else ():
        if (kernel, served) in side.modules:
            return side.modules[kernel, served], served
    return None, None


def _chain(spec: Spec, kernel: str, device: DeviceSpec) -> list[str]:
    """Keys of the devices that may serve a GPU, the closest first."""
    tables = spec.kernels[kernel].tables if kernel in spec.kernels else {}
    served = [known for known in spec.devices.values() if known.key in tables]
    names = sorted(((name, d.key) for d in served for name in d.names), key=lambda pair: -len(pair[0]))
    named = [key for known, key in names if any(_is(name, known) for name in device.names)]
    alike = [d.key for d in served if d.arch is not None and d.arch == device.arch]
    family = [d.key for d in served if not d.names and d.arch is None and d.vendor == device.vendor]
    return [*named, *alike[:1], *family[:1], FALLBACK_DEVICE]


def _is(name: str, known: str) -> bool:
    return name == known or name.startswith((f"{known} ", f"{known}-"))

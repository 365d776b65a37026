"""What launched before: a device's own module, or the one that served its GPU until now."""

from __future__ import annotations

from treegen.diff.sides import Key, Side
from treegen.review.state import Module
from treegen.spec import FALLBACK_DEVICE, DeviceSpec, Spec


def server(old: Side, new: Side, key: Key) -> tuple[Module | str | None, str | None]:
    """The old side's module for a kernel and device, and the key of the device it is of, if that is another.

    A GPU without a module of its own is served by its architecture's, its vendor's or the default one, as
    `for_device` of the generated package does it.
    """
    kernel, device = key
    if key in old.modules:
        return old.modules[key], None
    if old.single:
        ((_, other), module) = next(iter(old.modules.items()))
        return module, other
    wanted = new.spec.devices.get(device)
    for other in _chain(old.spec, kernel, wanted) if wanted else ():
        if (kernel, other) in old.modules:
            return old.modules[kernel, other], other
    return None, None


def _chain(spec: Spec, kernel: str, device: DeviceSpec) -> list[str]:
    tables = spec.kernels[kernel].tables if kernel in spec.kernels else {}
    served = [spec.devices[key] for key in tables]
    family = [d.key for d in served if not d.names and d.arch is None and d.vendor == device.vendor]
    named = [d.key for d in served if any(_is(name, known) for name in device.names for known in d.names)]
    alike = [d.key for d in served if d.arch is not None and d.arch == device.arch]
    return [*named, *alike, *family, FALLBACK_DEVICE]


def _is(name: str, known: str) -> bool:
    return name == known or name.startswith((f"{known} ", f"{known}-"))

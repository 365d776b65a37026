"""The text of every file of the output folder except the lock, printed through the templates here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treegen.core.errors import InputError
from treegen.core.files import IN_KERNEL
from treegen.core.heuristic import Heuristic
from treegen.core.spec import FALLBACK_DEVICE, NO_DEVICE, DeviceSpec, KernelSpec, Spec, serving
from treegen.emit.module import device_module
from treegen.emit.templating import rendered
from treegen.emit.triton import Unprintable, in_kernel_module
from tuning_table.names import literal


def kernel_package(kernel: KernelSpec, devices: Mapping[str, DeviceSpec]) -> dict[str, str]:
    """The files of a kernel's package that all devices share, by file name."""
    words, modules = kernel.values, sorted([*kernel.tables, FALLBACK_DEVICE])
    launched = {name: words[name].items() for name in kernel.parameters if name in words}
    by_name, by_arch, by_vendor = serving(kernel, devices)
    files = {
        "config.py": rendered("config.py.j2", kernel=kernel),
        "__init__.py": rendered(
            "kernel.py.j2",
            kernel=kernel,
            words={name: words[name] for name in kernel.features if name in words},
            literals={name: {n: literal(word) for n, word in own} for name, own in launched.items()},
            modules=modules,
            default=FALLBACK_DEVICE,
            by_name=by_name,
            by_arch=by_arch,
            by_vendor=by_vendor,
        ),
    }
    if kernel.in_kernel:
        files[f"{IN_KERNEL}/__init__.py"] = rendered("in_kernel.py.j2", kernel=kernel, modules=modules)
    return files


def emit_package(
    spec: Spec, heuristics: Iterable[tuple[KernelSpec, DeviceSpec, Heuristic]]
) -> dict[str, str]:
    """Every output text by its path below the output folder. Raises InputError."""
    files = {"__init__.py": rendered("generated.py.j2", kernels=sorted(spec.kernels))}
    modules = [(kernel, NO_DEVICE, Heuristic(())) for kernel in spec.kernels.values()]
    for kernel in spec.kernels.values():
        files |= {f"{kernel.name}/{n}": text for n, text in kernel_package(kernel, spec.devices).items()}
    for kernel, device, heuristic in (*modules, *heuristics):
        module = kernel, device.key, device.limits, heuristic
        files[f"{kernel.name}/{device.key}.py"] = device_module(*module)
        if kernel.in_kernel:
            try:
                text = in_kernel_module(*module)
            except Unprintable as error:
                raise InputError(spec.path, f"in_kernel of {kernel.name} on {device.key}: {error}") from None
            files[f"{kernel.name}/{IN_KERNEL}/{device.key}.py"] = text
    return files

"""The text of every file of the output folder except the lock, printed through the templates here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treegen.core.errors import InputError
from treegen.core.files import IN_KERNEL
from treegen.core.heuristic import Heuristic
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec, serving
from treegen.emit.module import device_module
from treegen.emit.templating import environment, literal
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package
from tuning_table.names import literal as literal_of


def kernel_package(kernel: KernelSpec, devices: Mapping[str, DeviceSpec]) -> dict[str, str]:
    """The files of a kernel's package that all devices share, by file name."""
    templates = environment()
    constants, features = (
        ", ".join(f"{n}: int" for n in names) for names in (kernel.constants, kernel.features)
    )
    return {
        "config.py": templates.get_template("config.py.j2").render(
            kernel=kernel, constants=constants, features=features
        ),
        "__init__.py": templates.get_template("kernel.py.j2").render(
            kernel=kernel,
            words={name: kernel.values[name] for name in kernel.features if name in kernel.values},
            literals={n: literal_sources(kernel.values[n]) for n in kernel.parameters if n in kernel.values},
            modules=sorted([*kernel.tables, FALLBACK_DEVICE]),
            default=FALLBACK_DEVICE,
            **serving(kernel, devices)._asdict(),
        ),
    }


def literal_sources(words: Mapping[int, str]) -> dict[int, str]:
    """Python source of what each integer of a parameter stands for at a launch."""
    values = {number: literal_of(word) for number, word in words.items()}
    return {
        n: "..." if v is ... else literal(v) if isinstance(v, str) else repr(v) for n, v in values.items()
    }


def top_package(kernels: Mapping[str, KernelSpec]) -> str:
    """The text of generated/__init__.py."""
    return environment().get_template("generated.py.j2").render(kernels=sorted(kernels))


def emit_package(
    spec: Spec, heuristics: Iterable[tuple[KernelSpec, DeviceSpec, Heuristic]]
) -> dict[str, str]:
    """Every output text by its path below the output folder. Raises InputError."""
    files = {"__init__.py": top_package(spec.kernels)}
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        if kernel.in_kernel:
            modules = sorted([*kernel.tables, FALLBACK_DEVICE])
            files[f"{kernel.name}/{IN_KERNEL}/__init__.py"] = in_kernel_package(kernel, modules)
        files |= _modules(spec, kernel, FALLBACK_DEVICE, {}, Heuristic(()))
    for kernel, device, heuristic in heuristics:
        files |= _modules(spec, kernel, device.key, device.limits, heuristic)
    return files


def _modules(
    spec: Spec, kernel: KernelSpec, device: str, limits: Mapping[str, int], heuristic: Heuristic
) -> dict[str, str]:
    """A device's module, and the one for Triton if the kernel's spec asks for it."""
    files = {f"{kernel.name}/{device}.py": device_module(kernel, device, limits, heuristic)}
    if kernel.in_kernel:
        try:
            text = in_kernel_module(kernel, device, limits, heuristic)
        except Unprintable as error:
            raise InputError(spec.path, f"in_kernel of {kernel.name} on {device}: {error}") from None
        files[f"{kernel.name}/{IN_KERNEL}/{device}.py"] = text
    return files

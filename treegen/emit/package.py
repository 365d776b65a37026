"""The text of every file of the output folder except the lock, printed through the templates here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treegen.core import expr
from treegen.core.errors import InputError
from treegen.core.files import IN_KERNEL
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, Config, DeviceSpec, KernelSpec, Spec, serving
from treegen.core.tree import Leaf, Tree, leaves
from treegen.emit.statements import Dialect, environment, statements
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package


def device_module(
    kernel: KernelSpec, device_key: str, limits: Mapping[str, int], tree: Tree, *, compact: bool = True
) -> str:
    """The module of one device: config constants and `choose`. compact: as in `Dialect`."""
    configs = sorted({leaf.config for leaf, _ in leaves(tree)})
    derived = {name: expr.substitute(known, limits) for name, known in kernel.derived.items()}

    def leaf(config: Config) -> str:
        return f"return {kernel.constant_name(config)}"

    return (
        environment()
        .get_template("device.py.j2")
        .render(
            kernel=kernel,
            device=device_key,
            constants=[(kernel.constant_name(config), config) for config in configs],
            lines=statements(tree, derived, Dialect(leaf, compact=compact)),
        )
    )


def kernel_package(kernel: KernelSpec, devices: Mapping[str, DeviceSpec]) -> dict[str, str]:
    """The files of a kernel's package that all devices share, by file name."""
    templates = environment()
    return {
        "config.py": templates.get_template("config.py.j2").render(kernel=kernel),
        "__init__.py": templates.get_template("kernel.py.j2").render(
            kernel=kernel,
            words={name: kernel.values[name] for name in kernel.features if name in kernel.values},
            modules=sorted([*kernel.tables, FALLBACK_DEVICE]),
            default=FALLBACK_DEVICE,
            **serving(kernel, devices)._asdict(),
        ),
    }


def top_package(kernels: Mapping[str, KernelSpec]) -> str:
    """The text of generated/__init__.py."""
    return environment().get_template("generated.py.j2").render(kernels=sorted(kernels))


def emit_package(spec: Spec, trees: Iterable[tuple[Problem, Tree]]) -> dict[str, str]:
    """Every output text by its path below the output folder. trees: finished ones. Raises InputError."""
    files = {"__init__.py": top_package(spec.kernels)}
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        for name, text in in_kernel_package(kernel).items():
            files[f"{kernel.name}/{IN_KERNEL}/{name}"] = text
        files |= _modules(spec, kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback))
    for problem, tree in trees:
        files |= _modules(spec, problem.kernel, problem.device.key, problem.device.limits, tree)
    return files


def _modules(
    spec: Spec, kernel: KernelSpec, device: str, limits: Mapping[str, int], tree: Tree
) -> dict[str, str]:
    """A device's module, and the one for Triton if the kernel's spec names `in_kernel` parameters."""
    files = {f"{kernel.name}/{device}.py": device_module(kernel, device, limits, tree)}
    if kernel.in_kernel:
        try:
            text = in_kernel_module(kernel, device, limits, tree)
        except Unprintable as error:
            raise InputError(spec.path, f"in_kernel of {kernel.name} on {device}: {error}") from None
        files[f"{kernel.name}/{IN_KERNEL}/{device}.py"] = text
    return files

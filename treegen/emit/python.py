"""Print trees as Python modules, through the templates beside this file."""

from __future__ import annotations

from collections.abc import Mapping

from treegen.core import expr
from treegen.core.spec import FALLBACK_DEVICE, Config, DeviceSpec, KernelSpec, serving
from treegen.core.tree import Tree, leaves
from treegen.emit.environment import environment
from treegen.emit.statements import Dialect, statements


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

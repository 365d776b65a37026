"""The text of every file of the output folder except the lock, printed through the templates here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treegen.core.heuristic import Heuristic
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec, serving
from treegen.emit.module import device_module
from treegen.emit.templating import environment


def kernel_package(kernel: KernelSpec, devices: Mapping[str, DeviceSpec]) -> dict[str, str]:
    """The files of a kernel's package that all devices share, by file name."""
    templates = environment()
    steps = {*kernel.features, *kernel.derived} - set(kernel.fixed)
    asks_steps = any(rule.names & steps for rule in kernel.constraints)
    return {
        "config.py": templates.get_template("config.py.j2").render(kernel=kernel, asks_steps=asks_steps),
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


def emit_package(spec: Spec, heuristics: Iterable[tuple[Problem, Heuristic]]) -> dict[str, str]:
    """Every output text by its path below the output folder."""
    files = {"__init__.py": top_package(spec.kernels)}
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        default = device_module(kernel, FALLBACK_DEVICE, {}, Heuristic(()))
        files[f"{kernel.name}/{FALLBACK_DEVICE}.py"] = default
    for problem, heuristic in heuristics:
        kernel, device = problem.kernel, problem.device
        text = device_module(kernel, device.key, device.limits, heuristic)
        files[f"{kernel.name}/{device.key}.py"] = text
    return files

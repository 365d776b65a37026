"""Check: the spec and the kernel's code have the same features, variants, parameters and defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product

from treegen.core.problem import holds
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.review.check.hook import HookDescription
from treegen.review.check.report import CheckReport
from treegen.review.words import counted


def check_code(
    kernel: KernelSpec, code: HookDescription, devices: Collection[DeviceSpec] = ()
) -> CheckReport:
    """Compare a kernel of the spec, and its constraints on these devices, with the hook's description."""
    parts = {"feature": kernel.features, "variant": kernel.variants, "parameter": kernel.parameters}
    seen = ", ".join(counted(len(names), noun) for noun, names in parts.items())
    differences = [*_differences(kernel, code), *_allowed_though_refused(kernel, code, devices)]
    problems = tuple(f"{kernel.name}: {difference}" for difference in differences)
    return CheckReport(f"{kernel.name}: {seen}", problems)


def _allowed_though_refused(
    kernel: KernelSpec, code: HookDescription, devices: Collection[DeviceSpec]
) -> Iterator[str]:
    """The first launch of each config and device that the code refuses and no constraint excludes."""
    found = set()
    bounded = kernel.only(name for constraint in kernel.constraints for name in constraint.names)
    for launch, device in product(code.refused, devices):
        config = Config(launch.variant, tuple(launch.parameters.items()))
        if device.arch != launch.target or (config, device.key) in found:
            continue
        known = {**dict.fromkeys(kernel.features, 1), **device.limits, **launch.parameters, **launch.features}
        values = bounded.with_derived(known)
        if all(holds(constraint, values) for constraint in kernel.constraints if constraint.binds(config)):
            found.add((config, device.key))
            shape = " ".join(f"{name}={value}" for name, value in launch.features.items())
            refused = f"the code refuses {launch.variant} at {shape}"
            yield f"{refused}, which no constraint excludes on {device.key}"


def _differences(kernel: KernelSpec, code: HookDescription) -> Iterator[str]:
    for feature in kernel.features:
        if feature not in code.features:
            yield f"the code does not pass the feature {feature} to choose()"
    for feature in sorted(code.features.difference(kernel.features)):
        yield f"the code passes {feature} to choose(), which is no feature of the spec"
    for variant in kernel.variants:
        if variant not in code.variants:
            yield f"the code has no variant {variant}; it has {', '.join(sorted(code.variants))}"
    for parameter, declared in kernel.parameters.items():
        if parameter not in code.parameters:
            yield f"the code has no launch parameter {parameter}; it has {', '.join(code.parameters)}"
        elif declared.default is not None and declared.default != code.parameters[parameter]:
            default = code.parameters[parameter]
            theirs = "must be given" if default is None else default
            yield f"{parameter} is {declared.default} by default, but {theirs} in the code"
    for parameter, default in code.parameters.items():
        if default is None and parameter not in kernel.parameters:
            yield f"the code requires {parameter}, which is no parameter of the spec"
    for size in code.sizes:
        if size not in kernel.features and size not in kernel.derived:
            yield f"the code is compiled for {size}, which is no feature of the spec"

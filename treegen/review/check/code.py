"""Check: the spec and the kernel's code have the same features, variants, parameters and defaults."""

from __future__ import annotations

from collections.abc import Iterator

from treegen.core.spec import KernelSpec
from treegen.review.check.hook import HookDescription
from treegen.review.check.report import CheckReport
from treegen.review.printing import counted


def check_code(kernel: KernelSpec, code: HookDescription) -> CheckReport:
    """Compare a kernel of the spec with its hook's description of the code."""
    parts = {"feature": kernel.features, "variant": kernel.variants, "parameter": kernel.parameters}
    seen = ", ".join(counted(len(names), noun) for noun, names in parts.items())
    problems = tuple(f"{kernel.name}: {difference}" for difference in _differences(kernel, code))
    return CheckReport(f"{kernel.name}: {seen}", problems)


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

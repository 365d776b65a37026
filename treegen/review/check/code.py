"""Check: spec and code have the same words."""

from __future__ import annotations

from collections.abc import Iterator

from treegen.core.spec import KernelSpec
from treegen.review.check.hook import Description
from treegen.review.check.report import Report, count


def check_code(kernel: KernelSpec, code: Description) -> Report:
    """A kernel of the spec beside what its code says."""
    words = [count(len(kernel.features), "feature"), count(len(kernel.variants), "variant")]
    words.append(count(len(kernel.parameters), "parameter"))
    return Report(f"{kernel.name}: {', '.join(words)}", tuple(_differences(kernel, code)))


def _differences(kernel: KernelSpec, code: Description) -> Iterator[str]:
    name = kernel.name
    for feature in kernel.features:
        if feature not in code.features:
            yield f"{name}: the code does not pass the feature {feature} to choose()"
    for feature in sorted(code.features.difference(kernel.features)):
        yield f"{name}: the code passes {feature} to choose(), which is no feature of the spec"
    for variant in kernel.variants:
        if variant not in code.variants:
            yield f"{name}: the code has no variant {variant}; it has {', '.join(sorted(code.variants))}"
    for parameter, declared in kernel.parameters.items():
        if parameter not in code.parameters:
            known = ", ".join(code.parameters)
            yield f"{name}: the code has no launch parameter {parameter}; it has {known}"
        elif declared.default is not None and declared.default != code.parameters[parameter]:
            theirs = code.parameters[parameter]
            yield f"{name}: {parameter} is {declared.default} by default, but {_default(theirs)} in the code"
    for parameter, default in code.parameters.items():
        if default is None and parameter not in kernel.parameters:
            yield f"{name}: the code must be given {parameter}, which is no parameter of the spec"
    for size in code.sizes:
        if size not in kernel.features and size not in kernel.derived:
            yield f"{name}: the code is compiled for {size}, which is no feature of the spec"


def _default(value: int | None) -> str:
    return "must be given" if value is None else str(value)

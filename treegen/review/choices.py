"""The launch parameters that a module chooses along one feature."""

from __future__ import annotations

from collections.abc import Sequence

from treegen.core.errors import InputError
from treegen.core.spec import Spec
from treegen.core.tree import choose
from treegen.review.compiled_trees import read_trees
from treegen.review.parsed_features import parse_features


def choices(
    spec: Spec, kernel_name: str, device: str | None, others: Sequence[str], along: str, values: Sequence[str]
) -> dict[str, dict[str, str | int]]:
    """By value of the feature `along`, the config: its parameters, and its variant where there are several.

    Parameters at their default are among them. Raises InputError.

    Args:
        spec: its committed modules choose.
        kernel_name: of the spec.
        device: the key of the module; None for the kernel's first that exists.
        others: every other feature, as `NAME=VALUE`.
        along: a feature.
        values: of that feature.
    """
    (kernel,), modules = spec.selected(kernel_name), read_trees(spec)
    keys = [key for key in kernel.tables if (kernel_name, key) in modules]
    if device is None and keys:
        device = keys[0]
    if device is None or (kernel_name, device) not in modules:
        what = f"there is no module of {kernel_name} for {device or 'any device'}; run `treegen build`"
        raise InputError(spec.path, what)
    module = modules[kernel_name, device]
    found: dict[str, dict[str, str | int]] = {}
    for value in values:
        given = parse_features([*others, f"{along}={value}"], kernel.values)
        for name in given:
            if name not in kernel.features:
                what = f"is no feature of {kernel_name}; it has {', '.join(kernel.features)}"
                raise InputError(name, what)
        if missing := [name for name in kernel.features if name not in given]:
            raise InputError("choices", f"give {' '.join(f'{name}=...' for name in missing)}")
        config = choose(module.tree, kernel.with_derived({**module.device.limits, **given}))
        variant: dict[str, str | int] = {"variant": config.variant} if len(kernel.variants) > 1 else {}
        found[value] = {**variant, **dict(config.parameters)}
    return found

"""Does a generated module choose a valid config for any integers at all?"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from treegen.core import expr
from treegen.core.problem import holds
from treegen.core.spec import DeviceSpec, KernelSpec

EXTREMES = (0, 1, -1, 10**18, -(10**18), 2**62, 2**63, -(2**63) - 1, 2**200, -(2**200))


def features(module: ModuleType) -> tuple[str, ...]:
    """The keyword arguments of `choose`."""
    code = module.choose.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_kwonlyargcount]
    return names


def corners(module: ModuleType) -> dict[str, list[int]]:
    """By feature, and by what is computed from features: its thresholds and the integers beside them."""
    found: dict[str, set[int]] = {name: set() for name in features(module)}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        match node:
            case ast.Compare(ast.Name(name), _, [bound]):
                threshold = ast.literal_eval(bound)
                found.setdefault(name, set()).update((threshold - 1, threshold, threshold + 1))
    return {name: sorted(values) for name, values in found.items()}


def points(module: ModuleType, random: Random, count: int) -> Iterator[dict[str, int]]:
    """All features alike at each extreme, then random mixes of corners, extremes and ordinary values."""
    names, near = features(module), corners(module)
    anything = sorted({value for values in near.values() for value in values})
    yield from (dict.fromkeys(names, value) for value in EXTREMES)
    for _ in range(count):
        yield {name: _value(random, near[name], anything) for name in names}


def _value(random: Random, near: list[int], anything: list[int]) -> int:
    match random.randrange(6):
        case 0 | 1 if near:
            return random.choice(near)
        case 2 if anything:
            return random.choice(anything)
        case 3:
            return random.choice(EXTREMES)
        case 4:
            return random.choice((1, -1)) * random.getrandbits(random.randrange(1, 80))
    return random.randrange(300)


def wrong_choice(
    module: ModuleType, kernel: KernelSpec, device: DeviceSpec, point: Mapping[str, int]
) -> str | None:
    """What is wrong with the choice at a point: an error, no config of the module, a broken constraint."""
    try:
        chosen = module.choose(**point)
    except Exception as error:
        return f"{type(error).__name__} at {dict(point)}"
    if not any(chosen is constant for constant in vars(module).values()):
        return f"{chosen!r} at {dict(point)} is no constant of {module.__name__}"
    broken = _broken(chosen, kernel, device, point)
    return broken and f"{chosen!r} at {dict(point)} breaks {broken}"


def _broken(chosen: Any, kernel: KernelSpec, device: DeviceSpec, point: Mapping[str, int]) -> str | None:
    """The text of a constraint that the choice breaks."""
    values = {**device.limits, **point}
    for name, expression in kernel.derived.items():
        if expr.names(expression) <= set(values):
            values[name] = expr.evaluate(expression, values)
    parameters: dict[str, Any] = chosen._asdict()
    variant = parameters.pop("variant")
    if (variant, parameters) == (kernel.fallback.variant, dict(kernel.fallback.parameters)):
        return None
    known = {**values, **parameters}
    for constraint in kernel.constraints:
        binds = constraint.variants is None or variant in constraint.variants
        if binds and not holds(constraint, known):
            return constraint.text
    return None

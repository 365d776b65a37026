"""Print trees as Triton device functions, through a template beside this file, without importing Triton.

A function assigns its result and returns it at its end: Triton does not inline one that returns earlier.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from treegen.core import expr
from treegen.core.interval import Interval, enclosure, feature_intervals
from treegen.core.spec import FALLBACK_DEVICE, Config, KernelSpec
from treegen.core.tree import Region, Tree, split_features
from treegen.emit.statements import Dialect, Line, environment, statements
from treegen.passes.simplify import project

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_MOST_INDENTS = 90  # Python accepts 100 levels of indentation


class Unprintable(ValueError):
    """A tree that cannot be printed as a Triton function; the message says why."""


@dataclass(frozen=True)
class _Function:
    name: str
    arguments: tuple[str, ...]  # the features that the function reads, in the spec's order
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)


def in_kernel_package(kernel: KernelSpec) -> dict[str, str]:
    """The files of a kernel's subpackage that all devices share, by file name."""
    if not kernel.in_kernel:
        return {}
    template = environment().get_template("in_kernel.py.j2")
    modules = sorted([*kernel.tables, FALLBACK_DEVICE])
    return {"__init__.py": template.render(kernel=kernel, modules=modules)}


def in_kernel_module(kernel: KernelSpec, device_key: str, limits: Mapping[str, int], tree: Tree) -> str:
    """The module of one device: a function for each parameter that the kernel's Triton code chooses.

    tree: the device's tree, whose configs have all parameters. Raises Unprintable.
    """
    derived = _derived(kernel, limits)
    functions = [_function(kernel, derived, tree, parameter) for parameter in kernel.in_kernel]
    text = "\n".join(function.text for function in functions)
    return (
        environment()
        .get_template("in_kernel_device.py.j2")
        .render(
            kernel=kernel,
            device=device_key,
            functions=functions,
            uses_tl=any(function.arguments for function in functions),
            floors="_floor_division(" in text,
            powers="_next_power_of_2(" in text,
        )
    )


def _derived(kernel: KernelSpec, limits: Mapping[str, int]) -> dict[str, expr.Expression]:
    """The derived features with limits inserted; those that become constants are inserted into the others.

    No constant expression may remain, as Triton computes these in 32 bits.
    """
    derived: dict[str, expr.Expression] = {}
    known = dict(limits)
    for name, expression in kernel.derived.items():
        derived[name] = filled = expr.substitute(expression, known)
        if isinstance(filled, expr.Number):
            known[name] = filled.value
    return derived


def _function(
    kernel: KernelSpec, derived: Mapping[str, expr.Expression], tree: Tree, parameter: str
) -> _Function:
    projected = project(tree, parameter, _region(kernel))
    needed = expr.with_parts(split_features(projected), derived)
    for name in needed:
        if name in derived and any(not _LEAST <= n <= _GREATEST for n in _numbers(derived[name])):
            raise Unprintable(f"{parameter} depends on {name}, which holds a number beyond 64 bits")
    # Raw features are 0 or more. Where the device states no limit, a derived feature has no range.
    box = feature_intervals(dict.fromkeys(kernel.features, (0, None)), replace(kernel, derived=derived), {})

    def leaf(config: Config) -> str:
        return f"{parameter} = {dict(config.parameters)[parameter]}"

    lines = statements(projected, derived, Dialect(leaf, lambda part: _text(part, box), returns=False))
    if max(line.indent for line in lines) > _MOST_INDENTS:
        raise Unprintable(f"the tree of {parameter} nests splits more than {_MOST_INDENTS} deep")
    return _Function(parameter, tuple(name for name in kernel.features if name in needed), tuple(lines))


def _region(kernel: KernelSpec) -> Region:
    """The int64 values that each feature may have; a split that this range decides is not printed."""
    raw: Region = dict.fromkeys(kernel.features, (0, _GREATEST))
    return {**raw, **dict.fromkeys(kernel.derived, (_LEAST, _GREATEST))}


def _numbers(expression: expr.Expression) -> Iterator[int]:
    match expression:
        case expr.Number(value):
            yield value
        case expr.Call(_, arguments):
            for argument in arguments:
                yield from _numbers(argument)


def _text(expression: expr.Expression, box: Mapping[str, Interval]) -> str:
    """Triton source of an expression of int64 names. box: the range of each name."""

    def own_form(call: expr.Call, outer: int, text: expr.Printer) -> str | None:
        match call:
            case expr.Call("//", (dividend, divisor)) if enclosure(dividend, box)[0] < 0:
                return f"_floor_division({text(dividend, 0)}, {text(divisor, 0)})"
            case expr.Call("%", (dividend, divisor)) if enclosure(dividend, box)[0] < 0:
                whole = expr.Call("*", (expr.Call("//", (dividend, divisor)), divisor))
                return text(expr.Call("-", (dividend, whole)), outer)
            case expr.Call("next_power_of_2", (argument,)):
                return f"_next_power_of_2({text(argument, 0)})"
            case expr.Call("min" | "max" as function, arguments):
                # Numbers last: Triton would compute with two of them in 32 bits.
                ordered = sorted(arguments, key=lambda argument: isinstance(argument, expr.Number))
                texts = [text(argument, 0) for argument in ordered]
                return functools.reduce(lambda one, other: f"tl.{function}imum({one}, {other})", texts)
        return None

    return expr.printed(expression, own_form)

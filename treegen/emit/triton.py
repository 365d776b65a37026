"""Print the trees of a heuristic as a Triton device function, without importing Triton.

The function gives the number of the row, counted over all regimes. `configs(...)` of the Python module says
what a row launches on a model. The function assigns its result and returns it at its end, as Triton does not
inline one that returns earlier.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from treegen.core import expr
from treegen.core.heuristic import Heuristic, RegimeRows, Split, StepTree, split_features
from treegen.core.spec import KernelSpec, Regime
from treegen.emit.templating import assignments, indented, rendered

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


class Unprintable(ValueError):
    """A heuristic that cannot be printed as a Triton function; the message says why."""


def in_kernel_module(kernel: KernelSpec, device: str, limits: Mapping[str, int], heuristic: Heuristic) -> str:
    """The module of one device, with the function `row`. Raises Unprintable."""
    derived: dict[str, expr.Expression] = {}
    known = dict(limits)
    for name, expression in kernel.derived.items():
        derived[name] = filled = expr.substitute(expression, known)
        if isinstance(filled, expr.Number):  # Triton computes a constant expression in 32 bits
            known[name] = filled.value
    regimes = list(zip(heuristic.regimes, kernel.regimes, strict=False))  # none for the fallback alone
    asked = {name for regime in heuristic.regimes for name in split_features(regime.tree)}
    asked |= {name for _, spec in regimes if spec.when is not None for name in expr.names(spec.when)}
    parts = expr.with_parts(asked, derived)
    arguments = [name for name in kernel.features if name in parts]
    lines = list(_lines(regimes, derived, set(), 0)) if regimes else ["row = 0"]
    template = "in_kernel_device.py.j2"
    return rendered(template, kernel=kernel, device=device, arguments=arguments, lines=lines)


Derived = Mapping[str, expr.Expression]


def _lines(
    regimes: Sequence[tuple[RegimeRows, Regime]], derived: Derived, known: set[str], first: int
) -> Iterator[str]:
    """What finds the row of a step of one of these regimes, of which the last has no condition.

    known: the derived features that are computed already; it grows. first: the number of the first row.
    """

    def assigned(names: Iterable[str], known: set[str]) -> Iterator[str]:
        return assignments(names, derived, known, lambda name: _text(derived[name], derived))

    (regime, spec), *others = regimes
    if spec.when is None:
        yield from assigned(split_features(regime.tree), known)
        yield from _statements(regime.tree, first)
        return
    yield from assigned(expr.names(spec.when), known)
    yield f"if {_text(spec.when, derived)}:"
    yield from indented(assigned(split_features(regime.tree), set(known)))
    yield from indented(_statements(regime.tree, first))
    yield "else:"
    yield from indented(_lines(others, derived, known, first + len(regime.rows)))


def _statements(tree: StepTree, first: int) -> Iterator[str]:
    if not isinstance(tree, Split):
        yield f"row = {first + tree}"
        return
    yield f"if {tree.feature} <= {expr.number(tree.threshold)}:"
    yield from indented(_statements(tree.low, first))
    yield "else:"
    yield from indented(_statements(tree.high, first))


def _text(expression: expr.Expression, derived: Derived) -> str:
    """Triton source of an expression of int64 names and conditions; raw features are 0 or more."""

    def own_form(call: expr.Call, outer: int, text: expr.Printer) -> str | None:
        match call:
            case expr.Call("cast", (condition,)):
                return f"tl.cast({text(condition, 0)}, tl.int64)"
            case expr.Call("//", (dividend, divisor)) if not _nonnegative(dividend, derived):
                return f"_floor_division({text(dividend, 0)}, {text(divisor, 0)})"
            case expr.Call("%", (dividend, divisor)) if not _nonnegative(dividend, derived):
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

    numbers = [part.value for part in expr.parts_of(expression) if isinstance(part, expr.Number)]
    if not all(_LEAST <= value <= _GREATEST for value in numbers):
        raise Unprintable(f"{expr.to_text(expression)} holds a number beyond 64 bits")
    return expr.printed(_with_casts(expression, derived), own_form)


def _with_casts(expression: expr.Expression, derived: Derived) -> expr.Expression:
    """The expression with conditions cast where they count as numbers: Triton refuses to divide one bit."""
    if not isinstance(expression, expr.Call):
        return expression
    parts = [_with_casts(part, derived) for part in expression.arguments]
    if expression.function not in ("and", "or", "not"):
        parts = [expr.Call("cast", (part,)) if _is_condition(part, derived) else part for part in parts]
    return expr.Call(expression.function, tuple(parts))


def _is_condition(expression: expr.Expression, derived: Derived) -> bool:
    while isinstance(expression, expr.Name) and expression.name in derived:
        expression = derived[expression.name]
    return expr.is_condition(expression)


def _nonnegative(expression: expr.Expression, derived: Derived) -> bool:
    """Return whether an expression is surely 0 or more where all raw features are."""
    match expression:
        case expr.Number(value):
            return value >= 0
        case expr.Name(name):
            return name not in derived or _nonnegative(derived[name], derived)
        case expr.Call("max", arguments):
            return any(_nonnegative(argument, derived) for argument in arguments)
        case expr.Call("-", _):
            return False
        case expr.Call("%" | "next_power_of_2" | "cast", _):
            return True
        case expr.Call(_, arguments):
            return all(_nonnegative(argument, derived) for argument in arguments)
    raise AssertionError(expression)

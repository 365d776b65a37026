"""Integer expressions of the spec: derived features, weights, constraints, classes and regimes.

The language has integers, names, + - * // %, min, max, next_power_of_2, ceil_div, comparisons, and, or, not.
A condition counts as 1 where it holds and as 0 elsewhere. The language is total: no integers make an
expression fail. Divisors must be surely positive, such as a positive literal or `max(1, ...)`.
`ceil_div(a, b)` is read as `(a + b - 1) // b`. Python parses the text of an expression but never runs it.
"""

from __future__ import annotations

import ast
import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treegen.core.errors import shown

MAX_TEXT = 300  # characters of an expression
MAX_DEGREE = 64  # of a derived feature, see `degree`


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Call:
    function: str  # one of + - * // % min max next_power_of_2 <= >= < > == != and or not
    arguments: tuple[Expression, ...]


Expression = Number | Name | Call

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPARISONS = {ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">", ast.Eq: "==", ast.NotEq: "!="}
_LOGIC = {ast.And: "and", ast.Or: "or"}
_FUNCTIONS = {"min": (2, None), "max": (2, None), "next_power_of_2": (1, 1), "ceil_div": (2, 2)}
PRECEDENCE = {"or": 1, "and": 2, "not": 3, **dict.fromkeys(_COMPARISONS.values(), 4)}
PRECEDENCE |= {"+": 5, "-": 5, "*": 6, "//": 6, "%": 6}
"""The precedence of each symbol, as in Python."""


class ExpressionError(ValueError):
    """The text is not an expression of this language. The message says which part."""


def parse(text: str, known: Mapping[str, bool] | None = None) -> Expression:
    """The expression that `text` spells. Raises ExpressionError.

    known: the names that it may hold, and whether each stands for a condition: and, or, not join no others.
    None allows any name.
    """
    expression = _convert(_python(text))
    if known is not None:
        for name in sorted(names(expression) - known.keys()):
            raise ExpressionError(f"uses the unknown name {shown(name)}; known here: {', '.join(known)}")
        for name in sorted(truths(expression)):
            if not known[name]:
                raise ExpressionError(f"joins {shown(name)}, which is no condition of `derived`")
    return expression


def parse_condition(text: str, known: Mapping[str, bool] | None = None) -> Call:
    """The comparison, or comparisons joined by and, or, not, that `text` spells. Raises as `parse`."""
    condition = parse(text, known)
    if not is_condition(condition):
        raise ExpressionError("must be a comparison (<=, >=, <, >, ==, !=), or several with and, or, not")
    assert isinstance(condition, Call)
    return condition


def truths(expression: Expression) -> frozenset[str]:
    """The names that the expression joins by and, or, not: each must stand for a condition."""
    joined = [p for p in parts_of(expression) if isinstance(p, Call) and p.function in ("and", "or", "not")]
    return frozenset(part.name for call in joined for part in call.arguments if isinstance(part, Name))


def is_condition(expression: Expression) -> bool:
    """Return whether the expression's values are only 0 and 1, as it is a comparison or made of such."""
    match expression:
        case Call("and" | "or" | "not", arguments):
            # `parse` joins no numbers, but `substitute` puts them in the place of names.
            return all(isinstance(part, Name | Number) or is_condition(part) for part in arguments)
        case Call(function, _):
            return function in _COMPARISONS.values()
    return False


def _python(text: str) -> ast.expr:
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"is longer than {MAX_TEXT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of `1if x else y` on standard error
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError("is not an expression") from None


def _convert(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(value)):
            if value.bit_length() > 62:
                raise ExpressionError("holds a number beyond 62 bits")
            return Number(value)
        case ast.Name(id=name):
            return Name(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _convert(operand)
            match inner:
                case Number(value):
                    return Number(-value)
                case Call("-", (Number(0), negated)):
                    return negated
            return Call("-", (Number(0), inner))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            call = Call(_BINARY[type(op)], (_convert(left), _convert(right)))
            if call.function in ("//", "%"):
                _refuse_zero(call.arguments[1], call.function)
            return call
        case ast.Compare(left=left, ops=[symbol], comparators=[right]) if type(symbol) in _COMPARISONS:
            return Call(_COMPARISONS[type(symbol)], (_convert(left), _convert(right)))
        case ast.BoolOp(op=op, values=joined):
            return Call(_LOGIC[type(op)], tuple(_truth(part) for part in joined))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Call("not", (_truth(operand),))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            least, most = _FUNCTIONS[function]
            if not least <= len(arguments) <= (most or len(arguments)):
                raise ExpressionError(f"gives {function} {len(arguments)} arguments")
            parts = tuple(_convert(argument) for argument in arguments)
            return _ceil_div(*parts) if function == "ceil_div" else Call(function, parts)
    raise ExpressionError(
        f"holds {ast.unparse(node)!r}; only integers, names, + - * // %, min, max, next_power_of_2, "
        "ceil_div, single comparisons, and, or, not are known"
    )


def _truth(node: ast.expr) -> Expression:
    """A part of and, or, not: a condition, or the name of one."""
    part = _convert(node)
    if isinstance(part, Name) or is_condition(part):
        return part
    raise ExpressionError(f"joins {ast.unparse(node)!r}, which is no comparison")


def _refuse_zero(divisor: Expression, symbol: str) -> None:
    if not _surely_positive(divisor):
        raise ExpressionError(f"divides by something that may be 0: write {symbol} max(1, ...)")


def _ceil_div(dividend: Expression, divisor: Expression) -> Expression:
    """The least integer that is no less than a quotient."""
    _refuse_zero(divisor, "ceil_div by")
    if isinstance(divisor, Number):
        return Call("//", (Call("+", (dividend, Number(divisor.value - 1))), divisor))
    return Call("//", (Call("-", (Call("+", (dividend, divisor)), Number(1))), divisor))


def _surely_positive(expression: Expression) -> bool:
    match expression:
        case Number(value):
            return value > 0
        case Call("max", arguments):
            return any(_surely_positive(argument) for argument in arguments)
        case Call("min" | "+" | "*", arguments):
            return all(_surely_positive(argument) for argument in arguments)
        case Call("next_power_of_2", _):
            return True
    return False


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The expression and all expressions inside it."""
    yield expression
    for argument in expression.arguments if isinstance(expression, Call) else ():
        yield from parts_of(argument)


def names(expression: Expression) -> frozenset[str]:
    """The names that occur in the expression."""
    return frozenset(part.name for part in parts_of(expression) if isinstance(part, Name))


def with_parts(wanted: Iterable[str], derived: Mapping[str, Expression]) -> dict[str, None]:
    """The wanted names and all that they are computed from, each before its own parts."""
    parts: dict[str, None] = {}
    pending = [*wanted][::-1]
    while pending:
        name = pending.pop()
        if name not in parts:
            parts[name] = None
            pending += sorted(names(derived[name])) if name in derived else []
    return parts


def degree(expression: Expression, degrees: Mapping[str, int]) -> int:
    """The greatest number of names and literals that the expression multiplies with each other.

    From integers of b bits, its value has little more than `degree` times b bits. `degrees` holds the degrees
    of derived features; all other names have degree 1.
    """
    match expression:
        case Name(name):
            return degrees.get(name, 1)
        case Call("*", arguments):
            return sum(degree(argument, degrees) for argument in arguments)
        case Call("//", (part, _)) | Call("%", (_, part)):
            return degree(part, degrees)
        case Call(function, _) if function in _COMPARISONS.values() or function in ("and", "or", "not"):
            return 1
        case Call(_, arguments):
            return max(degree(argument, degrees) for argument in arguments)
    return 1


def next_power_of_2(value: int) -> int:
    """The least power of 2, from 1 on, that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


_FUNCTIONS_OF_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
    "and": lambda one, other: bool(one and other),
    "or": lambda one, other: bool(one or other),
}
# Of integers, or of arrays of Python's integers.
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul},
    **{symbol: np.frompyfunc(function, 2, 1) for symbol, function in _FUNCTIONS_OF_TWO.items()},
    **{"not": np.frompyfunc(operator.not_, 1, 1), "next_power_of_2": np.frompyfunc(next_power_of_2, 1, 1)},
}


def evaluate(expression: Expression, values: Mapping[str, int]) -> int:
    """The expression's value, given the values of its names."""
    return int(evaluate_columns(expression, values))


def evaluate_columns(expression: Expression, values: Mapping[str, Any]) -> Any:
    """The expression's value for each of many shapes; conditions are true or false.

    values: by name an integer, or an array of Python's integers (dtype object), which never overflow.
    """
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Name):
        return values[expression.name]
    operation = _OPERATIONS[expression.function]
    parts = [evaluate_columns(argument, values) for argument in expression.arguments]
    return operation(*parts) if len(parts) == 1 else functools.reduce(operation, parts)


def substitute(expression: Expression, values: Mapping[str, int]) -> Expression:
    """The expression with numbers for the names in `values`; parts without names become numbers, too."""
    match expression:
        case Name(name) if name in values:
            return Number(values[name])
        case Call(function, arguments):
            call = Call(function, tuple(substitute(argument, values) for argument in arguments))
            return call if names(call) else Number(evaluate(call, {}))
    return expression


def simplified(expression: Expression) -> Expression:
    """The expression without products with 0 or 1, and with the numbers of sums added up."""
    if not isinstance(expression, Call):
        return expression
    call = Call(expression.function, tuple(simplified(part) for part in expression.arguments))
    match call:
        case Call("*", (Number(0), _) | (_, Number(0))):
            return Number(0)
        case Call("*", (Number(1), part) | (part, Number(1))) | Call("+" | "-", (part, Number(0))):
            return part
        case Call("+", (Number(0), part)):
            return part
        case Call("+" | "-" as outer, (Call("+" | "-" as inner, (part, Number(one))), Number(other))):
            total = (one if inner == "+" else -one) + (other if outer == "+" else -other)
            return simplified(Call("+" if total >= 0 else "-", (part, Number(abs(total)))))
    return call if names(call) else Number(evaluate(call, {}))


def replace(expression: Expression, parts: Mapping[Expression, Expression]) -> Expression:
    """The expression with some of its parts replaced, the largest first."""
    if expression in parts:
        return parts[expression]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(replace(inner, parts) for inner in expression.arguments))
    return expression


def to_text(expression: Expression) -> str:
    """The expression in this language, with `ceil_div` for what it stands for and no needless parentheses."""

    def own_form(call: Call, outer: int, text: Printer) -> str | None:
        match call:
            case Call("//", (Call("+", (dividend, Number(less))), Number(divisor))) if (
                less == divisor - 1 > 0
            ):
                return f"ceil_div({text(dividend, 0)}, {divisor})"
            case Call(
                "//", (Call("-", (Call("+", (dividend, one)), Number(1))), Name() | Call() as other)
            ) if one == other:
                return f"ceil_div({text(dividend, 0)}, {text(other, 0)})"
        return None

    return printed(expression, own_form)


def to_python(expression: Expression, outer: int = 0, *, fast: bool = False) -> str:
    """Python text that computes the expression.

    fast: the max or min of two names or literals is a conditional, as a call takes as long as a small tree.
    """

    def own_form(call: Call, outer: int, text: Printer) -> str | None:
        match call:
            case Call("max" | "min", (Number() | Name() as first, Number() | Name() as second)) if fast:
                one, other, sign = text(first, 0), text(second, 0), ">" if call.function == "max" else "<"
                return f"({other} if {other} {sign} {one} else {one})"
            case Call("next_power_of_2", (only,)):
                return f"(1 << max(0, {text(only, 5)} - 1).bit_length())"
        return None

    return printed(expression, own_form, outer)


Printer = Callable[[Expression, int], str]
"""Prints a part of an expression, given the precedence of what surrounds it; 0 where nothing does."""


def printed(
    expression: Expression, own_form: Callable[[Call, int, Printer], str | None], outer: int = 0
) -> str:
    """The expression with calls as `own_form` prints them, which gives None for all usual ones."""

    def text(inner: Expression, outer: int) -> str:
        return printed(inner, own_form, outer)

    match expression:
        case Number(value):
            return f"({value})" if value < 0 and outer else number(value)
        case Name(name):
            return name
        case Call(function, arguments):
            if (own := own_form(expression, outer, text)) is not None:
                return own
            if function not in PRECEDENCE:
                return f"{function}({', '.join(text(argument, 0) for argument in arguments)})"
            precedence = PRECEDENCE[function]
            if function == "not":
                infix = f"not {text(arguments[0], precedence)}"
            elif function in _COMPARISONS.values():  # Python would chain comparisons
                infix = f" {function} ".join(text(argument, precedence + 1) for argument in arguments)
            else:
                first, *others = arguments
                rest = (text(other, precedence + 1) for other in others)
                infix = f" {function} ".join([text(first, precedence), *rest])
            return f"({infix})" if precedence < outer else infix
    raise AssertionError(expression)


def number(value: int) -> str:
    """A readable integer literal: digits in groups of three from 10,000 on."""
    return f"{value:_}" if abs(value) >= 10_000 else str(value)

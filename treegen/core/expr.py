"""Integer expressions of the spec: derived features and the two sides of a constraint.

A small language that is total (no expression can fail for any integers) and never evaluated by Python
itself: integers, names, + - * //, min, max and next_power_of_2. The divisor of // must be a positive
literal or max(positive literal, ...), so that nothing divides by zero.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_TEXT = 300
MAX_DEGREE = 64


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Call:
    """`function` is one of + - * // min max next_power_of_2."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Number | Name | Call

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
_FUNCTIONS = {"min": 2, "max": 2, "next_power_of_2": 1}
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2}
"""How closely each symbol binds."""


class ExpressionError(ValueError):
    """The text is no expression of this language; the message says which part."""


def parse(text: str) -> Expression:
    """Read an expression. Raises ExpressionError."""
    return _convert(_python(text, text))


def parse_comparison(text: str) -> tuple[Expression, str, Expression]:
    """Read `left OP right` with OP one of <= >= < >. Raises ExpressionError."""
    node = _python(text, text)
    operators = {ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">"}
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or type(node.ops[0]) not in operators:
        raise ExpressionError("must be one comparison with <=, >=, < or >")
    return _convert(node.left), operators[type(node.ops[0])], _convert(node.comparators[0])


def _python(text: str, shown: str) -> ast.expr:
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
            if call.function == "//" and not _surely_positive(call.arguments[1]):
                raise ExpressionError("divides by something that may be 0: write // max(1, ...)")
            return call
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            least = _FUNCTIONS[function]
            if len(arguments) < least or (least == 1 and len(arguments) > 1):
                raise ExpressionError(f"gives {function} {len(arguments)} arguments")
            return Call(function, tuple(_convert(argument) for argument in arguments))
    raise ExpressionError(
        f"holds {ast.unparse(node)!r}; only integers, names, + - * //, min, max and next_power_of_2 are known"
    )


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


def names(expression: Expression) -> frozenset[str]:
    match expression:
        case Name(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*(names(argument) for argument in arguments))
    return frozenset()


def degree(expression: Expression, known: Mapping[str, int]) -> int:
    """How many numbers the value multiplies at most: of integers with b bits it has little more than `degree`
    times b bits. known: the degrees of derived features; all other names have degree 1."""
    match expression:
        case Name(name):
            return known.get(name, 1)
        case Call("*", arguments):
            return sum(degree(argument, known) for argument in arguments)
        case Call("//", (numerator, _)):
            return degree(numerator, known)
        case Call(_, arguments):
            return max(degree(argument, known) for argument in arguments)
    return 1


def evaluate(expression: Expression, values: Mapping[str, int]) -> int:
    match expression:
        case Number(value):
            return value
        case Name(name):
            return values[name]
        case Call(function, arguments):
            numbers = [evaluate(argument, values) for argument in arguments]
            match function:
                case "+":
                    return numbers[0] + numbers[1]
                case "-":
                    return numbers[0] - numbers[1]
                case "*":
                    return numbers[0] * numbers[1]
                case "//":
                    return numbers[0] // numbers[1]
                case "min":
                    return min(numbers)
                case "max":
                    return max(numbers)
                case "next_power_of_2":
                    return 1 << max(0, numbers[0] - 1).bit_length()
    raise AssertionError(expression)


def substitute(expression: Expression, values: Mapping[str, int]) -> Expression:
    """Put known numbers in for names."""
    match expression:
        case Name(name) if name in values:
            return Number(values[name])
        case Call(function, arguments):
            call = Call(function, tuple(substitute(argument, values) for argument in arguments))
            return call if names(call) else Number(evaluate(call, {}))
    return expression


def replaced(expression: Expression, parts: Mapping[Expression, Expression]) -> Expression:
    """The expression with some of its parts replaced, the largest first."""
    if expression in parts:
        return parts[expression]
    if isinstance(expression, Call):
        return Call(expression.function, tuple(replaced(inner, parts) for inner in expression.arguments))
    return expression


def never_falls(expression: Expression) -> bool:
    """Whether the value surely never falls while one of its names grows (a sufficient rule)."""
    match expression:
        case Number() | Name():
            return True
        case Call("+" | "min" | "max" | "next_power_of_2", arguments):
            return all(never_falls(argument) for argument in arguments)
        case Call("-", (left, Number())):
            return never_falls(left)
        case Call("//", (left, Number(value))):
            return value > 0 and never_falls(left)
        case Call("*", (Number(value), other) | (other, Number(value))):
            return value >= 0 and never_falls(other)
    return False


def to_text(expression: Expression, outer: int = 0) -> str:
    """The expression in this language, with no more parentheses than it needs."""
    return _printed(expression, outer, lambda function, arguments: _called(function, arguments, to_text))


def to_python(expression: Expression, outer: int = 0) -> str:
    """Python text that computes the expression; max and min of two numbers without a call, which costs as
    much as all questions of a small tree."""

    def call(function: str, arguments: tuple[Expression, ...]) -> str:
        match function, arguments:
            case "max" | "min", (Number() | Name() as first, Number() | Name() as second):
                one, other = to_python(first), to_python(second)
                return f"({other} if {other} {'>' if function == 'max' else '<'} {one} else {one})"
        return _called_in_python(function, arguments, to_python)

    return _printed(expression, outer, call)


def to_python_in_calls(expression: Expression, outer: int = 0) -> str:
    """As `to_python`, but as it once was: modules printed then are still read."""
    return _printed(
        expression,
        outer,
        lambda function, arguments: _called_in_python(function, arguments, to_python_in_calls),
    )


def _printed(expression: Expression, outer: int, call: Callable[[str, tuple[Expression, ...]], str]) -> str:
    match expression:
        case Number(value):
            return f"({value})" if value < 0 and outer else number(value)
        case Name(name):
            return name
        case Call(function, (left, right)) if function in PRECEDENCE:
            own = PRECEDENCE[function]
            text = f"{_printed(left, own, call)} {function} {_printed(right, own + 1, call)}"
            return f"({text})" if own < outer else text
        case Call(function, arguments):
            return call(function, arguments)
    raise AssertionError(expression)


def _called(function: str, arguments: tuple[Expression, ...], printer: Callable[[Expression], str]) -> str:
    return f"{function}({', '.join(map(printer, arguments))})"


def _called_in_python(
    function: str, arguments: tuple[Expression, ...], printer: Callable[[Expression, int], str]
) -> str:
    match function, arguments:
        case "next_power_of_2", (argument,):
            return f"(1 << max(0, {printer(argument, 1)} - 1).bit_length())"
    return _called(function, arguments, lambda argument: printer(argument, 0))


def number(value: int) -> str:
    """An integer literal that can be read: digits in groups from 10,000 on."""
    return f"{value:_}" if abs(value) >= 10_000 else str(value)

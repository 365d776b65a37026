"""What the modules that Triton kernels import may hold, as a grammar of Python's syntax trees.

Questions, integer arithmetic and nothing that is called but cast, minimum and maximum of `triton.language`
and two functions whose text is known.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from verification.hostile.syntax import Forbidden, body_of, check_characters, forbidden, plain_names, texts

_HELPERS = ast.parse(
    """
@triton.jit
def _floor_division(dividend, divisor):
    return dividend // divisor - tl.where(dividend % divisor < 0, 1, 0)
@triton.jit
def _next_power_of_2(value):
    value = tl.maximum(value - 1, 0)
    value |= value >> 1
    value |= value >> 2
    value |= value >> 4
    value |= value >> 8
    value |= value >> 16
    value |= value >> 32
    return value + 1
"""
).body
_NAMES = {helper.name for helper in _HELPERS if isinstance(helper, ast.FunctionDef)}


def check_package(files: Mapping[str, str]) -> None:
    """Raise Forbidden unless modules, by path in the output folder, hold only what is allowed."""
    for name, text in files.items():
        check_characters(name, text)
        body = body_of(name, text)
        try:
            if name.endswith("/__init__.py"):
                _package(body)
            else:
                _device(body)
        except Forbidden as error:
            raise Forbidden(f"{name}: {error}") from None


def _package(body: Sequence[ast.stmt]) -> None:
    match body:
        case [
            ast.ImportFrom(None, names, 1),
            ast.Assign([ast.Name("__all__")], ast.List([ast.Constant("MODULES")])),
            ast.Assign([ast.Name("MODULES")], ast.Dict(keys, modules)),
        ]:
            devices = plain_names(names)
            if texts(keys) == devices == [ast.unparse(module) for module in modules]:
                return
    raise forbidden(body)


def _device(body: Sequence[ast.stmt]) -> None:
    match body:
        case [
            ast.Import([ast.alias("triton", None)]),
            ast.Import([ast.alias("triton.language", "tl")]),
            *functions,
        ]:
            for function in functions:
                _function(function)
        case _:
            raise forbidden(body)


def _function(node: ast.stmt) -> None:
    if any(ast.dump(node) == ast.dump(helper) for helper in _HELPERS):
        return
    match node:
        case ast.FunctionDef(
            name,
            ast.arguments([], features, None, [], [], None, []),
            [ast.Expr(ast.Constant(str())), *statements, ast.Return(ast.Name(returned))],
            [ast.Attribute(ast.Name("triton"), "jit")],
            None,
        ) if name == returned and name not in _NAMES:
            known = {feature.arg for feature in features if feature.annotation is None}
            if len(known) != len(features):
                raise forbidden(node)
            _block(statements, known, name)
        case _:
            raise forbidden(node)


def _block(statements: Sequence[ast.stmt], known: set[str], answer: str) -> None:
    """Every way through the block ends with a number for the answer, and nothing comes after it."""
    known = set(known)
    for place, node in enumerate(statements, 1):
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(value), None) if name == answer:
                if type(value) is int and place == len(statements):
                    return
                raise forbidden(node)
            case ast.Assign([ast.Name(name)], value, None) if name.islower() and name != answer:
                _arithmetic(value, known)
                known.add(name)
            case ast.If(ast.Compare(ast.Name(name), [ast.LtE() | ast.Gt()], [bound]), body, orelse) if (
                name in known and place == len(statements)
            ):
                _arithmetic(bound, set())
                _block(body, known, answer)
                _block(orelse, known, answer)
                return
            case _:
                raise forbidden(node)
    raise forbidden(statements)


def _arithmetic(node: ast.expr, known: set[str]) -> None:
    match node:
        case ast.Constant(value) if type(value) is int:
            parts: list[ast.expr] = []
        case ast.Name(name) if name in known:
            parts = []
        case ast.UnaryOp(ast.USub(), inner):
            parts = [inner]
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right):
            parts = [left, right]
        case ast.Call(ast.Name(name), parts, []) if name in _NAMES:
            pass
        case ast.Call(ast.Attribute(ast.Name("tl"), "minimum" | "maximum"), parts, []):
            pass
        case ast.Call(
            ast.Attribute(ast.Name("tl"), "cast"), [inner, ast.Attribute(ast.Name("tl"), "int64")], []
        ):
            parts = [inner]
        case _:
            raise forbidden(node)
    for part in parts:
        _arithmetic(part, known)

"""What a generated package may hold, as a grammar of Python's syntax trees: all else is code from outside.

Constants, questions, integer arithmetic and nothing that is called but Config, min, max and bit_length.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

_FOR_DEVICE = """
def for_device(name: str, arch: str, vendor: str) -> _Choose:
    for known, choose in _BY_NAME.items():
        if name == known or name.startswith((known + " ", known + "-")):
            return choose
    return _BY_ARCH.get(arch) or _BY_VENDOR.get(vendor) or default.choose
"""


class Forbidden(Exception):
    """A part of a module that has no place there."""


def check_package(files: Mapping[str, str]) -> None:
    """Raise Forbidden unless the modules of an output folder, by relative path, hold only what is allowed."""
    kernels = sorted(name.removesuffix("/config.py") for name in files if name.endswith("/config.py"))
    for name, text in files.items():
        *folder, file = name.split("/")
        check_characters(name, text)
        body = body_of(name, text)
        try:
            if not folder:
                _top(body, kernels)
            elif file == "config.py":
                _config(body)
            elif file == "__init__.py":
                _kernel(body)
            else:
                _device(body)
        except Forbidden as error:
            raise Forbidden(f"{name}: {error}") from None


def check_characters(name: str, text: str) -> None:
    """Raise Forbidden unless the text is printable ASCII."""
    if not text.isascii() or not all(line.isprintable() for line in text.split("\n")):
        raise Forbidden(f"{name}: characters that are not printable ASCII")


def body_of(name: str, text: str) -> list[ast.stmt]:
    """The statements after the docstring."""
    match ast.parse(text).body:
        case [ast.Expr(ast.Constant(str())), *body]:
            return body
    raise Forbidden(f"{name}: no docstring")


def forbidden(node: ast.AST | Sequence[ast.AST]) -> Forbidden:
    """The error for a part of a module."""
    nodes = [node] if isinstance(node, ast.AST) else list(node)
    return Forbidden(" ... ".join(ast.unparse(part)[:80] for part in nodes) or "something is missing")


def _top(body: Sequence[ast.stmt], kernels: Sequence[str]) -> None:
    match body:
        case [ast.ImportFrom(None, names, 1), ast.Assign([ast.Name("__all__")], ast.List(listed))]:
            if plain_names(names) == texts(listed) == list(kernels):
                return
    raise forbidden(body)


def _config(body: Sequence[ast.stmt]) -> None:
    match body:
        case [
            ast.ImportFrom("typing", [ast.alias("NamedTuple", None)], 0),
            ast.ClassDef("Config", [ast.Name("NamedTuple")], [], fields, []),
        ]:
            for field in fields:
                match field:
                    case ast.AnnAssign(ast.Name(), ast.Name("str" | "int"), None, 1):
                        pass
                    case ast.AnnAssign(ast.Name(), ast.Name("int"), ast.Constant(int()), 1):
                        pass
                    case _:
                        raise forbidden(field)
        case _:
            raise forbidden(body)


def _kernel(body: Sequence[ast.stmt]) -> None:
    match body:
        case [
            ast.ImportFrom("collections.abc", [ast.alias("Callable", None)], 0),
            ast.ImportFrom(None, names, 1),
            ast.ImportFrom("config", [ast.alias("Config", None)], 1),
            ast.Assign([ast.Name("__all__")], ast.List(public)),
            ast.Assign([ast.Name("MODULES")], ast.Dict(keys, modules)),
            ast.Assign([ast.Name("_Choose")], alias),
            ast.AnnAssign(ast.Name("_BY_NAME"), _, ast.Dict(by_name, named), 1),
            ast.AnnAssign(ast.Name("_BY_ARCH"), _, ast.Dict(by_arch, same_arch), 1),
            ast.AnnAssign(ast.Name("_BY_VENDOR"), _, ast.Dict(by_vendor, same_vendor), 1),
            ast.FunctionDef("for_device") as function,
        ]:
            devices = plain_names(names)
            served = [*named, *same_arch, *same_vendor]
            texts([*by_name, *by_arch, *by_vendor])
            if (
                texts(public) != ["MODULES", "Config", "for_device"]
                or texts(keys) != devices
                or [ast.unparse(module) for module in modules] != devices
                or ast.unparse(alias) != "Callable[..., Config]"
                or not {ast.unparse(node) for node in served} <= {f"{key}.choose" for key in devices}
                or ast.dump(_bare(function)) != ast.dump(_bare(ast.parse(_FOR_DEVICE).body[0]))
            ):
                raise forbidden(body)
        case _:
            raise forbidden(body)


def _bare(function: ast.stmt) -> ast.stmt:
    """A function without its docstring."""
    match function:
        case ast.FunctionDef(body=[ast.Expr(ast.Constant(str())), *rest]):
            function.body = rest
    return function


def _device(body: Sequence[ast.stmt]) -> None:
    match body:
        case [
            ast.ImportFrom("config", [ast.alias("Config", None)], 1),
            *constants,
            ast.FunctionDef("choose", arguments, statements, [], ast.Name("Config")) as function,
        ]:
            names = {_constant(node) for node in constants}
            match arguments:
                case ast.arguments([], [], None, features, defaults, None, []):
                    pass
                case _:
                    raise forbidden(function)
            if any(defaults) or any(not _is_int(feature.annotation) for feature in features):
                raise forbidden(function)
            _block(statements, {feature.arg for feature in features}, names)
        case _:
            raise forbidden(body)


def _is_int(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "int"


def _constant(node: ast.stmt) -> str:
    match node:
        case ast.Assign(
            [ast.Name(name)], ast.Call(ast.Name("Config"), [ast.Constant(str())], keywords), None
        ) if name.isupper():
            for keyword in keywords:
                if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
                    raise forbidden(node)
                if type(keyword.value.value) is not int:
                    raise forbidden(node)
            return name
    raise forbidden(node)


def _block(statements: Sequence[ast.stmt], known: set[str], constants: set[str]) -> None:
    known = set(known)
    for node in statements:
        match node:
            case ast.Return(ast.Name(name)) if name in constants:
                pass
            case ast.Assign([ast.Name(name)], value, None) if name.islower():
                _arithmetic(value, known)
                known.add(name)
            case ast.If(ast.Compare(ast.Name(name), [ast.LtE() | ast.Gt()], [bound]), body, orelse) if (
                name in known
            ):
                _arithmetic(bound, set())
                _block(body, known, constants)
                _block(orelse, known, constants)
            case _:
                raise forbidden(node)


def _arithmetic(node: ast.expr, known: set[str]) -> None:
    match node:
        case ast.Constant(value) if type(value) is int:
            return
        case ast.Name(name) if name in known:
            return
        case ast.UnaryOp(ast.USub(), inner):
            parts = [inner]
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right):
            parts = [left, right]
        case ast.BinOp(
            ast.Constant(1), ast.LShift(), ast.Call(ast.Attribute(_, "bit_length"), [], []) as right
        ):
            parts = [right]
        case ast.Call(ast.Name("min" | "max"), parts, []):
            pass
        case ast.IfExp(ast.Compare(left, [ast.Lt() | ast.Gt()], [right]), first, second):
            parts = [left, right, first, second]
        case ast.Call(ast.Attribute(inner, "bit_length"), [], []):
            parts = [inner]
        case _:
            raise forbidden(node)
    for part in parts:
        _arithmetic(part, known)


def plain_names(names: Sequence[ast.alias]) -> list[str]:
    """The names that an import brings, none of them under another name."""
    if any(alias.asname is not None for alias in names):
        raise forbidden(names)
    return [alias.name for alias in names]


def texts(nodes: Sequence[ast.expr | None]) -> list[str]:
    """The texts that nodes are."""
    found = []
    for node in nodes:
        match node:
            case ast.Constant(str(text)):
                found.append(text)
            case _:
                raise Forbidden("something else in place of a text")
    return found

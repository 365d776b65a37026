"""The source on which times and checks depend, wherever it is defined, and a hash of it."""

import ast
import functools
import hashlib
import linecache
import sys
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# Their versions are in run.yaml, or nothing in them changes what a launch does.
_NOT_FOLLOWED = {"torch", "triton", "numpy", "triton_tune", "tuning_table", *sys.stdlib_module_names}

_OF_LAYOUT = {"__doc__", "__firstlineno__", "__static_attributes__"}  # of classes; the last two from 3.13 on


def source_hash(roots: Iterable[Any]) -> str:
    """Twelve hex digits of a hash of functions, of all that they call, and of the constants that they read.

    A kernel counts as its function. Decorators, docstrings, comments and layout do not count, nor do the
    standard library, torch and Triton, nor what is imported within a function.
    """
    digest = hashlib.sha256()
    queue = deque(roots)
    seen: dict[int, Any] = {}  # keeps the objects, so that no id is used twice
    while queue:
        value = queue.popleft()
        if id(value) not in seen or isinstance(value, int | str):
            seen[id(value)] = value
            text, children = _open(value)
            digest.update(f"{text}\0".encode() if text else b"")
            queue.extend(children)
    return digest.hexdigest()[:12]


def _open(value: Any) -> tuple[str, Iterable[Any]]:
    """A text that stands for a value alone, and the values that it refers to, in an order of their own."""
    if isinstance(value, int | float | complex | str | bytes | None) or type(value).__name__ == "dtype":
        return repr(value), ()
    if isinstance(value, set | frozenset):
        return "set", sorted(value, key=repr)
    if isinstance(value, tuple | list):
        return "list", value
    if isinstance(value, dict):
        return "dict", [part for item in value.items() for part in item]
    if isinstance(value, functools.partial):
        return "partial", (value.func, value.args, value.keywords)
    if isinstance(value, MethodType | staticmethod | classmethod):
        return "method", (value.__func__,)
    if isinstance(value, FunctionType):
        return (_source(value.__code__), _read_by(value)) if _followed(value) else (value.__qualname__, ())
    if isinstance(value, type):
        members = [member for name, member in vars(value).items() if name not in _OF_LAYOUT]
        return value.__qualname__, [*value.__bases__, *members] if _followed(value) else ()
    if isinstance(value, ModuleType):
        return value.__name__, ()
    if type(value).__name__ == "constexpr":
        return "constant", (value.value,)
    around = getattr(value, "fn", None) or getattr(value, "__wrapped__", None)
    if around is None:
        state = vars(value).items() if _followed(type(value)) and hasattr(value, "__dict__") else ()
        return str(getattr(value, "__qualname__", "object")), (type(value), dict(state))
    functions = getattr(value, "values", None)  # of @triton.heuristics
    return "", (around,) if functions is None else (functions, around)


def _read_by(function: FunctionType) -> list[Any]:
    """Defaults, closure and globals of a function; of the modules that it names, the attributes it names."""
    read = [function.__defaults__, function.__kwdefaults__, getattr(function, "__wrapped__", None)]
    for cell in function.__closure__ or ():
        try:
            read.append(cell.cell_contents)
        except ValueError:  # nothing was assigned yet
            continue
    names = sorted(_names(function.__code__))
    for name in names:
        if name in function.__globals__ and not name.startswith("__"):
            value = function.__globals__[name]
            read += [name, value]
            if isinstance(value, ModuleType) and _followed(value):
                read += [getattr(value, each) for each in names if hasattr(value, each)]
    return read


def _followed(value: Any) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return str(module).partition(".")[0] not in _NOT_FOLLOWED


def _names(code: CodeType) -> set[str]:
    """The names of globals and attributes that a function and the functions within it read."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _source(code: CodeType) -> str:
    """A function's source without what does not count; its bytecode where there is no file."""
    text = "".join(linecache.getlines(code.co_filename))
    nodes = _functions(text).get(code.co_firstlineno, ())
    return "\n".join(map(code_text, nodes)) if nodes else code.co_code.hex()


@cache
def _functions(text: str) -> dict[int, list[ast.AST]]:
    """The functions and lambdas of a file, by the line in which they begin."""
    functions: dict[int, list[ast.AST]] = {}
    for node in ast.walk(parse_code(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            node.decorator_list = []
            functions.setdefault(line, []).append(node)
        elif isinstance(node, ast.Lambda):
            functions.setdefault(node.lineno, []).append(node)
    return functions


def parse_code(source: str | bytes) -> ast.Module:
    """The syntax tree of a file, which has no comments and no layout, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree


def code_text(node: Any) -> str:
    """A text that stands for a syntax tree. `ast.dump`'s and `ast.unparse`'s depend on Python's version."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return f"{type(node).__name__}({','.join(f'{name}={code_text(value)}' for name, value in fields)})"
    return f"[{','.join(map(code_text, node))}]" if isinstance(node, list) else repr(node)


def hash_of(root: Path, files: list[Path]) -> str:
    """Twelve hex digits of a hash of files' paths below `root` and their code, without docs and layout."""
    digest = hashlib.sha256()
    for path in sorted(files):
        code = code_text(parse_code(path.read_bytes()))
        digest.update(f"{path.relative_to(root).as_posix()}\n{code}\n".encode())
    return digest.hexdigest()[:12]

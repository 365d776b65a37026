"""Source as far as it determines what runs."""

import ast
from typing import Any

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


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

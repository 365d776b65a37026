"""Source as far as it determines what runs."""

import ast

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parse_code(source: str | bytes) -> ast.Module:
    """The syntax tree of a file, which has no comments and no layout, without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree

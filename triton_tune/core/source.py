"""Source as far as it determines what runs."""

import ast
import hashlib
from pathlib import Path
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


def hash_of(root: Path, files: list[Path]) -> str:
    """Twelve hex digits of a hash of the files' paths below `root` and their code.

    Comments, docstrings and layout do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        code = code_text(parse_code(path.read_bytes()))
        digest.update(f"{path.relative_to(root).as_posix()}\n{code}\n".encode())
    return digest.hexdigest()[:12]

"""The package depends on nothing but the standard library, and on PyYAML only for run.yaml."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tuning_table"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    known = {*sys.stdlib_module_names, "tuning_table"}
    for statement in ast.walk(tree):
        names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        lazily = {"yaml"} if statement not in tree.body else set()
        assert {name.split(".")[0] for name in names} <= known | lazily

"""One direction: treegen knows neither torch nor Triton, attn_kernels no treegen, `generated` nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from treegen_builders import REPOSITORY

KERNELS, GENERATED, TREEGEN = (REPOSITORY / name for name in ("attn_kernels", "generated", "treegen"))


def _imports(path: Path) -> Iterator[str]:
    """The modules that a file imports absolutely, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def _top(names: Iterator[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_importing_all_of_treegen_loads_neither_torch_nor_triton() -> None:
    modules = sorted(
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in TREEGEN.rglob("*.py")
        if path.name != "__main__.py"
    )
    assert len(modules) > 20
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print(sorted({{"torch", "triton", "attn_kernels", "generated"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "path", sorted(TREEGEN.rglob("*.py")), ids=lambda p: p.relative_to(REPOSITORY).as_posix()
)
def test_treegen_names_neither_torch_nor_triton_nor_the_kernels(path: Path) -> None:
    assert not _top(_imports(path)) & {"torch", "triton", "attn_kernels", "generated"}


@pytest.mark.parametrize(
    "path", sorted(KERNELS.rglob("*.py")), ids=lambda p: p.relative_to(REPOSITORY).as_posix()
)
def test_the_kernels_do_not_know_the_compiler(path: Path) -> None:
    assert "treegen" not in _top(_imports(path))
    assert "import treegen" not in path.read_text()


@pytest.mark.parametrize(
    "path", sorted(GENERATED.rglob("*.py")), ids=lambda p: p.relative_to(REPOSITORY).as_posix()
)
def test_generated_imports_nothing_but_typing_and_in_kernels_triton(path: Path) -> None:
    known = (
        {"triton", "triton.language"} if path.parent.name == "in_kernel" else {"typing", "collections.abc"}
    )
    assert set(_imports(path)) <= known


def test_importing_generated_loads_nothing_that_kernels_import() -> None:
    code = """
import sys
import generated, generated.unified_attention
assert generated.unified_attention.MODULES
print(sorted({name.split(".")[-1] for name in sys.modules} & {"in_kernel", "torch", "triton"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert (GENERATED / "unified_attention/in_kernel/__init__.py").is_file()

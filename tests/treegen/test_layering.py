"""Imports go one way: between the packages, and between the folders of each."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from treegen_builders import REPOSITORY

# From the bottom to the top. Folders in one string do not import each other.
FOLDERS = {
    "treegen": [
        *(
            "core",
            "read fit",
            "crossval",
            "emit",
            "write",
            "build",
            "review importers start",
            "export",
            "cli",
        ),
    ],
    "attn_kernels": [
        *("core", "kernels", "choose launch", "planning", "warmup testing", "engines measure offline"),
        "tuning",
    ],
    "triton_tune": [
        *("core", "launch", "record", "search", "processes", "bench", "run", "kernel", "bootstrap", "cli"),
    ],
}
UNKNOWN = {
    "treegen": {"torch", "triton", "triton_tune", "attn_kernels", "generated"},
    "attn_kernels": {"treegen"},
    "triton_tune": {"treegen", "attn_kernels", "generated"},
}


def _imports(package: str) -> Iterator[tuple[Path, str]]:
    """Each file of a package with every name that it imports, wherever in the file the import stands."""
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from ((path, f"{module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_and_packages_import_only_those_below_them(package: str) -> None:
    level = {folder: height for height, folders in enumerate(FOLDERS[package]) for folder in folders.split()}
    wrong = []
    for path, name in _imports(package):
        folder = path.relative_to(REPOSITORY / package).with_suffix("").parts[0]
        imported = name.split(".")[1] if name.startswith(f"{package}.") else folder
        unknown = name.startswith(".") or name.split(".")[0] in UNKNOWN[package]
        own = imported == folder or "__" in (folder[:2], imported[:2])  # the package itself and its __main__
        if unknown or not (own or level[imported] < level[folder]):
            wrong.append(f"{path.relative_to(REPOSITORY)} imports {name}")
    assert wrong == []


def test_generated_imports_only_the_standard_library_and_in_kernels_triton() -> None:
    for path, name in _imports("generated"):
        known = (
            ("", "triton") if path.parent.name == "in_kernel" else ("", "typing", "collections", "functools")
        )
        assert name.split(".")[0] in known, path  # "" begins a relative import


def test_tuning_table_imports_only_the_standard_library_and_pyyaml_within_functions() -> None:
    known = {*sys.stdlib_module_names, "tuning_table"}
    assert {name.split(".")[0] for _, name in _imports("tuning_table")} - known == {"yaml"}
    assert _loaded("import tuning_table, tuning_table.merge, tuning_table.strict_yaml", {"yaml"}) == "[]\n"


def _loaded(code: str, names: set[str]) -> str:
    """Which of these modules a fresh Python has loaded after running `code`."""
    code += f"\nimport sys; print(sorted({names!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def test_importing_loads_neither_torch_nor_triton() -> None:
    paths = [path for path in (REPOSITORY / "treegen").rglob("*.py") if path.name != "__main__.py"]
    modules = [".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in paths]
    assert len(modules) > 20
    code = f"import {', '.join(modules)}"
    assert _loaded(code, {"torch", "triton", "triton_tune", "attn_kernels"}) == "[]\n"
    code = "import generated.unified_attention; assert generated.unified_attention.MODULES"
    assert _loaded(code, {"torch", "triton"}) == "[]\n"

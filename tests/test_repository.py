"""Imports go one way, links of pages lead somewhere, and each command tells the one version."""

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib

import pytest
from treegen_builders import REPOSITORY

import attn_kernels
import tuning_table

# From the bottom to the top. Folders between semicolons do not import each other.
FOLDERS = {
    "treegen": "core; read fit; crossval; emit; write; build; review importers start; export; cli",
    "attn_kernels": "core; kernels; choose launch; planning; warmup testing; engines measure offline; tuning",
    "triton_tune": "core; launch; record; search; processes; bench; run; kernel; bootstrap; cli",
}
UNKNOWN = {
    "treegen": {"torch", "triton", "triton_tune", "attn_kernels", "generated"},
    "attn_kernels": {"treegen"},
    "triton_tune": {"treegen", "attn_kernels", "generated"},
}


def _imports(package):
    """Each file of a package with every name that it imports, wherever in the file the import stands."""
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from ((path, f"{module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("package", FOLDERS)
def test_folders_and_packages_import_only_those_below_them(package):
    level = {
        folder: height
        for height, folders in enumerate(FOLDERS[package].split(";"))
        for folder in folders.split()
    }
    wrong = []
    for path, name in _imports(package):
        folder = path.relative_to(REPOSITORY / package).with_suffix("").parts[0]
        imported = name.split(".")[1] if name.startswith(f"{package}.") else folder
        unknown = name.startswith(".") or name.split(".")[0] in UNKNOWN[package]
        own = imported == folder or "__" in (folder[:2], imported[:2])  # the package itself and its __main__
        if unknown or not (own or level[imported] < level[folder]):
            wrong.append(f"{path.relative_to(REPOSITORY)} imports {name}")
    assert wrong == []


def test_generated_and_tuning_table_import_the_standard_library_triton_in_kernels_and_pyyaml():
    for path, name in _imports("generated"):
        known = ("triton",) if path.parent.name == "in_kernel" else ("typing", "collections", "functools")
        assert name.split(".")[0] in ("", *known), path  # "" begins a relative import
    known = {*sys.stdlib_module_names, "tuning_table"}
    assert {name.split(".")[0] for _, name in _imports("tuning_table")} - known == {"yaml"}
    assert _loaded("import tuning_table, tuning_table.merge, tuning_table.strict_yaml", {"yaml"}) == "[]\n"


def _loaded(code, names):
    """Which of these modules a fresh Python has loaded after running `code`."""
    code += f"\nimport sys; print(sorted({names!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def test_importing_loads_neither_torch_nor_triton_and_tuned_triton_alone():
    paths = [path for path in (REPOSITORY / "treegen").rglob("*.py") if path.name != "__main__.py"]
    modules = [".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in paths]
    assert len(modules) > 20
    code = f"import {', '.join(modules)}"
    assert _loaded(code, {"torch", "triton", "triton_tune", "attn_kernels"}) == "[]\n"
    code = "import generated.unified_attention; assert generated.unified_attention.MODULES"
    assert _loaded(code, {"torch", "triton"}) == "[]\n"
    code = "import triton, sys; before = set(sys.modules)\nfrom triton_tune import tuned\n"
    code += "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
    code += "assert names - set(sys.stdlib_module_names) == {'triton_tune', 'tuning_table'}"
    assert _loaded(code, {"treegen"}) == "[]\n"


PATTERNS = ("*.md", "docs/*.md", "*/README.md", "examples/**/*.md")
PAGES = sorted(
    path
    for path in {path for pattern in PATTERNS for path in REPOSITORY.glob(pattern)}
    if not any(part.startswith(".") for part in path.relative_to(REPOSITORY).parts)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_to_files_and_commands_name_modules_that_exist(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"(?ms)^```.*?^```", "", page.read_text())):
        assert "://" in target or target.startswith("...") or (page.parent / target).exists(), target
    for module in re.findall(r"python -m ((?:benchmarks|examples)[\w.]*)", page.read_text()):
        assert importlib.util.find_spec(module) is not None, module


SCRIPTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("command", SCRIPTS)
def test_every_command_tells_the_one_version(command, capsys):
    module, _, name = SCRIPTS[command].partition(":")
    with pytest.raises(SystemExit) as end:
        getattr(importlib.import_module(module), name)(["--version"])
    assert (end.value.code, capsys.readouterr().out) == (0, f"{command} {tuning_table.__version__}\n")
    assert attn_kernels.__version__ == tuning_table.__version__


def test_the_readme_shows_a_function_as_it_is_generated():
    (shown,) = re.findall(r"(?ms)^```python\n(def .*?)^```", (REPOSITORY / "README.md").read_text())
    assert shown in (REPOSITORY / "generated/unified_attention/nvidia_h100.py").read_text()

"""Heuristics of another package in place of ours: named by a call, a variable or an entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_kernels import use_heuristics

ROOT = Path(__file__).parents[3]
# An editable install has a finder that knows the modules of this repository below any package.
PLAIN = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'ditable' not in repr(f)]\n"
SHOW = """
import torch
from attn_kernels.choose.heuristic import heuristic_for_device, segments_function_of
from attn_kernels.choose.mixed import _module
from attn_kernels.choose.packages import kernel_package
heuristic = heuristic_for_device(torch.device("cpu"))
mixed = _module(torch.device("cpu"), None)
print(heuristic.key, heuristic.choose.__module__, mixed and mixed[1].__name__)
"""
USE = "import attn_kernels; attn_kernels.use_heuristics('their.trees')\n"
CHOOSE = "def choose(**features):\n    raise NotImplementedError\n"
PACKAGE = """
from . import only
MODULES = {"only": only}
def for_device(name, arch, vendor):
    return only.choose
"""

Show = Callable[..., str]


def package(folder: Path, *kernels: str) -> None:
    """A package with generated packages of kernels."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for kernel in kernels:
        (folder / kernel).mkdir()
        (folder / kernel / "__init__.py").write_text(PACKAGE)
        (folder / kernel / "only.py").write_text(CHOOSE)


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Runs code in a new process in which `tmp_path` comes before this repository; returns what it prints."""

    def run(code: str = SHOW, **variables: str) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", **variables}
        done = subprocess.run(
            [sys.executable, "-c", PLAIN + code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    return run


OURS = "default generated.unified_attention.default generated.mixed_attention.default"


def test_without_a_name_they_are_ours(show: Show) -> None:
    assert show() == OURS


def test_a_variable_names_another_package(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "mine", "unified_attention")
    assert show(ATTN_KERNELS_HEURISTICS="mine") == "only mine.unified_attention.only None"


def test_a_call_comes_before_the_variable(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "their" / "trees", "unified_attention", "mixed_attention")
    expected = "only their.trees.unified_attention.only their.trees.mixed_attention.only"
    assert show(USE + SHOW, ATTN_KERNELS_HEURISTICS="mine") == expected
    chosen = SHOW.partition("print")[0]
    assert "must be called before the first plan" in show(chosen + USE)


def test_an_entry_point_names_another_package(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "mine", "unified_attention")
    for name, value in (("a", "mine"), ("b", "other")):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[attn_kernels.heuristics]\n{name} = {value}\n")
        if name == "a":
            assert show() == "only mine.unified_attention.only None"
    assert "name mine, other: choose one with ATTN_KERNELS_HEURISTICS" in show()
    assert show(ATTN_KERNELS_HEURISTICS="mine") == "only mine.unified_attention.only None"


def test_a_package_that_does_not_exist(show: Show) -> None:
    assert "ValueError: there is no package 'mine', which ATTN_KERNELS_HEURISTICS" in show(
        ATTN_KERNELS_HEURISTICS="mine"
    )


def test_a_package_without_the_kernel_that_chooses(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "mine", "matmul")
    lacks = "has no modules of unified_attention, which are needed"
    expected = f"ValueError: package 'mine', which ATTN_KERNELS_HEURISTICS names, {lacks}"
    assert show(ATTN_KERNELS_HEURISTICS="mine") == expected
    by_call = show(USE.replace("their.trees", "mine") + SHOW)
    assert by_call == f"ValueError: package 'mine', which use_heuristics names, {lacks}"


def test_a_module_in_place_of_its_name() -> None:
    with pytest.raises(TypeError, match="package is a module, but its name is needed, such as 'my_project"):
        use_heuristics(os)  # type: ignore[arg-type]


def test_a_projects_generated_package_of_other_kernels_does_not_hide_ours(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "generated", "matmul")
    ours = "_attn_kernels_generated"
    expected = f"default {ours}.unified_attention.default {ours}.mixed_attention.default"
    assert show("import generated.matmul\n" + SHOW) == show() == expected


def test_a_projects_generated_package_of_attention_comes_first(show: Show, tmp_path: Path) -> None:
    package(tmp_path / "generated", "unified_attention")
    assert show() == "only generated.unified_attention.only None"

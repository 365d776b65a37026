"""Heuristics of another package in place of ours: named by a call, a variable or an entry point."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from attn_kernels import Lengths, Model, Parts, use_heuristics
from attn_kernels.choose import packages
from attn_kernels.choose.choices import Choices
from attn_kernels.choose.mixed import KERNEL as MIXED
from attn_kernels.choose.packages import kernel_package

MODEL = Model(8, 2, 64, 16, torch.bfloat16)
LENGTHS = Lengths(1, 1, 1, 9, 9)
OURS = "qblock_M64_T32_W4_S2"
# The generated package of a kernel, with one module: itself.
PACKAGE = """
import sys
from attn_kernels import Config
MODULES = {{"only": sys.modules[__name__]}}
CONFIG = Config({variant!r}, {block_m}, 16)
def configs(**constants):
    return ((CONFIG,),)
def for_model(**constants):
    return lambda **lengths: CONFIG
def key_for(name, arch, vendor):
    return "only"
"""
THEIRS = "qblock_M16_T16_W4_S2"

pytestmark = pytest.mark.usefixtures("new_process", "fresh_imports")


@pytest.fixture
def fresh_imports(monkeypatch, tmp_path):
    """`tmp_path` comes before this repository, and no generated package was imported."""
    names = ("generated", "mine", "their", packages.INSTALLED)

    def imported():
        return [name for name in sys.modules if f"{name}.".startswith(tuple(f"{one}." for one in names))]

    before = {name: sys.modules.pop(name) for name in imported()}
    monkeypatch.setattr(packages, "_named", [])
    # An editable install has a finder that knows this repository's modules before any folder's.
    finders = [finder for finder in sys.meta_path if "ditable" not in repr(finder)]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in imported():
        del sys.modules[name]
    sys.modules.update(before)


def package(folder, *kernels):
    """A package with generated packages of kernels."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for kernel in kernels:
        variant, block_m = ("single", 0) if kernel == MIXED else ("qblock", 16)
        (folder / f"{kernel}.py").write_text(PACKAGE.format(variant=variant, block_m=block_m))
    importlib.invalidate_caches()


def chosen():
    return str(Choices(MODEL, torch.device("cpu")).config(LENGTHS))


def test_modules_of_an_earlier_treegen_are_refused(monkeypatch, tmp_path):
    package(tmp_path / "mine", "unified_attention")
    path = tmp_path / "mine/unified_attention.py"
    path.write_text(path.read_text().replace("key_for", "of_a_device"))
    monkeypatch.setenv("ATTN_KERNELS_HEURISTICS", "mine")
    with pytest.raises(ValueError, match=r"mine\.unified_attention"):
        chosen()


def test_a_variable_names_another_package(monkeypatch, tmp_path):
    package(tmp_path / "mine", "unified_attention")
    monkeypatch.setenv("ATTN_KERNELS_HEURISTICS", "mine")
    assert chosen() == THEIRS
    with pytest.raises(ImportError):
        kernel_package(MIXED)
    assert Choices(MODEL, torch.device("cpu")).way(Parts(LENGTHS, LENGTHS)).variant == "separate"


def test_a_call_comes_before_the_variable(monkeypatch, tmp_path):
    package(tmp_path / "their" / "trees", "unified_attention")
    monkeypatch.setenv("ATTN_KERNELS_HEURISTICS", "mine")
    use_heuristics("their.trees")
    assert chosen() == THEIRS
    with pytest.raises(RuntimeError):
        use_heuristics("mine")


def test_an_entry_point_names_another_package(monkeypatch, tmp_path):
    def install(name, value):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[attn_kernels.heuristics]\n{name} = {value}\n")
        packages.heuristics_package.cache_clear()

    package(tmp_path / "mine", "unified_attention")
    install("a", "mine")
    assert chosen() == THEIRS
    install("b", "other")
    with pytest.raises(ValueError, match="ATTN_KERNELS_HEURISTICS"):
        chosen()
    monkeypatch.setenv("ATTN_KERNELS_HEURISTICS", "mine")
    assert chosen() == THEIRS


@pytest.mark.parametrize(
    ("kernels", "missing"), [((), "mine"), (("matmul",), "mine.unified_attention")], ids=["none", "of others"]
)
@pytest.mark.parametrize("by", ["use_heuristics", "ATTN_KERNELS_HEURISTICS"])
def test_a_package_without_the_kernel_is_an_error_that_names_what_asked_for_it(
    by, kernels, missing, monkeypatch, tmp_path
):
    if kernels:
        package(tmp_path / "mine", *kernels)
    if by == "use_heuristics":
        use_heuristics("mine")
    else:
        monkeypatch.setenv(by, "mine")
    with pytest.raises(ValueError, match=f"{missing}, .*{by}"):
        chosen()


def test_a_module_in_place_of_its_name_is_refused():
    with pytest.raises(TypeError, match="package"):
        use_heuristics(importlib)


@pytest.mark.parametrize(
    ("kernel", "expected", "name"),
    [("matmul", OURS, packages.INSTALLED), ("unified_attention", THEIRS, "generated")],
)
def test_a_projects_generated_package_comes_first_only_if_it_is_of_attention(
    kernel, expected, name, tmp_path
):
    package(tmp_path / "generated", kernel)
    importlib.import_module(f"generated.{kernel}")
    assert chosen() == expected
    assert packages.heuristics_package() == name

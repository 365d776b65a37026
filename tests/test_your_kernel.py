"""The page "Your kernel in ten minutes", followed word for word in Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "your_kernel.md"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\w+\.py)\n")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a shell in which this repository is installed."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, what in (("triton-tune", "-m triton_tune"), ("treegen", "-m treegen"), ("python", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {what} "$@"\n')
        (commands / name).chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{folder}",
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
    }


def follow(page: str, folder: Path, environment: dict[str, str]) -> str:
    """Write the files that a page names, run its commands, and return what they print."""
    outputs = []
    for kind, text in BLOCK.findall(page):
        named = NAMED.match(text)
        if named:
            (folder / named[1]).write_text(text)
        elif kind == "sh" and not text.startswith("pip install"):
            done = subprocess.run(
                ["sh", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            outputs.append(done.stdout)
    return "".join(outputs)


def test_the_page_is_followed_word_for_word(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "project"
    everything = follow(PAGE.read_text().replace(other_packages(), ""), folder, environment)
    assert "rms_norm: 12 shapes, 8 configs, 96 cells" in everything
    assert "the search is finished" in everything
    assert "tensor(600.00" in everything or "tensor(599.9" in everything  # of ones, each normalised to one
    assert "launches RMS_NORM_" in everything
    assert (folder / "heuristics/rms_norm/cpu.py").is_file()
    assert '@tuned("heuristics.rms_norm")\n@triton.autotune' in (folder / "norm.py").read_text()


def other_packages() -> str:
    """The section about a kernel of another package."""
    (section,) = re.findall(r"^## A kernel you do not own$.*?(?=^## )", PAGE.read_text(), re.M | re.S)
    return section


def test_a_kernel_of_another_package_is_tuned_and_replaced_word_for_word(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "project"
    quick = {"TORCHDYNAMO_DISABLE": "1"}  # the package decorates functions with torch.compile when imported
    output = follow(other_packages(), folder, environment | quick)
    assert "l2norm: 4 shapes, 25 configs, 100 cells" in output and "features: D, NB, T" in output
    assert "tensor(5." in output or "tensor(4.99" in output  # five rows of length one
    assert "BT: " in output.splitlines()[-1]  # the config that was launched
    assert (folder / "heuristics/l2norm/cpu.py").is_file()

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


def test_the_page_is_followed_word_for_word(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "project"
    outputs = []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        named = NAMED.match(text)
        if named:
            (folder / named[1]).write_text(text)
        elif kind == "sh" and not text.startswith("pip install"):
            done = subprocess.run(
                ["sh", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            outputs.append(done.stdout)
    everything = "".join(outputs)
    assert "rms_norm: 12 shapes, 8 configs, 96 cells" in everything
    assert "the search is finished" in everything
    assert "tensor(600.00" in everything or "tensor(599.9" in everything  # of ones, each normalised to one
    assert "launches RMS_NORM_" in everything and "names: [NVIDIA L40S]" in everything
    assert (folder / "heuristics/rms_norm/cpu.py").is_file()
    assert '@tuned("heuristics.rms_norm")\n@triton.autotune' in (folder / "norm.py").read_text()

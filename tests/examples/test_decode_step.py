"""The decode loop of examples/, and the version that packages report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attn_kernels
import treegen

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_decode_loop_runs_in_the_interpreter() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(REPOSITORY / "examples/decode_step.py"), "--device", "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["step 0", "step 1"]
    assert "nan" not in done.stdout


def test_there_is_one_version() -> None:
    assert attn_kernels.__version__ == treegen.__version__

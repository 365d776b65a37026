"""New processes use the ptxas whose version this process has in its keys of Triton's cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from triton_tune.processes import compile_ahead, ptxas

order, path = sys.argv[1:]
torch.version.hip = None
torch.cuda.get_device_capability = lambda device: (8, 0)
device = torch.device("cuda", 0)


def key():
    return make_backend(GPUTarget("cuda", 80, 32)).hash()


if __name__ == "__main__":
    if order == "keys first":
        key()
    os.environ[ptxas.VARIABLE] = path
    with compile_ahead.CompileAhead(device, 1) as processes:
        child = processes._start().submit(key).result()
    print("same" if child == key() else "different", "fake" in child)
"""


@pytest.mark.parametrize(
    ("order", "fine", "found"),
    [
        ("keys first", True, "same False"),  # as when Inductor names a ptxas later
        ("variable first", True, "same True"),  # as a user names one
        ("keys first", False, "same False"),  # no such file: Triton falls back to its own
    ],
)
def test_processes_have_the_keys_of_their_parent(order: str, fine: bool, found: str, tmp_path: Path) -> None:
    script, fake = tmp_path / "script.py", tmp_path / "ptxas"
    script.write_text(SCRIPT)
    if fine:
        fake.write_text("#!/bin/sh\necho fake ptxas, release 12.3, V12.3.4\n")
        fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, script, order, fake],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.stdout.strip() == found, done.stderr

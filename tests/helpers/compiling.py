"""Python in which Triton compiles: this process runs its interpreter."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compiling(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments and further environment variables."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = kept | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def printed(code: str, *arguments: str, **variables: str) -> str:
    """What a program prints on stdout."""
    done = compiling("-W", "ignore", "-c", code, *arguments, **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout

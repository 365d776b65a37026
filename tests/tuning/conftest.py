"""Runs what launches kernels in Triton's interpreter, which must be asked for before triton is imported, and
makes the helpers beside the tests importable, which pytest's importlib mode leaves to us."""

import os
import sys
from pathlib import Path

import pytest

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported before tests/tuning/conftest.py could set TRITON_INTERPRET=1")
os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parents[1])) if path not in sys.path]


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder but for a file of recorded batches."""
    from tuning_workers import BATCHES  # which imports triton

    (tmp_path / "batches.jsonl").write_text(BATCHES)
    monkeypatch.chdir(tmp_path)

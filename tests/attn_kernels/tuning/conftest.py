"""Fixtures of the tests of tuning runs."""

from pathlib import Path

import pytest
from tuning_workers import BATCHES


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder that holds only a file of recorded batches."""
    (tmp_path / "batches.jsonl").write_text(BATCHES)
    monkeypatch.chdir(tmp_path)

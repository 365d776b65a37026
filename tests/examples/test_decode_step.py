"""The decode loop of examples/."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/decode_step.py"


def test_the_decode_loop_runs_in_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["decode_step.py", "--device", "cpu"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert [line.partition(":")[0] for line in printed.splitlines()] == ["step 0", "step 1"]
    assert "nan" not in printed

"""The benchmark of predicted times: its command line."""

from __future__ import annotations

import pytest

from benchmarks.trees import explain_error


def test_help_is_printed_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["explain_error", "--help"])
    with pytest.raises(SystemExit):
        explain_error.main()
    assert capsys.readouterr().out.startswith("usage:")

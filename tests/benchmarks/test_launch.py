"""benchmarks.launch runs through in the interpreter."""

import pytest

from benchmarks.launch import launch_cost


def test_launch_cost_runs_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch_cost.main(["--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for heading in ("choose ", "plan, us", "record ", "run, us", "one call, us", "all fine"):
        assert heading in printed

"""benchmarks.launch runs through in the interpreter; threads that wait too long are found."""

import threading

import pytest
from launch_threads import Hang, in_threads

from benchmarks.launch import launch_cost


def test_launch_cost_runs_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch_cost.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    for heading in ("choose ", "plan, us", "record ", "run, us", "one call, us", "all fine"):
        assert heading in printed


def test_a_thread_that_waits_too_long_is_a_hang() -> None:
    ended = threading.Event()

    def turn(number: int, index: int) -> tuple[int, list[str]]:
        if number == 1:
            ended.wait(60.0)
        return 1, []

    with pytest.raises(Hang, match="thread 1"):
        in_threads(turn, 2, 0.1, patience=0.3)
    ended.set()

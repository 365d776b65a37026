"""benchmarks.launch runs through in the interpreter, and direct launches are compared bit by bit."""

from __future__ import annotations

import os
import threading
from typing import Any

import direct_launches
import pytest
import torch
from launch_threads import Hang, in_threads

from attn_kernels.launch import direct
from attn_kernels.launch.direct import VARIABLE
from benchmarks.launch import launch_cost

CPU = torch.device("cpu")


def cases() -> list[direct_launches.LaunchCase]:
    return direct_launches.cases(launch_cost.CONFIGS["qblock"], CPU, ("plain",), small=True)


def test_equal_outputs_are_counted() -> None:
    every = cases()
    assert direct_launches.compare(every) == (6 * len(every), [])


def test_a_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    launch_kernel = direct.launch_kernel

    def launch(kernel: Any, grid: Any, arguments: Any, options: Any) -> None:
        launch_kernel(kernel, grid, arguments, options)
        if os.environ.get(VARIABLE) == "direct" and kernel.fn.__name__ == "qblock_kernel":
            arguments[0].view(torch.int16).flatten()[-1] ^= 1

    monkeypatch.setattr(direct, "launch_kernel", launch)
    every = cases()
    count, wrong = direct_launches.compare(every)
    assert len(wrong) == count == 6 * len(every)
    launches, problems = direct_launches.stress(every, CPU, seconds=0.1, threads=2, at_a_time=1)
    assert launches and problems


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

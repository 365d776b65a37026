"""The benchmark of launches runs through without a GPU, and reports wrong bits."""

import os
import sys

import pytest
import torch

from attn_kernels.launch import direct
from attn_kernels.launch.direct import VARIABLE
from benchmarks.launch import equal, launch_cost
from benchmarks.launch.bench import CONFIGS, LaunchBench

CPU = torch.device("cpu")


@pytest.fixture
def spoil_direct(monkeypatch):
    """A bit of each output is wrong in direct mode."""
    launch_kernel = direct.launch_kernel

    def launch(kernel, grid, arguments, options):
        launch_kernel(kernel, grid, arguments, options)
        if os.environ.get(VARIABLE) == "direct" and kernel.fn.__name__ == "qblock_kernel":
            arguments[0].view(torch.int16).flatten()[-1] ^= 1

    monkeypatch.setattr(direct, "launch_kernel", launch)


def cases():
    return equal.cases((CONFIGS["qblock"],), [CPU], ("plain",), small=True)


def test_equal_outputs_are_counted():
    every = cases()
    assert equal.compare(every) == (6 * len(every), [])


def test_a_wrong_bit_is_found(spoil_direct):
    every = cases()
    count, wrong = equal.compare(every)
    assert len(wrong) == count == 6 * len(every)
    launches, problems = equal.stress(every, CPU, seconds=0.1, threads=2, at_a_time=1)
    assert launches
    assert problems


def test_a_wrong_bit_is_the_verdict(spoil_direct):
    bench = LaunchBench(CPU, smoke=True)
    bench.configs = {"qblock": CONFIGS["qblock"]}
    assert launch_cost.equality(bench, seconds=0.1, threads=1) is False


def test_it_runs_through(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch_cost", "--smoke"])
    assert launch_cost.main() == 0
    printed = capsys.readouterr().out
    table = printed[printed.rindex("device cpu") :]
    for heading in ("equal: ", "stress: ", "choose ", "plan, us", "run, us", "one call, us", "2 layers"):
        assert heading in table
    assert ": 0 differ" in table
    assert table.rstrip().endswith("all fine")


def test_a_section_that_breaks_off_is_the_verdict(monkeypatch, capsys):
    def fail(bench):
        raise RuntimeError("no GPU today")

    for section in (
        "equality",
        "choosing",
        "planning",
        "running",
        "one_call",
        "other_implementations",
        "step",
    ):
        monkeypatch.setattr(launch_cost, section, lambda *arguments: True)
    monkeypatch.setattr(launch_cost, "breakdown", fail)
    monkeypatch.setattr(sys, "argv", ["launch_cost", "--smoke"])
    assert launch_cost.main() == 1
    printed = capsys.readouterr().out
    assert "breakdown BROKE OFF: RuntimeError: no GPU today" in printed
    assert "SOMETHING IS WRONG" in printed

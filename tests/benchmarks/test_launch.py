"""benchmarks.launch runs through in the interpreter; cases of tests on a GPU, and threads, find faults."""

import random
import threading

import pytest
import torch
from launch_cases import LaunchCase, draw_words
from launch_threads import Hang, in_threads

import attn_kernels
from attn_kernels import Config
from attn_kernels.measure.batches import Batch, HeadLayout
from benchmarks.launch import launch_cost

CPU = torch.device("cpu")
CONFIGS = (None, Config("qblock", 16, 16), Config("qblock", 32, 16))
BATCH = Batch("tiny", "mixed", (1, 0, 1, 12), (20, 5, 33, 20), HeadLayout(4, 2, 32), dtype=torch.float16)


def test_launch_cost_runs_through(capsys):
    assert launch_cost.main(["--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for heading in ("choose ", "plan, us", "record ", "run, us", "one call, us", "all fine"):
        assert heading in printed


def test_a_thread_that_waits_too_long_is_a_hang():
    ended = threading.Event()
    with pytest.raises(Hang, match="thread 1"):
        in_threads(lambda number, _: (int(number != 1 or ended.wait(60.0)), []), 2, 0.1, patience=0.3)
    ended.set()


def test_cases_that_are_right_and_their_jobs_run_what_they_compile():
    words = draw_words(random.Random(0), fp8=False)
    for seed in (0, 1):
        assert LaunchCase(seed, BATCH, CONFIGS, words, in_pairs=True).failures(CPU) == []
    jobs = list(LaunchCase(0, BATCH, CONFIGS, "softcap=5").jobs())
    assert len({key for job in jobs for key in job.needs}) == len(CONFIGS)
    for job in jobs:
        job.run(CPU)


def wider(run):
    """A window that is one key too long reads NaN."""
    return lambda *args, sliding_window, **options: run(*args, sliding_window=sliding_window + 1, **options)


def flipped(run):
    """Every second launch has other bits."""
    outs = []

    def flip(*args, out, **options):
        run(*args, out=out, **options)
        outs.append(out)
        if len(outs) % 2 == 0:
            out.view(torch.int16)[-1, -1, -1] ^= 1

    return flip


@pytest.mark.parametrize(
    ("fault", "words"), [(wider, "window=4"), (flipped, "strides=off"), (lambda run: run, "")]
)
def test_every_wrong_launch_is_a_failure(monkeypatch, fault, words):
    monkeypatch.setattr(attn_kernels, "run", fault(attn_kernels.run))
    wrong = () if fault in (wider, flipped) else (Config("qblock", 3, 16),)  # which raises
    case = LaunchCase(0, BATCH, wrong or CONFIGS[1:], words)
    assert len(case.failures(CPU)) == len(case.configs)

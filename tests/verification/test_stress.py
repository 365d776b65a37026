"""The stress run sees a wrong bit, a wrong first output and a hang, and refuses wrong options."""

import os
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from attn_kernels.measure.batches import Batch
from benchmarks.common.in_parts import is_mixed
from benchmarks.launch.threads import Hang, in_threads
from verification import stress

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command on the CPU and returns its exit code and what it printed."""

    def call(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["stress", "--device", "cpu", "--seconds", "0.1", *options])
        return stress.main(), capsys.readouterr().out

    return call


@pytest.mark.parametrize("by", ["bits", "reference"])
def test_it_runs_through(run: Run, by: str) -> None:
    code, printed = run("--by", by)
    assert code == 0
    assert "3 batches launched once, 0 wrong" in printed
    assert f"by {by}: 0 wrong" in printed


def spoil(monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], object], layers: int) -> None:
    """Change the outputs of launches of so many layers."""
    launch = stress.launch

    def launch_wrong(*arguments: object) -> list[torch.Tensor]:
        outputs = launch(*arguments)  # type: ignore[arg-type]
        if arguments[-1] == layers:
            change(outputs[-1])
        return outputs

    monkeypatch.setattr(stress, "launch", launch_wrong)


def flip_a_bit(out: torch.Tensor) -> None:
    out.view(torch.int16).flatten()[-1] ^= 1


def test_a_wrong_bit_is_found_by_bits_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, flip_a_bit, stress.LAYERS)
    code, printed = run()
    assert code == 1
    assert "not the bits of the first output" in printed
    assert run("--by", "reference")[0] == 0


def test_an_unwritten_element_is_found_by_the_reference(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda out: out[-1, -1, -1].fill_(torch.nan), stress.LAYERS)
    code, printed = run("--by", "reference")
    assert code == 1
    assert "1 elements unwritten or not finite" in printed


def test_a_wrong_first_output_ends_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, torch.Tensor.zero_, 1)
    code, printed = run()
    assert code == 1
    assert "3 batches launched once, 3 wrong" in printed
    assert "\n0 launches" in printed


def test_a_hang_ends_the_process_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(stress, "in_threads", lambda turn, *rest: in_threads(lambda *_: wait(), 1, 9.0, 0.2))

    def wait() -> tuple[int, list[str]]:
        ended.wait(60.0)
        return 0, []

    def leave(code: int) -> None:
        ended.set()
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as stopped:
        run()
    assert stopped.value.code == 1


@pytest.mark.parametrize(
    "options, line",
    [
        (["--threads", "2"], "--threads 2: Triton's interpreter runs in one thread only"),
        (["--threads", "0"], "--threads 0: at least 1 is needed"),
        (["--streams", "0"], "--streams 0: at least 1 is needed"),
        (["--seconds", "0"], "--seconds 0.0: more than 0 is needed"),
        (["--seconds", "nan"], "--seconds nan: more than 0 is needed"),
        (["--patience", "-1"], "--patience -1.0: more than 0 is needed"),
        (["--busy-sms", "3"], "--busy-sms 3: an NVIDIA GPU is needed"),
        (["--busy-sms", "-3"], "--busy-sms -3: an NVIDIA GPU is needed"),
    ],
)
def test_wrong_options_are_refused_with_one_line(
    options: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stress", "--device", "cpu", *options])
    with pytest.raises(SystemExit) as stopped:
        stress.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == line + "\n"


def test_every_kind_of_batch_is_drawn_alike_for_a_seed() -> None:
    batches = stress.draw(stress.ON_GPU, 1)
    assert batches == stress.draw(stress.ON_GPU, 1) != stress.draw(stress.ON_GPU, 2)
    kinds = {
        kind: [batch for batch in batches if batch.kind == kind] for kind in ("mixed", "decode", "prefill")
    }
    assert {len(of_kind) for of_kind in kinds.values()} == {len(batches) // 3}
    assert all(map(is_mixed, kinds["mixed"]))
    assert not any(map(is_mixed, kinds["decode"] + kinds["prefill"]))
    layouts: set[object] = {batch.layout for batch in kinds["mixed"]}
    assert layouts == set(stress.ON_GPU.layouts)


def test_turns_of_threads_differ_and_a_problem_stops_all() -> None:
    taken: list[tuple[int, int]] = []

    def turn(number: int, index: int) -> tuple[int, list[str]]:
        taken.append((number, index))
        return 2, ["wrong"] if len(taken) >= 10 else []

    launches, problems = in_threads(turn, 3, 60.0)
    assert launches == 2 * len(taken)
    assert len(set(taken)) == len(taken)
    assert problems[0].endswith(": wrong")


def test_an_error_in_a_turn_is_a_problem() -> None:
    def turn(number: int, index: int) -> tuple[int, list[str]]:
        raise ValueError("no")

    assert in_threads(turn, 1, 60.0) == (0, ["thread 0: ValueError: no"])


def test_a_thread_that_waits_too_long_is_named() -> None:
    ended = threading.Event()

    def turn(number: int, index: int) -> tuple[int, list[str]]:
        if number == 1:
            ended.wait(60.0)
        return 1, []

    with pytest.raises(Hang, match="thread 1 has waited"):
        in_threads(turn, 2, 0.1, patience=0.3)
    ended.set()


def test_the_batch_of_a_case_is_named_where_it_differs() -> None:
    (batch, *_) = stress.draw(stress.ON_CPU, 0)
    case = stress.StressCase.of(batch, torch.device("cpu"), 0)
    assert isinstance(batch, Batch)
    assert case.differs(case.first.clone(), True) == case.differs(case.first, False) == ""
    assert case.differs(case.first + 1, False).startswith(str(batch))

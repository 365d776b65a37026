"""The command attn-tune: wrong use, and runs that are stopped, that fail and that go on."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tuning_workers import BATCHES, files

from attn_kernels import Lengths, Model, Parts
from attn_kernels.choose.recording import Recorder
from attn_kernels.tuning.cli import main
from attn_kernels.tuning.scenarios.recorded import read_recorded
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from attn_kernels.tuning.space.space import declared, declared_mixed

REPOSITORY = Path(__file__).parents[4]
pytestmark = pytest.mark.usefixtures("batches")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def make(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return make


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of wrong use, which writes nothing."""
    before = files(Path())
    assert main.main(arguments) == 2
    message = capsys.readouterr()
    assert message.out == "" and message.err.endswith("\n") and message.err.count("\n") == 1
    assert files(Path()) == before and [path.name for path in Path().iterdir() if path.is_dir()] == []
    return message.err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--scenarios", "nope"], "--scenarios 'nope': neither a file nor a named set (serving, quick, "),
    (["--scenarios", "."], "--scenarios '.': neither a file nor"),
    (["--scenarios", "a" * 5000], "cannot be used: File name too long"),
    (["--scenarios", "bad.jsonl"], "bad.jsonl:2: query_lens is 5, but a list of lengths is needed"),
    (["--scenarios", "bad.jsonl", "--list-scenarios"], "bad.jsonl:2: "),
    (["--scenarios", "bad.jsonl", "--dry-run"], "bad.jsonl:2: "),
    (["--variants", "nope"], "--variants: 'nope' is none of "),
    (["--variants", "naive,"], "--variants: '' is none of "),
    (["--variants", "nope", "--dry-run"], "--variants: 'nope' is none of "),
    (["--variants", "series"], "--variants: 'series' is none of naive, "),
    (["--kernel", "mixed_attention", "--variants", "qblock"], "'qblock' is none of series, whole, pod"),
    (["--kernel", "mixed_attention", "--scenarios", "serving"], "a named set (steps, tiny, untuned_steps)"),
    (["--kernel", "mixed_attention", "--scenarios", "batches.jsonl"], "needs batches of decodes and prompts"),
    (["--gpus", "x"], "--gpus 'x': expected all, or numbers such as 0,1"),
    (["--gpus", "-1"], "--gpus '-1': expected all, or numbers such as 0,1"),
    (["--gpus", ""], "--gpus '': expected all"),
    (["--gpus", "7"], "--gpus '7': expected different numbers below 2"),
    (["--gpus", "7", "--dry-run"], "--gpus '7': expected different numbers below 2"),
    (["--gpus", "0,0"], "--gpus '0,0': expected different numbers below 2"),
    (["--replay", "nope"], "nope: no such table folder (it would hold run.yaml, "),
    (["--replay", "."], "run.yaml: no such file"),
    (["--replay", "batches.jsonl"], "batches.jsonl: no such table folder"),
])  # fmt: skip
def test_wrong_use_is_one_line_on_stderr(
    gpus: Callable[[int], None], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    gpus(2)
    Path("bad.jsonl").write_text(BATCHES.partition("\n")[0] + "\n" + BATCHES.replace("[1]", "5"))
    assert message in refused(capsys, *arguments)


@pytest.mark.parametrize("arguments", [
    ["--budget", "0"], ["--budget", "nan"], ["--budget", "inf"], ["--budget", "abc"], ["--budget", "-5"],
    ["--compile-workers", "-1"], ["--compile-workers", "two"], ["--seed", "x"], ["--strategy", "best"],
    ["--nope"], ["--kernel", "nope"],
])  # fmt: skip
def test_impossible_arguments_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("attn-tune: ") and arguments[0] in line and arguments[-1] in line
    assert "_seconds" not in line and "_count" not in line
    assert set(files(Path())) == {"batches.jsonl"}


def test_without_a_gpu_a_run_says_what_is_possible(
    gpus: Callable[[int], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(0)
    assert "no GPU here; --dry-run describes the run" in refused(capsys)
    assert "--gpus 0: no GPU here" in refused(capsys, "--gpus", "0", "--scenarios", "quick")
    assert "--gpus 7: no GPU here" in refused(capsys, "--gpus", "7", "--dry-run")
    monkeypatch.delenv("TRITON_INTERPRET")
    assert "set TRITON_INTERPRET=1" in refused(capsys, "--gpus", "cpu")


def test_a_dry_run_never_promises_more_time_than_the_budget(
    gpus: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    gpus(0)
    rounds = {}
    for budget in (60, 600, 1_000_000):
        assert main.main(["--scenarios", "batches.jsonl", "--dry-run", "--budget", str(budget)]) == 0
        rounds[budget] = capsys.readouterr().out.splitlines()[-1]
    cut, enough = re.search(
        r", 36 s of the budget for about \d+ of (\d+) cells; --budget (\d+) ", rounds[60]
    ).groups()
    assert f", {cut} cells, about " in rounds[1_000_000]
    for budget, whole in ((int(enough) - 2, False), (int(enough), True)):
        main.main(["--scenarios", "batches.jsonl", "--dry-run", "--budget", str(budget)])
        assert (f", {cut} cells, about " in capsys.readouterr().out) == whole


WITHOUT_TORCH = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv[0] = "attn-tune"
runpy.run_module("attn_kernels.tuning", run_name="__main__")
"""


@pytest.mark.parametrize(("arguments", "code", "out", "err"), [
    (["--help"], 0, "usage: attn-tune", ""),
    (["--nope"], 2, "", "attn-tune: unrecognized arguments: --nope (see 'attn-tune --help')\n"),
    (["--dry-run"], 2, "", "attn-tune needs torch: pip install 'attn-kernels[tune]'\n"),
])  # fmt: skip
def test_without_torch_it_helps_and_says_what_to_install(
    arguments: list[str], code: int, out: str, err: str
) -> None:
    program = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(
        program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    )
    assert (done.returncode, done.stdout[: len(out)]) == (code, out)
    assert done.stderr == err


def test_a_dry_run_says_what_a_run_would_do_and_needs_no_gpu(
    gpus: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    gpus(0)
    assert main.main(["--scenarios", "batches.jsonl", "--variants", "naive,split", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "no GPU here: the estimate is for an H100" in out and "3 scenarios at 1 shapes: 3 decode" in out
    configs, cells = (
        int(re.search(rf"(\d+) {word}", out)[1]) for word in ("configs", "cells may be measured")
    )
    dropped = sum(int(count) for count in re.findall(r"^  (\d+) ", out, re.MULTILINE))
    assert cells + dropped == 3 * sum(c.variant in ("naive", "split") for c in declared("nvidia"))
    assert 0 < configs <= cells <= 3 * configs
    assert (
        "next round of the strategy race: explore families, 3 scenarios" in out
        and "the budget is 600 s" in out
    )
    assert set(files(Path())) == {"batches.jsonl"}


@pytest.mark.parametrize(("name", "seed"), [("quick", 0), ("quick", 5), ("tiny", 0)])
def test_listed_scenarios_can_be_read_back(capsys: pytest.CaptureFixture[str], name: str, seed: int) -> None:
    assert main.main(["--scenarios", name, "--seed", str(seed), "--list-scenarios"]) == 0
    Path("listed.jsonl").write_text(capsys.readouterr().out)
    assert read_recorded(Path("listed.jsonl")) == SETS[name](seed)
    assert main.main(["--scenarios", "listed.jsonl", "--list-scenarios"]) == 0
    assert capsys.readouterr().out == Path("listed.jsonl").read_text()


def test_mixed_attention_has_scenarios_and_configs_of_its_own(
    gpus: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    gpus(0)
    assert main.main(["--kernel", "mixed_attention", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    configs, steps = len(declared_mixed()), len(STEP_SETS["steps"](0))
    assert lines[0].startswith("steps (digest ")
    assert lines[1] == f"{steps} scenarios at 5 shapes: {steps} mixed"
    assert lines[2].startswith(f"{configs} configs: ") and lines[3].startswith(f"{steps * configs} cells ")
    assert lines[-1].startswith(f"next round of the strategy full: sweep, repeat 1, {steps} scenarios, ")


def test_of_a_file_mixed_attention_takes_the_batches_with_both_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mixed = BATCHES.replace("[1]", "[1, 9]").replace('"context_lens": [', '"context_lens": [70, 1')
    Path("some.jsonl").write_text(BATCHES + mixed.replace('"id": "', '"id": "mixed-'))
    arguments = ["--kernel", "mixed_attention", "--scenarios", "some.jsonl", "--list-scenarios"]
    assert main.main(arguments) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 3 and all('"id": "mixed-' in line for line in listed)


def test_whoever_reads_the_list_may_stop_early(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main.main(["--scenarios", "quick", "--list-scenarios"]) == 0
    assert capsys.readouterr().err == ""


def test_a_recorded_file_is_drawn_from_and_compared_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--scenarios", "batches.jsonl", "--max-scenarios", "2", "--list-scenarios"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    table = str(Path(__file__).parents[4] / "tuning_data" / "unified_attention" / "nvidia_h200")
    assert main.main(["--scenarios", "batches.jsonl", "--outside", table]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"3 of 3 plans (100.0%), 3 of 3 recorded batches, lie outside of {table}"
    assert all("plans  " in line and ": no scenario has num_query_heads=" in line for line in others)


def test_only_a_recorded_file_can_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    for scenarios in ([], ["--scenarios", "quick"]):
        message = refused(capsys, *scenarios, "--outside", "nope")
        assert message == "--outside needs --scenarios FILE, a file of recorded batches\n"
    assert refused(capsys, "--scenarios", "batches.jsonl", "--outside", "nope").startswith("nope: ")


def test_what_a_process_recorded_is_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(Path("recorded.jsonl"))
    model = Model(4, 2, 32, 16, torch.float16)
    decodes, prompts = Lengths(3, 3, 1, 40, 90), Lengths(2, 30, 20, 60, 75)
    recorder.record(model, Lengths(5, 33, 20, 60, 165), Parts(decodes, prompts))
    recorder.record(model, decodes)
    recorder.write()
    for kernel, scenarios in (("unified_attention", 2), ("mixed_attention", 1)):
        arguments = ["--kernel", kernel, "--scenarios", "recorded.jsonl"]
        assert main.main([*arguments, "--list-scenarios"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == scenarios
        assert main.main([*arguments, "--dry-run"]) == 0
        assert capsys.readouterr().out.startswith("recorded.jsonl (digest ")

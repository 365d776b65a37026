"""`attn-tune`: wrong use, and runs that end, fail, are stopped or killed, and go on."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
import yaml
from programs import REPOSITORY, python, start
from treegen_builders import contents as files
from tuning_workers import stub

from attn_kernels import Lengths, Model, Parts
from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.choose.recording import Recorder
from attn_kernels.tuning.cli import main
from attn_kernels.tuning.kernels import KERNELS, MIXED, kernel_source_hash, source_hash_with_choices
from attn_kernels.tuning.space.space import declared
from generated import unified_attention
from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.core.device import device_facts
from triton_tune.core.problem import Times
from tuning_table import read_run

LINE = (
    '{{"id": "{}", "query_lens": [1], "context_lens": [{}], "num_query_heads": 2, "num_kv_heads": 1, '
    '"head_size": 16, "block_size": 16}}\n'
)
BATCHES = "".join(LINE.format(name, length) for name, length in (("a", 3), ("b", 20), ("c", 40)))
RUN = ("--scenarios", "batches.jsonl", "--gpus", "cpu", "--out", "table")
CONFIGS = [str(config) for config in declared("cpu") if config.block_m <= 64 and not config.tma]

# `attn-tune`, whose processes start at once. A background process of a shell inherits an ignored SIGINT.
COMMAND = """
import signal, sys
import torch
from attn_kernels.tuning.cli import main
from triton_tune.bench import pool

signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
pool.START_METHOD = "fork"
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def batches(tmp_path, monkeypatch):
    """A working folder that holds only a file of recorded batches."""
    (tmp_path / "batches.jsonl").write_text(BATCHES)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def gpus(monkeypatch):
    def make(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return make


@pytest.fixture
def run(monkeypatch, capsys):
    """Run in this process with stubs as workers; stdout, or if it is refused stderr, as lines."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    def run_here(*arguments, act=lambda scenario, config: None, code=0):
        monkeypatch.setattr(pool, "serve", stub(act))
        capsys.readouterr()
        assert main([*RUN, *arguments]) == code
        message = capsys.readouterr()
        assert (message.err == "") == (code == 0)
        return (message.err or message.out).splitlines()

    return run_here


def summary():
    return yaml.safe_load(Path("table/run.yaml").read_text())["summary"]


def refused(capsys, *arguments):
    """The one line on stderr of wrong use, which writes nothing."""
    before = files(Path())
    try:
        assert main(arguments) == 2
    except SystemExit as caught:  # of the parser
        assert caught.code == 2
    message = capsys.readouterr()
    assert message.out == "" and message.err.startswith("attn-tune: ") and message.err.count("\n") == 1
    assert files(Path()) == before and [path for path in Path().iterdir() if path.is_dir()] == []
    return message.err


@pytest.mark.parametrize(("arguments", "named"), [
    (["--scenarios", "nope"], "'nope'"),
    (["--scenarios", "."], "'.'"),
    (["--scenarios", "a" * 5000], "too long"),
    (["--scenarios", "bad.jsonl"], "bad.jsonl:2: query_lens"),
    (["--scenarios", "bad.jsonl", "--dry-run"], "bad.jsonl:2: "),
    (["--kernel", "mixed_attention", "--scenarios", "serving"], "'serving'"),
    (["--kernel", "mixed_attention", "--scenarios", "batches.jsonl"], "batches.jsonl"),
    (["--gpus", "x"], "--gpus 'x'"),
    (["--gpus", ""], "--gpus ''"),
    (["--gpus", "7"], "--gpus '7'"),
    (["--gpus", "7", "--dry-run"], "--gpus '7'"),
    (["--gpus", "0,0"], "--gpus '0,0'"),
    (["--outside", "nope"], "--scenarios"),
    (["--scenarios", "quick", "--outside", "nope"], "--scenarios"),
    (["--scenarios", "batches.jsonl", "--outside", "nope"], "nope"),
    *(([option, value], f"{option}: ") for option, value in (
        ("--budget", "0"), ("--budget", "nan"), ("--budget", "abc"), ("--compile-workers", "-1"),
        ("--compile-workers", "two"), ("--seed", "x"), ("--max-scenarios", "0"), ("--strategy", "best"),
        ("--kernel", "nope"),
    )),
    (["--nope"], "--nope"),
])  # fmt: skip
def test_wrong_use_is_one_line_on_stderr(gpus, capsys, arguments, named):
    gpus(2)
    Path("bad.jsonl").write_text(BATCHES.partition("\n")[0] + "\n" + BATCHES.replace("[1]", "5"))
    assert named in refused(capsys, *arguments)


def test_without_a_gpu_a_run_is_refused(gpus, capsys, monkeypatch):
    gpus(0)
    for arguments in ([], ["--gpus", "0", "--scenarios", "quick"], ["--gpus", "7", "--dry-run"]):
        assert "no GPU" in refused(capsys, *arguments)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert "TRITON_INTERPRET=1" in refused(capsys, "--gpus", "cpu")


def test_help_needs_no_torch_and_a_run_says_what_it_needs():
    code = (
        "import sys; sys.modules.update(torch=None, triton=None)\nfrom attn_kernels.tuning.cli import main\n"
    )
    for argument, status, printed in (("--help", 0, "usage: attn-tune"), ("--dry-run", 2, "")):
        done = python("-c", f"{code}sys.exit(main([{argument!r}]))")
        assert done.returncode == status and done.stdout.startswith(printed)
        assert done.stderr == "" if not status else "needs torch" in done.stderr


@pytest.mark.parametrize("kernel", ["unified_attention", "mixed_attention"])
def test_a_dry_run_counts_cells_and_needs_no_gpu(gpus, capsys, kernel):
    gpus(0)
    assert main(["--kernel", kernel, "--scenarios", "tiny", "--dry-run"]) == 0
    out = capsys.readouterr().out
    scenarios, configs, cells = (
        int(re.search(rf"(\d+) {word}", out)[1]) for word in ("scenarios,", "configs,", "cells may")
    )
    dropped = sum(int(count) for count in re.findall(r"^  (\d+) ", out, re.MULTILINE))
    expected = MIXED.configs("nvidia") if kernel == MIXED.name else declared("nvidia")
    assert cells + dropped == scenarios * len(expected) and 0 < configs <= cells <= scenarios * configs
    assert set(files(Path())) == {"batches.jsonl"}


def test_a_recorded_file_is_compared_with_a_table(capsys):
    table = str(REPOSITORY / "tuning_data" / "unified_attention" / "nvidia_h200")
    assert main(["--scenarios", "batches.jsonl", "--outside", table]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("3 of 3 plans (100.0%)") and len(others) == 3


def test_what_a_process_recorded_is_tuned(capsys):
    recorder = Recorder(Path("recorded.jsonl"))
    model = Model(4, 2, 32, 16, torch.float16)
    decodes, prompts = Lengths(3, 3, 1, 40, 90), Lengths(2, 30, 20, 60, 75)
    recorder.record(model, Lengths(5, 33, 20, 60, 165), Parts(decodes, prompts))
    recorder.record(model, decodes)
    recorder.write()
    described = ["--scenarios", "recorded.jsonl", "--dry-run"]
    for *options, scenarios in (
        ("unified_attention", 2),
        ("mixed_attention", 1),
        ("unified_attention", "--max-scenarios", "1", 1),
    ):
        assert main(["--kernel", *options, *described]) == 0
        assert f" cells of {scenarios} scenarios once " in capsys.readouterr().out


def test_a_run_writes_a_table_and_once_finished_changes_nothing(run):
    lines = run("--strategy", "full")
    cells = 3 * len(CONFIGS)
    assert f"3 of 3 scenarios, 8 rows, {cells} of {cells} cells (100%), " in "\n".join(lines)
    assert set(files(Path("table"))) == {"run.yaml", "scenarios.csv", "times.csv"}
    assert summary()["finished"] is True and summary()["cells_measured"] == cells
    header = read_run(Path("table")).header
    assert header.provenance["source_hash"] == kernel_source_hash() and header.provenance["seed"] == 0
    assert [config.id for config in header.configs] == CONFIGS
    before = files(Path())
    assert any("the search is finished" in line for line in run("--strategy", "full"))
    assert "table holds 8 rows" in "\n".join(run("--strategy", "full", "--dry-run"))
    assert files(Path()) == before


def test_a_budget_that_is_used_up_ends_the_run_and_a_larger_one_goes_on(run):
    lines = run("--budget", "1", act=lambda scenario, config: time.sleep(1.1 * (config is None)))
    assert "1 of 3 scenarios, 1 rows" in "\n".join(lines) and summary()["finished"] is False
    before = files(Path())
    assert "the budget is used up" in "\n".join(run("--budget", "1"))
    assert files(Path()) == before
    assert "3 of 3 scenarios, 8 rows" in "\n".join(run("--budget", "100"))


def test_a_run_that_fails_half_way_keeps_its_rows_and_how_long_it_took(run, monkeypatch):
    monkeypatch.setattr(pool, "MOST_BROKEN", 0)
    run(act=lambda scenario, config: os._exit(1) if scenario == "b" and config else None, code=2)
    rows = len(read_run(Path("table")).visits)
    assert summary()["rows"] == rows < 3 and summary()["finished"] is False
    assert "3 of 3 scenarios, 8 rows" in "\n".join(run())


def test_a_folder_of_another_run_or_of_something_else_is_refused(run):
    run()
    Path("other").mkdir()
    Path("other/letter.txt").touch()
    before = files(Path())
    for arguments, named in (
        (["--seed", "1"], "seed"),
        (["--strategy", "full"], "strategy"),
        (["--out", "other"], "letter.txt"),
        (["--out", "batches.jsonl"], "batches.jsonl"),
        (["--out", "batches.jsonl/x"], "batches.jsonl/x"),
    ):
        (line,) = run(*arguments, code=2)
        assert line.startswith("attn-tune: ") and named in line
    assert files(Path()) == before


def ended(process, code):
    """What a process prints on stdout until it ends, with this status and nothing on stderr."""
    out, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (code, ""), out
    return out


def rows():
    path = Path("table/times.csv")
    return path.read_text().splitlines()[1:] if path.exists() else []


def wait_for_rows(process, count):
    while len(rows()) < count:
        assert process.poll() is None
        time.sleep(0.01)


def test_a_run_that_is_stopped_keeps_its_rows_and_the_next_one_goes_on(run, capsys):
    with start("-c", COMMAND, *RUN, cwd=Path()) as process:
        wait_for_rows(process, 1)
        process.send_signal(signal.SIGSTOP)
        assert main([*RUN]) == 2  # while the other one writes
        assert "table: another run is writing here" in capsys.readouterr().err
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        assert "\nstopped; table keeps " in ended(process, 130)
    stopped = rows()
    assert 1 <= len(stopped) < 8 and summary()["finished"] is False and summary()["seconds"] > 0.0
    with Path("table/times.csv").open("a") as file:
        file.write("c,9,5")  # as if it had been killed within a row
    assert "3 of 3 scenarios, " in "\n".join(run())
    done = rows()
    assert done[: len(stopped)] == stopped and len({tuple(row.split(",")[:2]) for row in done}) == len(done)
    recorded = read_run(Path("table"))
    assert recorded.header.device_name == "cpu (Triton interpreter)"
    assert all(set(Times(recorded.visits).measured(s)) == set(CONFIGS) for s in recorded.scenarios)
    assert summary()["finished"] is True and summary()["failures"] == {}


def test_mixed_attention_is_measured_in_series_and_as_a_whole_where_no_kernel_works():
    arguments = ["--kernel", "mixed_attention", "--gpus", "cpu", "--out", "table", "--scenarios", "tiny"]
    with start("-c", COMMAND, *arguments, cwd=Path()) as process:
        assert "6 of 6 cells" in ended(process, 0)
    recorded = read_run(Path("table"))
    assert recorded.header.kernel == "mixed_attention" and recorded.header.features == MIXED.features
    assert [config.id for config in recorded.header.configs] == [str(way) for way in WITHOUT_KERNEL]
    assert all(isinstance(cell, float) for visit in recorded.visits for cell in visit.cells.values())
    tiny = {s.name: tuple(s.mixed_features.values()) for s in MIXED.sets["tiny"](0)}
    assert dict(recorded.scenarios) == tiny


def test_a_table_of_mixed_batches_belongs_to_the_modules_that_choose_for_the_parts(monkeypatch, tmp_path):
    before = source_hash_with_choices()
    assert before == source_hash_with_choices() != kernel_source_hash()
    package = tmp_path / "package"
    shutil.copytree(Path(unified_attention.__file__).parent, package)
    monkeypatch.setattr(unified_attention, "__file__", str(package / "__init__.py"))
    assert source_hash_with_choices() == before
    (package / "nvidia_h200.py").write_text("# another tree")
    assert source_hash_with_choices() != before


def test_the_merged_table_of_two_shards_is_that_of_one_run(run):
    full = ("--strategy", "full")
    run(*full, "--shard", "1/2", "--out", "part1")
    run(*full, "--shard", "2/2", "--out", "part2")
    run(*full, "--out", "single")
    assert treegen(["merge", "part1", "part2", "--out", "merged"]) == 0
    merged, whole = read_run(Path("merged")), read_run(Path("single"))
    ours, theirs = Times(merged.visits), Times(whole.visits)  # which visit has which cell differs
    assert merged.scenarios == whole.scenarios
    assert all(ours.measured(scenario) == theirs.measured(scenario) for scenario in whole.scenarios)
    # A run goes on in the merged table as in its own.
    before = Path("merged/times.csv").read_bytes()
    run(*full, "--out", "merged")
    assert Path("merged/times.csv").read_bytes() == before


def test_a_shard_has_a_folder_of_its_own(run):
    assert "--shard 4/5" in run("--shard", "4/5", code=2)[0]
    assert f"to time {len(CONFIGS)} cells of 1 scenarios" in "\n".join(run("--shard", "2/3", "--dry-run"))
    assert main([*RUN[:-2], "--shard", "2/3"]) == 0
    assert read_run(Path("tuning_data/unified_attention/cpu_triton_interpreter-shard-2-of-3")).visits


@pytest.mark.parametrize("kernel", KERNELS.values())
def test_what_the_modules_choose_can_be_checked_again(kernel):
    scenarios = kernel.sets["tiny"](0)
    device = torch.device("cpu")
    chosen = kernel.workload(scenarios, "tiny", 0, device, device_facts(device)).chosen()
    assert list(chosen) == [scenario.name for scenario in scenarios]
    assert set(chosen.values()) <= set(map(str, kernel.configs("cpu")))

"""Runs of attn-tune that end, fail, are stopped or killed, and go on: with stubs, and in the interpreter."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
import yaml
from tuning_workers import BATCHES, NAIVE, OUTPUT_FILES, RUN, Act, command, files, stub

from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.measure.device import kernel_source_hash, source_hash_with_choices
from attn_kernels.tuning.cli import main
from attn_kernels.tuning.kernels import MIXED
from generated import unified_attention
from triton_tune.bench import pool
from triton_tune.core.device import device_facts
from triton_tune.run.fill import GO_ON
from triton_tune.run.replaying import replay
from tuning_table import TableError, TableWriter, read_run

pytestmark = pytest.mark.usefixtures("batches")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run in this process with stubs as workers; stdout, or if it is refused stderr, as lines."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    def run_here(*arguments: str, act: Act = lambda order, now: None, code: int = 0) -> list[str]:
        monkeypatch.setattr(pool, "serve", stub(act, lambda name: device_facts(torch.device(name))))
        assert main.main([*RUN, *arguments]) == code
        message = capsys.readouterr()
        assert (message.err == "") == (code == 0)
        return (message.err or message.out).splitlines()

    return run_here


def summary() -> dict[str, object]:
    return yaml.safe_load(Path("table/run.yaml").read_text())["summary"]


def test_a_run_writes_a_table_and_once_finished_says_so(run: Callable[..., list[str]]) -> None:
    lines = run("--strategy", "full")
    cells = 3 * len(NAIVE)
    assert f"3 of 3 scenarios, 6 rows, {cells} of {cells} cells (100%), " in "\n".join(lines)
    assert set(files(Path("table"))) == {"run.yaml", "scenarios.csv", "times.csv", "dropped.csv"}
    assert summary()["finished"] is True and summary()["cells_measured"] == 3 * len(NAIVE)
    before = files(Path())
    again = run("--strategy", "full")
    assert again[0] == "table: nothing is left to measure; an earlier run finished. Its result:"
    assert again[1:] == lines[-len(again[1:]) :]
    assert files(Path()) == before
    assert run("--strategy", "full", "--budget", "1")[0] == again[0]  # even if its budget were used up


def test_a_dry_run_goes_on_from_the_table(run: Callable[..., list[str]]) -> None:
    run("--strategy", "full")
    before = files(Path())
    message = run("--strategy", "full", "--dry-run")
    assert "; table holds 6 rows from " in message[0] and message[-1] == "nothing is left to measure"
    recorded = yaml.safe_load(Path("table/run.yaml").read_text())
    recorded["summary"]["seconds"] = 700.0
    Path("table/run.yaml").write_text(yaml.safe_dump(recorded))
    message = run("--strategy", "full", "--dry-run")
    assert "of which 700 s are used up" in message[-2] and message[-1].startswith("the budget is used up")
    Path("table/run.yaml").write_bytes(before["table/run.yaml"])
    assert files(Path()) == before


def test_a_budget_that_is_used_up_is_said(run: Callable[..., list[str]]) -> None:
    lines = run("--budget", "1", act=lambda order, now: time.sleep(1.1 * (now == "begin")))
    assert f"table: the budget is used up; {GO_ON}" in lines
    assert "1 of 3 scenarios, 1 rows" in "\n".join(lines) and summary()["finished"] is False
    before = files(Path())
    assert run("--budget", "1") == [f"table: the budget of 1 s is used up; {GO_ON}"]
    assert files(Path()) == before
    assert "3 of 3 scenarios, 6 rows" in "\n".join(run("--budget", "100"))


def test_a_run_that_fails_half_way_keeps_its_rows_and_how_long_it_took(
    run: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_BROKEN", 0)

    def end_at_b(order: object, now: str) -> None:
        if order.scenario.id == "b" and now == NAIVE[0]:
            os._exit(1)

    assert run(act=end_at_b, code=2) == ["cpu: 1 processes broke; the rows so far are kept"]
    rows = len(read_run(Path("table")).visits)
    assert summary()["rows"] == rows < 3 and summary()["finished"] is False
    assert "3 of 3 scenarios, 6 rows" in "\n".join(run())


def test_a_folder_of_another_run_or_of_something_else_is_refused(run: Callable[..., list[str]]) -> None:
    run()
    before = files(Path())
    (line,) = run("--seed", "1", code=2)
    remedy = "choose another folder, or remove this one"
    assert line == f"table: holds a run with seed 0, but this run has 1: {remedy}"
    (line,) = run("--strategy", "full", code=2)
    assert line.startswith("table: holds a run with strategy 'race', but this run has 'full': ")
    (line,) = run("--variants", "naive,split", code=2)
    assert line.startswith("table: holds a run with configs[")
    assert files(Path()) == before
    Path("other").mkdir()
    Path("other/letter.txt").touch()
    assert run("--out", "other", code=2)[0].startswith("other: holds letter.txt but no run.yaml")
    assert run("--out", "batches.jsonl", code=2)[0].startswith(
        "batches.jsonl: cannot be used: Not a directory"
    )
    assert run("--out", "batches.jsonl/x", code=2)[0].startswith("batches.jsonl/x: cannot be used: Not a dir")
    assert files(Path()) == before | {"other/letter.txt": b""}


@pytest.mark.parametrize(("name", "text", "message"), [
    ("run.yaml", "[", "table/run.yaml"),
    ("times.csv", "scenario,repeat\n", "table/times.csv:1: "),
    ("times.csv", b"\xff\n", "table/times.csv:1: not UTF-8 text"),
    ("scenarios.csv", "", "table/scenarios.csv"),
])  # fmt: skip
def test_a_table_that_cannot_be_read_is_left_as_it_is(
    run: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | bytes,
    message: str,
) -> None:
    run()
    (Path("table") / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    before = files(Path())
    for line in (*run(code=2), *run("--replay", "table", code=2)):
        assert line.startswith(message)
    assert files(Path()) == before


def test_scenarios_in_which_nothing_may_be_measured_are_refused(run: Callable[..., list[str]]) -> None:
    Path("batches.jsonl").write_text(
        '{"query_lens": [16384], "context_lens": [16384], "num_query_heads": 32, "num_kv_heads": 8, '
        '"head_size": 128, "block_size": 16}\n'
    )
    (line,) = run(code=2)
    assert line == "no config of these variants may be measured in any of these scenarios"
    assert not Path("table").exists()


def test_a_table_is_replayed(run: Callable[..., list[str]]) -> None:
    run()
    before = files(Path())
    lines = run("--replay", "table")
    assert lines == run("--replay", "table") and len(lines) == 3
    assert lines[0] == f"table: 3 scenarios, {3 * len(NAIVE)} cells"
    assert files(Path()) == before


def test_an_interrupt_before_anything_was_measured(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., list[str]]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "GpuBench", interrupted)
    assert run(code=130) == ["stopped before anything was measured"]
    assert not Path("table").exists()


def test_a_full_disk_ends_the_run(monkeypatch: pytest.MonkeyPatch, run: Callable[..., list[str]]) -> None:
    def full(*_: object) -> None:
        raise TableError("table", "cannot be used: No space left on device")

    monkeypatch.setattr(TableWriter, "append", full)
    assert run(code=2) == ["table: cannot be used: No space left on device"]


def ended(process: BaseProcess, code: int) -> dict[str, str]:
    process.join(120)
    assert process.exitcode == code, {name: Path(name).read_text() for name in OUTPUT_FILES}
    return {name: Path(name).read_text() for name in OUTPUT_FILES}


def rows() -> list[str]:
    path = Path("table/times.csv")
    return path.read_text().splitlines()[1:] if path.exists() else []


def wait_for_rows(process: BaseProcess, count: int) -> None:
    while len(rows()) < count:
        assert process.is_alive(), Path("stderr").read_text()
        time.sleep(0.01)


def test_a_run_that_is_stopped_and_killed_goes_on_to_its_end() -> None:
    with command(Path(), RUN, hold_after=1) as first:
        wait_for_rows(first, 1)
        elsewhere = Path("elsewhere")
        elsewhere.mkdir()
        (elsewhere / "batches.jsonl").write_text(BATCHES)
        table = str(Path("table").resolve())
        with command(elsewhere, [*RUN[:-1], table]) as second:
            second.join(120)
            assert second.exitcode == 2
        refusal = (elsewhere / "stderr").read_text()
        assert refusal.startswith(f"{table}: another run is writing here: wait for its end")
        assert (elsewhere / "stdout").read_text() == ""

        os.kill(first.pid, signal.SIGINT)
        message = ended(first, 130)
    assert message["stderr"] == "" and "\nstopped; table keeps " in message["stdout"]
    assert "the same command goes on from there" in message["stdout"]
    stopped = rows()
    assert len(stopped) == 1 and summary()["finished"] is False and summary()["seconds"] > 0.0

    with command(Path(), RUN, hold_after=2) as third:
        wait_for_rows(third, 3)
    with Path("table/times.csv").open("a") as file:
        file.write("c,9,5")  # as if it had been killed within a row
    killed = rows()[:-1]
    assert killed[:1] == stopped and len(killed) == 3

    arguments = [sys.executable, "-m", "attn_kernels.tuning", *RUN]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "table: nothing is left to measure\n3 of 3 scenarios, " in done.stdout
    assert "fastest: naive in 3" in done.stdout
    assert rows()[:3] == killed and len({tuple(row.split(",")[:2]) for row in rows()}) == len(rows())
    recorded = read_run(Path("table"))
    assert set(recorded.scenarios) == {"a", "b", "c"}
    assert [config.id for config in recorded.header.configs] == NAIVE
    assert recorded.header.device_name == "cpu (Triton interpreter)"
    assert all(len(v.cells) == len(NAIVE) for v in recorded.visits if v.repeat == 1)
    assert summary()["finished"] is True and summary()["failures"] == {}

    before = files(Path("table"))
    with command(Path(), RUN) as last:
        message = ended(last, 0)
    assert message["stdout"].startswith(
        "table: nothing is left to measure; an earlier run finished. Its result:\n"
    )
    after = files(Path("table"))
    assert {**after, "run.yaml": b""} == {**before, "run.yaml": b""}


MIXED_RUN = ("--kernel", "mixed_attention", "--gpus", "cpu", "--out", "table")


def test_mixed_attention_is_measured_in_series_and_as_a_whole_where_no_kernel_works() -> None:
    with command(Path(), [*MIXED_RUN, "--scenarios", "tiny"]) as process:
        message = ended(process, 0)
    recorded = read_run(Path("table"))
    # At least one row a scenario; how many more depends on noise, as those near the best are timed again.
    rows = len(recorded.visits)
    assert 3 <= rows <= 9
    assert message["stderr"] == "" and f"3 of 3 scenarios, {rows} rows, 6 of 6 cells" in message["stdout"]
    assert recorded.header.kernel == "mixed_attention" and recorded.header.features == MIXED.features
    assert [config.id for config in recorded.header.configs] == [str(way) for way in WITHOUT_KERNEL]
    for config in recorded.header.configs:
        assert config.parameters == dict.fromkeys(MIXED.parameters, 0)
    assert all(isinstance(cell, float) for visit in recorded.visits for cell in visit.cells.values())
    tiny = {s.id: tuple(s.batch.mixed_features.values()) for s in MIXED.sets["tiny"](0)}
    assert dict(recorded.scenarios) == tiny
    replayed = replay(Path("table"), "race", 100.0)
    assert replayed[0] == "table: 3 scenarios, 6 cells" and "1.0000 (geometric mean)" in replayed[-1]


def test_a_table_of_mixed_batches_belongs_to_the_modules_that_choose_for_the_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = source_hash_with_choices()
    assert before == source_hash_with_choices() != kernel_source_hash()
    package = tmp_path / "package"
    shutil.copytree(Path(unified_attention.__file__).parent, package)
    monkeypatch.setattr(unified_attention, "__file__", str(package / "__init__.py"))
    assert source_hash_with_choices() == before
    (package / "nvidia_h200.py").write_text("# another tree")
    assert source_hash_with_choices() != before

"""`attn-tune --shard` and `treegen merge`: two hosts' tables become that of one run."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tuning_workers import NAIVE, RUN, files, stub

from attn_kernels.tuning.cli import main
from treegen.cli.main import main as treegen
from triton_tune.bench import pool
from triton_tune.core.device import device_facts
from tuning_table import read_run
from tuning_table.visit_log import read_visit_log

pytestmark = pytest.mark.usefixtures("batches")
ARGUMENTS = (*RUN[:-2], "--strategy", "full")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run in this process with stubs as workers, of the name `worker`; its lines."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    def run_here(*arguments: str, worker: str = "host-1/cpu", code: int = 0) -> list[str]:
        monkeypatch.setattr(
            pool, "serve", stub(lambda *_: None, lambda name: device_facts(torch.device(name)), worker)
        )
        assert main.main([*ARGUMENTS, *arguments]) == code
        message = capsys.readouterr()
        return (message.err or message.out).splitlines()

    return run_here


def test_the_merged_table_is_that_of_one_run(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    run("--shard", "1/2", "--out", "part1", worker="host-1/cpu")
    run("--shard", "2/2", "--out", "part2", worker="host-2/cpu")
    run("--out", "whole")
    assert treegen(["merge", "part1", "part2", "--out", "merged"]) == 0
    assert capsys.readouterr().out.splitlines() == ["merged: 6 rows added from 2 tables"]
    merged, whole = read_run(Path("merged")), read_run(Path("whole"))
    assert sorted(map(repr, merged.visits)) == sorted(map(repr, whole.visits))
    assert merged.scenarios == whole.scenarios
    log = read_visit_log(Path("merged"))
    assert {line.worker for line in log.values()} == {"host-1/cpu", "host-2/cpu"}
    assert {(line.calibration_us, line.slowdown) for line in log.values()} == {(7.0, 1.0)}
    # A run goes on in the merged table as in its own.
    assert (
        run("--out", "merged")[0]
        == "merged: nothing is left to measure; an earlier run finished. Its result:"
    )
    before = files(Path("merged"))
    assert treegen(["merge", "part2", "part1", "--out", "merged"]) == 0
    assert files(Path("merged")).keys() == before.keys()


def test_a_shard_has_a_folder_of_its_own_and_goes_on(run: Callable[..., list[str]]) -> None:
    (line, *_) = run("--shard", "2/3")
    folder = Path("tuning_data/unified_attention/cpu_triton_interpreter-shard-2-of-3")
    assert line.startswith("compile for") or str(folder) in line or line.startswith("sweep")
    assert len(read_run(folder).visits) == 2
    assert "nothing is left to measure; an earlier run" in run("--shard", "2/3")[0]
    assert run("--shard", "4/5", code=2) == ["--shard 4/5: there are only 3 scenarios to divide"]


def test_a_dry_run_describes_the_shard(run: Callable[..., list[str]]) -> None:
    lines = run("--shard", "1/3", "--dry-run")
    assert lines[1].startswith("1 scenarios at 1 shapes: ")
    assert f"{len(NAIVE)} cells may be measured" in "\n".join(lines)


def test_a_gpu_that_becomes_slow_gives_its_rows_the_longer_time(
    run: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton_tune.fleet import calibrated

    times = iter([7.0, 9.0, 8.0])  # before the first repeats, between, and after the second
    monkeypatch.setattr(calibrated.Calibration, "microseconds", lambda self, visits: next(times))
    run("--shard", "1/1", "--out", "part", worker="h/0")
    log = read_visit_log(Path("part"))
    assert {(line.repeat, line.calibration_us) for line in log.values()} == {(1, 9.0), (2, 9.0)}

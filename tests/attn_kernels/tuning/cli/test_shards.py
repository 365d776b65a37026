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

pytestmark = pytest.mark.usefixtures("batches")
ARGUMENTS = (*RUN[:-2], "--strategy", "full")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run in this process with stubs as workers; its lines."""
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    serve = stub(lambda *_: None, lambda name: device_facts(torch.device(name)))
    monkeypatch.setattr(pool, "serve", serve)

    def run_here(*arguments: str, code: int = 0) -> list[str]:
        assert main.main([*ARGUMENTS, *arguments]) == code
        message = capsys.readouterr()
        return (message.err or message.out).splitlines()

    return run_here


def test_the_merged_table_is_that_of_one_run(
    run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    run("--shard", "1/2", "--out", "part1")
    run("--shard", "2/2", "--out", "part2")
    run("--out", "whole")
    assert treegen(["merge", "part1", "part2", "--out", "merged"]) == 0
    assert "6 rows" in capsys.readouterr().out
    merged, whole = read_run(Path("merged")), read_run(Path("whole"))
    assert sorted(map(repr, merged.visits)) == sorted(map(repr, whole.visits))
    assert merged.scenarios == whole.scenarios
    # A run goes on in the merged table as in its own.
    assert "nothing is left to measure" in run("--out", "merged")[0]
    before = files(Path("merged"))
    assert treegen(["merge", "part2", "part1", "--out", "merged"]) == 0
    assert files(Path("merged")).keys() == before.keys()


def test_a_shard_has_a_folder_of_its_own_and_goes_on(run: Callable[..., list[str]]) -> None:
    run("--shard", "2/3")
    folder = Path("tuning_data/unified_attention/cpu_triton_interpreter-shard-2-of-3")
    assert len(read_run(folder).visits) == 2
    assert "nothing is left to measure" in run("--shard", "2/3")[0]
    (refusal,) = run("--shard", "4/5", code=2)
    assert "--shard 4/5" in refusal


def test_a_dry_run_describes_the_shard(run: Callable[..., list[str]]) -> None:
    lines = run("--shard", "1/3", "--dry-run")
    assert lines[1].startswith("1 scenarios at 1 shapes: ")
    assert f"{len(NAIVE)} cells may be measured" in "\n".join(lines)

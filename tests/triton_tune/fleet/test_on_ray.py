"""Runs on Ray: real processes that replay a recorded table, and a kernel in Triton's interpreter."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from attn_kernels.tuning.space.space import ATTENTION
from benchmarks.fleet.replayed import Replay, replayed, tune_replayed
from triton_tune.cli.main import main
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Times
from triton_tune.fleet.on_ray import connected
from triton_tune.run.replay import problem_of
from triton_tune.search.check import CheckFirst
from triton_tune.search.strategies import STRATEGIES
from tuning_table import Failure, read_run
from tuning_table.table import Cell, Visit
from tuning_table.visit_log import read_visit_log

pytest.importorskip("ray", reason="Ray is not installed: pip install 'attn-kernels[fleet]'")
ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tuning_data/unified_attention/other_models_nvidia_h200"


def single_run() -> list[Visit]:
    """The visits of a search without a fleet."""
    recorded = read_run(TABLE)
    cells, times, visits = Times(recorded.visits), Times(), list[Visit]()
    problem = problem_of(recorded, ATTENTION)
    search = CheckFirst(STRATEGIES["full"](problem), problem)
    while (planned := search.next_round(times, 0.0)) is not None:
        for task in planned.tasks:
            visits.append(replayed(cells, task))
            times.add(visits[-1])
    return visits


def rows_of(visits: Iterable[Visit]) -> list[tuple[str, int, dict[str, Cell]]]:
    return sorted((visit.scenario, visit.repeat, dict(visit.cells)) for visit in visits)


def wait_for_rows(folder: Path, rows: int) -> None:
    end = time.monotonic() + 120.0
    while not (folder / "times.csv").exists() or (folder / "times.csv").read_bytes().count(b"\n") <= rows:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stopped_driver_and_killed_and_refused_workers_cost_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, expected = tmp_path / "nvidia_h200", rows_of(single_run())
    command = [sys.executable, "-m", "benchmarks.fleet.replayed", str(TABLE), "--out", str(tmp_path)]
    command += ["--strategy", "full", "--workers", "1", "--second", "0.05"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        wait_for_rows(folder, 10)
        process.terminate()
        assert process.wait(60) == 130
    before = rows_of(read_run(folder).visits)
    summary = read_run(folder).header.provenance["summary"]
    assert len(before) == summary["rows"]
    killed: list[str] = []

    def kill() -> None:
        wait_for_rows(folder, len(before) + 10)
        killed.append(list(read_visit_log(folder).values())[-1])
        os.kill(int(killed[0].partition("/")[2]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with connected("local") as ray:
        replay = Replay(TABLE, second=0.1, changes={0: {"torch": "1.0"}})
        assert tune_replayed(ray, replay, tmp_path, "full", 600.0, 3) == 0
    killer.join()
    after = rows_of(read_run(folder).visits)
    assert after == expected and all(row in after for row in before)
    lines = capsys.readouterr().out.splitlines()
    (lost,) = [line for line in lines if line.startswith(f"{killed[0]}: ")]
    (refused,) = [line for line in lines if " is not used: its torch is 1.0" in line]
    workers = read_visit_log(folder).values()
    assert len(lost) < 400 and killed[0] in workers and refused.partition(" ")[0] not in workers


def test_a_kernel_of_ones_own_is_tuned_on_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = ROOT / "tests" / "helpers" / "scaled_kernel.py"
    command = [str(kernel), "--kernel", "scaled", "--gpus", "cpu", "--out", str(tmp_path)]
    assert main([*command, "--ray", "local", "--strategy", "full"]) == 0
    assert "12 of 12 scenarios" in capsys.readouterr().out
    found = read_run(tmp_path / "scaled" / "cpu_triton_interpreter")
    assert {visit.scenario for visit in found.visits} == set(found.scenarios)
    assert any(isinstance(cell, Failure) for visit in found.visits for cell in visit.cells.values())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "ray://a:1", "somewhere"])
def test_an_address_without_a_cluster_is_refused_at_once(address: str) -> None:
    with pytest.raises(TuningError, match=f"--ray '?{address}") as caught, connected(address):
        pass
    assert "\n" not in str(caught.value)

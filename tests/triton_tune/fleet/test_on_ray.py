"""Runs on Ray: real processes that replay a recorded table."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_runs import ROOT, TABLE, command, same_rows, single_run, wait_for_rows

from benchmarks.fleet.replayed import plan_of, source_of
from triton_tune.core.errors import TuningError
from triton_tune.fleet.on_ray import RaySource, connected
from triton_tune.fleet.plan import Arrival
from triton_tune.fleet.replay import ReplayedWorker, same_stack
from triton_tune.fleet.run import run_fleet
from triton_tune.fleet.station import Work
from tuning_table import Failure, TableError, TableWriter, read_run
from tuning_table.visit_log import read_visit_log

pytest.importorskip("ray", reason="Ray is not installed: pip install 'attn-kernels[fleet]'")
WORKER = ReplayedWorker("", second=0.2)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with connected("local") as module:
        yield module


class Several:
    """Workers of several kinds. All `sources` come together; those of `late` once there is a row."""

    def __init__(
        self, sources: Sequence[RaySource], late: Sequence[RaySource] = (), out: Path = Path()
    ) -> None:
        self._sources, self._late, self._out = list(sources), list(late), out
        self._held: list[Arrival] = []

    def arrivals(self) -> list[Arrival]:
        found = [arrival for source in self._sources for arrival in source.arrivals()]
        if self._late and list(self._out.glob("*/visits.csv")):
            self._sources, self._late = self._sources + self._late, []
        self._held += found
        if self.waiting_for() and not self._came:
            return []
        held, self._held, self._came = self._held, [], True
        return sorted(held, key=lambda arrival: arrival.facts.versions != same_stack(read_run(TABLE)))

    _came = False

    def crew(self, work: Work) -> Any:
        return self._sources[0].crew(work)

    def waiting_for(self) -> str | None:
        """As long as one is awaited, the others are."""
        return next((what for source in self._sources if (what := source.waiting_for())), None)


def test_the_table_is_that_of_a_single_run(ray: Any, tmp_path: Path) -> None:
    assert run_fleet(source_of(ray, TABLE, WORKER, 3), plan_of(TABLE, tmp_path, "race", 600.0)) == 0
    found = read_run(tmp_path / "nvidia_h200")
    same_rows(found, single_run("race"))
    workers = {line.worker for line in read_visit_log(tmp_path / "nvidia_h200").values()}
    assert len(workers) == 3
    assert found.header.provenance["summary"]["finished"] is True


def test_workers_may_die_and_join_late(ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = replace(WORKER, second=0.6)  # long enough for a process to start meanwhile
    sources = [source_of(ray, TABLE, worker, 1), source_of(ray, TABLE, replace(worker, dies_after=5), 1)]
    late = [source_of(ray, TABLE, worker, 1)]
    plan = plan_of(TABLE, tmp_path, "full", 600.0)
    assert run_fleet(Several(sources, late, tmp_path), plan) == 0
    same_rows(read_run(tmp_path / "nvidia_h200"), single_run("full"))
    told = [line for line in capsys.readouterr().out.splitlines() if "its visits go to other workers" in line]
    assert told and all(len(line) < 400 for line in told)
    workers = [line.worker for line in read_visit_log(tmp_path / "nvidia_h200").values()]
    assert min(workers.count(worker) for worker in set(workers)) <= 5 < len(workers)
    assert len(set(workers)) >= 3


def test_a_worker_that_is_killed_loses_only_its_visits(ray: Any, tmp_path: Path) -> None:
    source = source_of(ray, TABLE, WORKER, 2)
    killed: list[int] = []

    def kill() -> None:
        wait_for_rows(tmp_path / "nvidia_h200", 10)
        log = read_visit_log(tmp_path / "nvidia_h200")
        pid = int(next(iter(log.values())).worker.partition("/")[2])
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    assert run_fleet(source, plan_of(TABLE, tmp_path, "full", 600.0)) == 0
    killer.join()
    assert killed
    same_rows(read_run(tmp_path / "nvidia_h200"), single_run("full"))


def test_other_versions_are_refused_by_name_and_other_models_have_their_own_table(
    ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes: list[dict[str, str]] = [
        {"torch": "1.0"},
        {"source_hash": "abc"},
        {"driver": "1.2"},
        {"device": "NVIDIA H100 80GB HBM3"},
    ]
    sources = [source_of(ray, TABLE, replace(WORKER, versions=change), 1) for change in changes]
    plan = plan_of(TABLE, tmp_path, "full", 600.0)
    assert run_fleet(Several([source_of(ray, TABLE, WORKER, 2), *sources]), plan) == 0
    lines = capsys.readouterr().out.splitlines()
    refused = [line.partition(" is not used: ")[2] for line in lines if " is not used: " in line]
    stack = read_run(TABLE).header.provenance
    assert f"its torch is 1.0, but that of this process is {stack['torch']}" in refused
    assert f"its source_hash is abc, but that of this process is {stack['source_hash']}" in refused
    assert any(line.startswith("its driver is 1.2, but that of ") for line in refused) and len(refused) == 3
    for name in ("nvidia_h200", "nvidia_h100"):
        same_rows(read_run(tmp_path / name), single_run("full"))


def test_a_cluster_whose_workers_are_all_refused(
    ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source_of(ray, TABLE, replace(WORKER, versions={"triton": "0"}), 2)
    assert run_fleet(source, plan_of(TABLE, tmp_path, "full", 600.0)) == 2
    message = capsys.readouterr()
    assert message.err == "no worker can be used; the lines above say why\n"
    assert message.out.count("its triton is 0, but that of this process is") == 2
    assert not list(tmp_path.iterdir())


def test_workers_that_end_as_they_begin(ray: Any, tmp_path: Path) -> None:
    source = source_of(ray, tmp_path / "none", WORKER, 2)
    with pytest.raises(
        TuningError, match=r"workers end as they begin: .*TableError: .*none: no such table folder"
    ):
        run_fleet(source, plan_of(TABLE, tmp_path, "full", 600.0))


def test_a_full_disk_keeps_the_rows_and_is_told_in_one_line(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append, calls = TableWriter.append_all, [0]

    def full(table: TableWriter, visits: Any) -> None:
        calls[0] += 1
        if calls[0] > 5:
            raise TableError(table.folder, f"cannot be used: {os.strerror(errno.ENOSPC)}")
        append(table, visits)

    plan = plan_of(TABLE, tmp_path, "full", 600.0)
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "append_all", full)
        assert run_fleet(source_of(ray, TABLE, WORKER, 2), plan) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'nvidia_h200'}: cannot be used: No space left on device\n"
    assert 5 <= len(read_run(tmp_path / "nvidia_h200").visits) < 100
    assert run_fleet(source_of(ray, TABLE, WORKER, 2), plan) == 0
    same_rows(read_run(tmp_path / "nvidia_h200"), single_run("full"))


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("127.0.0.1:1", "--ray 127.0.0.1:1: no Ray cluster answers there: Connection refused"),
        ("127.0.0.1:99999", "--ray 127.0.0.1:99999: no Ray cluster answers there: "),
        ("ray://a:1", "--ray 'ray://a:1': write host:port of the cluster's head"),
        ("somewhere", "--ray 'somewhere': write host:port of the cluster's head"),
    ],
)
def test_wrong_addresses(address: str, what: str) -> None:
    with pytest.raises(TuningError) as caught, connected(address):
        pass
    assert str(caught.value).startswith(what) and "\n" not in str(caught.value)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_stopped_goes_on(tmp_path: Path, sent: signal.Signals) -> None:
    folder = tmp_path / "nvidia_h200"
    with command(tmp_path) as process:
        wait_for_rows(folder, 20)
        process.send_signal(sent)
        assert process.wait(60) == (-sent if sent == signal.SIGKILL else 130)
        if sent != signal.SIGKILL:
            assert process.stdout is not None
            assert "the same command goes on from there" in process.stdout.read()
    rows = {(visit.scenario, visit.repeat) for visit in read_run(folder).visits}
    assert len(rows) >= 20
    with command(tmp_path, "--second", "0.01") as process:
        assert process.wait(120) == 0
    after = read_run(folder)
    same_rows(after, single_run("full"))
    assert rows <= {(visit.scenario, visit.repeat) for visit in after.visits}


def test_a_kernel_of_ones_own_is_tuned_on_ray(tmp_path: Path) -> None:
    kernel = Path(__file__).parents[2] / "helpers" / "scaled_kernel.py"
    command = [sys.executable, "-m", "triton_tune", str(kernel), "--kernel", "scaled", "--gpus", "cpu"]
    command += ["--ray", "local", "--ray-workers", "2", "--strategy", "full", "--out", str(tmp_path)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "12 of 12 scenarios" in done.stdout
    found = read_run(tmp_path / "scaled" / "cpu_triton_interpreter")
    assert {visit.scenario for visit in found.visits} == set(found.scenarios)
    assert any(isinstance(cell, Failure) for visit in found.visits for cell in visit.cells.values())

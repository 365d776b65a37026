"""A process that measures ends with the run, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT = """
import sys, time, torch
from pathlib import Path
from attn_kernels.core.config import Config
from attn_kernels.tuning.bench.gpu import measure
from triton_tune.bench import pool
from triton_tune.core.problem import PlannedVisit
from attn_kernels.tuning.scenarios.recorded import read_recorded
from triton_tune.bench.worker import Order, Trying

if __name__ == "__main__":
    short, long = read_recorded(Path(sys.argv[1]))
    bench = pool.GpuBench([torch.device("cpu")], pool.Subject({short.id: short}, measure, None), 0)
    bench.configs = {"c": Config("naive", 1, 32)}
    (visit,) = bench.measure([PlannedVisit(short.id, 1, ("c",))], bench.clock() + 1e9)
    (worker,) = bench._workers
    worker.connection.send(Order(long, 1, tuple(bench.configs.items())))
    assert isinstance(worker.connection.recv(), Trying)
    print(visit.cells["c"] > 0, bench.facts["arch"], worker.process.pid, flush=True)
    time.sleep(1000)
"""
BATCH = (
    '{{"query_lens": [{0}], "context_lens": [{0}], "num_query_heads": 1, "num_kv_heads": 1, "head_size": 16, '
    '"block_size": 16}}\n'
)


def test_a_real_process_measures_and_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    # The second takes the interpreter half an hour, in which the process hears of nothing.
    (tmp_path / "batches.jsonl").write_text(BATCH.format(1) + BATCH.format(4096))
    command = [sys.executable, "parent.py", "batches.jsonl"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            fine, arch, child = parent.stdout.readline().split()
            assert (fine, arch) == ("True", "cpu")
            assert running(int(child))
        finally:
            parent.kill()
    end = time.monotonic() + 60
    while running(int(child)) and time.monotonic() < end:
        time.sleep(0.05)
    if running(int(child)):
        os.kill(int(child), signal.SIGKILL)
        raise AssertionError("the process outlived its parent")


def running(pid: int) -> bool:
    """Whether the process is there, and no zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

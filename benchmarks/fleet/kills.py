"""Kill a run on Ray at random moments, drivers and workers, and check its table each time.

    python -m benchmarks.fleet.kills --kills 50

Workers replay a recorded table. After each kill every row must be whole, must be there once, and must be what
a run without kills gives; and no row that was there before may be missing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attn_kernels.tuning.space.space import ATTENTION
from benchmarks.fleet.scale import alone
from triton_tune.core.problem import Times
from triton_tune.run.replay import problem_of
from tuning_table import read_run
from tuning_table.names import device_key
from tuning_table.table import RUN, Cell
from tuning_table.visit_log import read_visit_log

Rows = dict[tuple[str, int], dict[str, Cell]]
LONGEST_S = 3.0  # from a new row to a kill
FINISH_S = 600.0


def rows_of(folder: Path) -> Rows:
    """The rows of a table that is being written; none before it is there."""
    if not (folder / RUN).exists():
        return {}
    visits = read_run(folder).visits
    found: Rows = {(visit.scenario, visit.repeat): dict(visit.cells) for visit in visits}
    assert len(found) == len(visits), "a row is there twice"
    return found


def check(folder: Path, before: Rows, expected: Rows) -> Rows:
    """The rows now. Raises AssertionError if one is missing, changed, wrong or of an unknown worker."""
    now = rows_of(folder)
    assert before.items() <= now.items(), "a row is missing or changed"
    assert now.items() <= expected.items(), "a row is not what a run without kills gives"
    if now:
        assert now.keys() <= read_visit_log(folder).keys(), "a row has no worker"
    return now


def kill(run: subprocess.Popen[str], folder: Path, rng: random.Random) -> str | None:
    """Kill the driver or one of its workers; what was killed, or None if the run has ended."""
    workers = {int(line.worker.partition("/")[2]) for line in list(read_visit_log(folder).values())[-20:]}
    alive = sorted(pid for pid in workers if Path(f"/proc/{pid}").exists())
    if run.poll() is not None:
        return None
    if alive and rng.random() < 0.5:
        os.kill(rng.choice(alive), signal.SIGKILL)
        return "worker"
    run.kill()
    run.wait()
    return "driver"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in a table is an AssertionError."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--table", type=Path, default=Path("tuning_data/unified_attention/nvidia_h200"))
    parser.add_argument("--second", type=float, default=0.5, help="what an estimated second takes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    recorded = read_run(options.table)
    single = alone(problem_of(recorded, ATTENTION), Times(recorded.visits), "full")
    expected: Rows = {(visit.scenario, visit.repeat): dict(visit.cells) for visit in single}
    rng, counts = random.Random(options.seed), {"driver": 0, "worker": 0}
    with tempfile.TemporaryDirectory() as out:
        folder = Path(out) / device_key(recorded.header.device_name)

        def start(second: float) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "benchmarks.fleet.replayed", str(options.table), "--out", out]
            command += ["--strategy", "full", "--workers", "2", "--second", str(second), "--budget", "100000"]
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)

        rows: Rows = {}
        run = start(options.second)
        while sum(counts.values()) < options.kills:
            had = len(rows)
            while run.poll() is None and len(rows_of(folder)) <= had:
                time.sleep(0.1)
            time.sleep(rng.uniform(0.0, LONGEST_S))
            what = kill(run, folder, rng)
            rows = check(folder, rows, expected)
            if what is None:
                assert run.returncode == 0 and rows == expected, "the run ended early"
                print("the run ended before all kills; take a larger --second")
                return 1
            counts[what] += 1
            print(f"{sum(counts.values())}: killed a {what}, {len(rows)} rows", flush=True)
            if what == "driver":
                run = start(options.second)
        run.kill()
        run.wait()
        run = start(options.second / 50)
        assert run.wait(FINISH_S) == 0, "the last run failed"
        rows = check(folder, rows, expected)
        assert rows == expected, "rows are missing at the end"
    print(
        f"{counts['driver']} drivers and {counts['worker']} workers were killed; the table holds all "
        f"{len(rows)} rows of a run without kills, each once"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

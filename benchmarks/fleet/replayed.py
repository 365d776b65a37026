"""A tuning run on Ray whose workers replay a recorded table: real processes, without a GPU.

python -m benchmarks.fleet.replayed tuning_data/unified_attention/untuned_nvidia_h200 --out /tmp/replayed
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.errors import TuningError
from triton_tune.fleet.on_ray import RaySource, connected
from triton_tune.fleet.plan import FleetPlan, Prepared
from triton_tune.fleet.replay import ReplayedWorker, ReplayStation, same_stack
from triton_tune.fleet.run import run_fleet
from triton_tune.fleet.station import WorkerFacts
from triton_tune.run.replay import problem_of
from triton_tune.search.strategies import STRATEGIES
from tuning_table import TableError, TableWriter, create, read_run
from tuning_table.names import device_key
from tuning_table.table import RecordedRun


def plan_of(folder: Path, out: Path, strategy: str, budget: float) -> FleetPlan:
    """A plan whose tables are written below `out`, by the name of the device."""
    recorded = read_run(folder)
    versions = same_stack(recorded)
    versions.pop("driver")  # which this process need not have

    def prepare(facts: WorkerFacts) -> Prepared:
        configs = recorded.header.provenance["configs"]
        target = out / device_key(str(facts.device["name"]))
        return Prepared(
            problem_of(recorded, ATTENTION),
            dict.fromkeys(config["id"] for config in configs),
            lambda: table_like(recorded, target, dict(facts.device), strategy),
        )

    return FleetPlan(prepare, versions, strategy, budget)


def table_like(
    recorded: RecordedRun, target: Path, device: Mapping[str, str | int], strategy: str
) -> TableWriter:
    """Create an empty table of the same run, or go on in it."""
    run: dict[str, Any] = {**recorded.header.provenance, "device": device, "strategy": strategy}
    for key in ("format", "summary"):
        run.pop(key, None)
    return create(target, scenarios=recorded.scenarios, **run)


def station(folder: Path, worker: ReplayedWorker) -> ReplayStation:
    """A station that is named by its host and process."""
    return ReplayStation(folder, replace(worker, name=f"{socket.gethostname()}/{os.getpid()}"))


def source_of(ray: Any, folder: Path, worker: ReplayedWorker, count: int) -> RaySource:
    options = {"num_cpus": 0, "num_gpus": 0}
    return RaySource(ray, station, (folder.resolve(), worker), options, "CPU", count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, 2 for wrong input, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the tables that are written")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--second", type=float, default=0.3, help="what an estimated second takes")
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="race")
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--ray", default="local", help="the cluster's address (default: a new one here)")
    options = parser.parse_args(arguments)
    try:
        plan = plan_of(options.table, options.out, options.strategy, options.budget)
        with connected(options.ray) as ray:
            worker = ReplayedWorker("", second=options.second)
            return run_fleet(source_of(ray, options.table, worker, options.workers), plan)
    except (TuningError, TableError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

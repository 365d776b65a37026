"""A tuning run on Ray whose workers replay a recorded table: real processes, without a GPU.

python -m benchmarks.fleet.replayed tuning_data/unified_attention/other_models_nvidia_h200 --out /tmp/replayed
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.fleet.command import measure_on_workers
from triton_tune.fleet.on_ray import Workers, connected
from triton_tune.fleet.options import estimated_s
from triton_tune.fleet.worker import WorkerFacts
from triton_tune.run.replay import problem_of
from triton_tune.run.workload import Space
from triton_tune.search.strategies import STRATEGIES
from tuning_table import TableError, TableWriter, create, read_run
from tuning_table.names import device_key
from tuning_table.table import RecordedRun, Visit


@dataclass(frozen=True)
class Replay:
    """What a worker replays.

    second: the real seconds that a second of the estimate takes. changes: versions, or the device's name, in
    which the worker whose number is a key differs from the table.
    """

    table: Path
    second: float = 0.3
    changes: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


class ReplayWorker:
    """An actor in place of `GpuWorker`. It is named by its host and process."""

    def __init__(self, replay: Replay, counter: Any) -> None:
        import ray

        recorded = read_run(replay.table)
        self._times, self._second = Times(recorded.visits), replay.second
        versions = {**stack_of(recorded), **replay.changes.get(ray.get(counter.next.remote()), {})}
        device = dict(recorded.header.provenance["device"])
        device["name"] = versions.pop("device", device["name"])
        self._facts = WorkerFacts(f"{socket.gethostname()}/{os.getpid()}", device, versions)

    def facts(self) -> WorkerFacts:
        return self._facts

    def visit(self, task: PlannedVisit, configs: Mapping[str, Hashable]) -> Visit:
        time.sleep(estimated_s(len(task.configs)) * self._second)
        return replayed(self._times, task)


class Counter:
    """An actor that numbers the workers."""

    def __init__(self) -> None:
        self._count = -1

    def next(self) -> int:
        self._count += 1
        return self._count


def replayed(times: Times, task: PlannedVisit) -> Visit:
    """The recorded cells: a cell's repeat `n` is its n-th record, and after the last the first again."""
    cells = times.measured(task.scenario)
    row = {config: cells[config][(task.repeat - 1) % len(cells[config])] for config in task.configs}
    return Visit(task.scenario, task.repeat, row)


def stack_of(recorded: RecordedRun) -> dict[str, str]:
    """The versions of a recorded table."""
    provenance = recorded.header.provenance
    return {key: str(provenance.get(key)) for key in ("driver", "torch", "triton", "source_hash")}


def tune_replayed(ray: Any, replay: Replay, out: Path, strategy: str, budget: float, count: int) -> int:
    """Tune with `count` workers; the table's folder is below `out`. Returns the exit code."""
    recorded = read_run(replay.table)
    needed = stack_of(recorded)
    needed.pop("driver")  # which this process need not have

    def prepare(facts: WorkerFacts) -> tuple[Space, TableWriter]:
        run = {**recorded.header.provenance, "device": dict(facts.device), "strategy": strategy}
        for key in ("format", "summary"):
            run.pop(key, None)
        table = create(out / device_key(str(facts.device["name"])), scenarios=recorded.scenarios, **run)
        configs = dict.fromkeys(config.id for config in recorded.header.configs)
        return Space(problem_of(recorded, ATTENTION), configs, rows=(), lines=()), table

    counter = ray.remote(Counter).options(num_cpus=0).remote()
    workers = Workers(ray, ReplayWorker, (replay, counter), needed, num_gpus=0, count=count)
    return measure_on_workers(workers, strategy, budget, prepare)


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
        with connected(options.ray) as ray:
            replay = Replay(options.table.resolve(), options.second)
            return tune_replayed(ray, replay, options.out, options.strategy, options.budget, options.workers)
    except (TuningError, TableError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

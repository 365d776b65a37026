"""How near to the ideal a fleet comes, and what its driver needs: simulated workers replay a recorded table.

    python -m benchmarks.fleet.scale --workers 1,4,16,64,256

Speeds are lognormal, 5% of the workers die, and 10% join late. The driver's part is real: its search, its
orders, its table on disk. So its processor time passes on the virtual clock, with --order-ms for what Ray
takes to hand out an order. Each line is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from attn_kernels.tuning.space.space import ATTENTION
from benchmarks.fleet.replayed import table_like
from benchmarks.fleet.simulated import SimulatedCrew, SimulatedWorker, Span
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.fleet.bench import FleetBench, Records
from triton_tune.fleet.replay import replayed
from triton_tune.fleet.shards import estimated_s
from triton_tune.run.progress import Silent
from triton_tune.run.replay import COMPILE_S, problem_of
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table import read_run
from tuning_table.table import RecordedRun, Visit
from tuning_table.visit_log import log_visits

GPUS_OF_A_HOST = 8
SIGMA = 0.3  # of the logarithm of speeds
DYING, LATE = 0.05, 0.10
FOREVER = 1e9
HEADER = (
    f"{'workers':>7} {'ideal':>8} {'makespan':>8} {'ratio':>6} {'while visits wait':>17} "
    f"{'CPU':>7} {'a visit':>8} {'memory':>8}  rows"
)


@dataclass(frozen=True)
class Case:
    """What one process simulates."""

    table: str
    copies: int
    strategy: str
    workers: int
    order_ms: float
    compiling: bool
    seed: int


class WatchedBench(FleetBench):
    """Notes when visits begin and end to wait for a worker."""

    waiting: tuple[tuple[bool, float], ...] = ((False, 0.0),)

    def _hand_out(self, *, copies: bool) -> None:
        super()._hand_out(copies=copies)
        waits = self._orders.waiting > 0
        if waits != self.waiting[-1][0]:
            self.waiting = (*self.waiting, (waits, self.clock()))


def copied(recorded: RecordedRun, copies: int) -> RecordedRun:
    """The table with each scenario several times."""
    names = [f".{n}" for n in range(copies)] if copies > 1 else [""]
    return replace(
        recorded,
        scenarios={f"{s}{name}": row for name in names for s, row in recorded.scenarios.items()},
        visits=tuple(
            Visit(f"{v.scenario}{name}", v.repeat, v.cells) for name in names for v in recorded.visits
        ),
    )


def simulate(case: Case) -> dict[str, float | bool]:
    """Run one search; seconds of the virtual clock, and the real needs of this process."""
    recorded = copied(read_run(Path(case.table)), case.copies)
    problem, cells = problem_of(recorded, ATTENTION), Times(recorded.visits)
    expected = alone(problem, cells, case.strategy)
    work = sum(estimated_s(len(visit.cells)) for visit in expected)
    if case.compiling:
        kernels = {(problem.shape(visit.scenario), config) for visit in expected for config in visit.cells}
        work += COMPILE_S * len(kernels)
    workers = draw(case, work)
    crew = SimulatedCrew(
        problem, cells, workers, compiling=case.compiling, order_s=case.order_ms / 1e3 or 1e-9
    )
    times, rows = Times(), list[Visit]()
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        device = dict(recorded.header.provenance["device"])
        with table_like(recorded, Path(folder) / "table", device, case.strategy) as table:

            def disk(write: Callable[[], None]) -> None:
                """Write, and let the time that it waits pass on the virtual clock."""
                start, cpu = time.perf_counter(), time.process_time()
                write()
                waited = time.perf_counter() - start - (time.process_time() - cpu)
                crew.pass_time(max(0.0, waited))

            def flush() -> None:
                disk(lambda: table.append_all(rows))
                rows.clear()

            records = Records(
                lambda lines: disk(lambda: log_visits(table.folder, lines)),
                flush,
                lambda visits: None,
                lambda text: None,
            )
            bench = WatchedBench(crew, problem, records)
            strategy = STRATEGIES[case.strategy](problem)
            finished = tune(strategy, bench, times, rows.append, Silent(), budget=FOREVER)
            makespan, cpu = crew.clock(), time.process_time() - begin
        found = read_run(Path(folder) / "table").visits
    return {
        "workers": case.workers,
        "ideal": ideal(workers, work),
        "makespan": makespan,
        "while_waiting": loss_while_waiting(workers, crew.spans, (*bench.waiting, (False, makespan))),
        "cpu": cpu,
        "visits": len(expected),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "same": finished and same(found, expected),
    }


def alone(problem: SearchProblem, cells: Times, strategy: str) -> list[Visit]:
    """The visits of the same search in one process."""
    times, visits = Times(), list[Visit]()
    search = STRATEGIES[strategy](problem)
    while (planned := search.next_round(times, 0.0)) is not None:
        for task in planned.tasks:
            visits.append(replayed(cells, task))
            times.add(visits[-1])
    return visits


def same(found: Sequence[Visit], expected: Sequence[Visit]) -> bool:
    def rows(visits: Sequence[Visit]) -> list[tuple[str, int, dict[str, object]]]:
        return sorted((v.scenario, v.repeat, dict(v.cells)) for v in visits)

    return [(s, r, c) for s, r, c in rows(found)] == rows(expected)


def draw(case: Case, work: float) -> list[SimulatedWorker]:
    """The workers; the mean of their speeds is about 1."""
    rng = random.Random(f"{case.seed}/{case.workers}")
    about = work / case.workers
    workers = []
    for number in range(case.workers):
        dies = number and rng.random() < DYING
        late = number and rng.random() < LATE
        workers.append(
            SimulatedWorker(
                f"host{number // GPUS_OF_A_HOST}/{number % GPUS_OF_A_HOST}",
                speed=rng.lognormvariate(-(SIGMA**2) / 2, SIGMA),
                joins=rng.uniform(0.0, 0.5 * about) if late else 0.0,
                dies=rng.uniform(0.5 * about, about) if dies else FOREVER,
            )
        )
    return workers


def ideal(workers: Sequence[SimulatedWorker], work: float) -> float:
    """The seconds after which all workers together could have done the work, each at its speed."""

    def done(until: float) -> float:
        return sum(w.speed * max(0.0, min(until, w.dies) - w.joins) for w in workers)

    low, high = 0.0, 2 * work / min(w.speed for w in workers) + FOREVER / 1e3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if done(middle) < work else (low, middle)
    return high


def loss_while_waiting(
    workers: Sequence[SimulatedWorker], spans: Sequence[Span], waiting: Sequence[tuple[bool, float]]
) -> float:
    """What the workers could have done over what they did, while visits waited for one."""
    periods = [(begin, end) for (waits, begin), (_, end) in pairwise(waiting) if waits]
    could = sum(
        w.speed * max(0.0, min(end, w.dies) - max(begin, w.joins)) for w in workers for begin, end in periods
    )
    did = 0.0
    spans = sorted(spans, key=lambda span: span.begin)
    for begin, end in periods:
        for span in spans:
            if span.begin >= end:
                break
            did += workers[span.worker].speed * max(0.0, min(end, span.end) - max(begin, span.begin))
    return could / did if did else 1.0


def line_of(found: dict[str, float | bool]) -> str:
    return (
        f"{found['workers']:>7.0f} {found['ideal']:>6.1f} s {found['makespan']:>6.1f} s "
        f"{found['makespan'] / found['ideal']:>6.2f} {found['while_waiting']:>17.2f} {found['cpu']:>5.1f} s "
        f"{1e3 * found['cpu'] / found['visits']:>5.2f} ms {found['memory']:>5.0f} MB  "
        f"{found['visits']:.0f}, {'the same as' if found['same'] else 'OTHER THAN'} a single run's"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if a table differs from that of a single run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", default="tuning_data/unified_attention/nvidia_h100")
    parser.add_argument("--copies", type=int, default=1, help="of each scenario")
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="full")
    parser.add_argument("--workers", default="1,4,16,64,256")
    parser.add_argument("--order-ms", type=float, default=0.4)
    parser.add_argument("--compiling", action="store_true", help="no kernel is compiled before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(simulate(Case(**json.loads(options.one)))))
        return 0
    print(HEADER)
    wrong = False
    for count in map(int, options.workers.split(",")):
        case = Case(
            options.table,
            options.copies,
            options.strategy,
            count,
            options.order_ms,
            options.compiling,
            options.seed,
        )
        command = [sys.executable, "-m", "benchmarks.fleet.scale", "--one", json.dumps(vars(case))]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(line_of(found), flush=True)
        wrong |= not found["same"]
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())

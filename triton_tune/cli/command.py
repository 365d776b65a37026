"""A tuning run from a command's arguments to a table, of `triton-tune` and of `attn-tune`."""

import argparse
import datetime
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import torch
import triton

from triton_tune.bench.pool import GpuBench, Workload
from triton_tune.core.device import ASSUMED, device_facts, devices_from, driver_version, facts_of
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Bench
from triton_tune.processes.compile_ahead import default_workers
from triton_tune.run.fill import fill
from triton_tune.run.recheck import recheck
from triton_tune.run.shards import CELL_S, COMPILE_S, VISIT_S, problem_of_shard
from tuning_table import TableWriter, create, read_run
from tuning_table.names import device_key
from tuning_table.table import RUN

UNTUNED = "untuned"  # how the folder's name of a table that only judges begins
REFERENCE_WORKERS = 15  # processes with which COMPILE_S was measured
Facts = Mapping[str, str | int]


def run(
    options: argparse.Namespace,
    workload_on: Callable[[torch.device, Facts], Workload],
    load: Callable[[], object] = bool,
) -> int:
    """Do what the arguments of `add_run_arguments` ask for.

    Returns 0; 1 if choices are stale or unsure, or too many scenarios have no config that works; 130 after
    Ctrl-C.
    workload_on: is given the device on which a kernel's shapes may be looked at, and facts as in run.yaml.
    load: imports what processes that measure need. Raises TuningError and TableError.
    """
    if options.dry_run:
        return _dry_run(options, workload_on)
    devices = devices_from(options.gpus)
    facts = facts_of(devices)
    if options.empty:
        with create_table(options, workload_on(devices[0], facts), facts) as table:
            commands = next_commands([table.folder], has_times=bool(table.visits))
            state = "has times already" if table.visits else "a table without times"
            print(f"{table.folder}: {state}" + f"; next: {commands}" * bool(commands))
        return 0
    with closing(GpuBench(devices, options.compile_workers, load)) as bench:
        workload = workload_on(devices[0], facts)
        bench.begin(workload)
        if options.recheck is not None:
            return _recheck(options, workload, bench, facts)
        print("\n".join(workload.lines), flush=True)
        problem = problem_of_shard(workload.problem, options.shard)
        with create_table(options, workload, facts) as table:
            status = fill(table, bench, problem, options.strategy, options.budget)
    if not status and not options.shard:
        print(f"next: {next_commands([table.folder])}")
    return status


def next_commands(folders: Sequence[Path], pattern: str = "", *, has_times: bool = True) -> str:
    """What builds from tables. The spec is in this folder, or above the tables where those are elsewhere.

    pattern: what a shell expands to these folders.
    """
    if any(part.startswith(UNTUNED) for part in folders[0].parts):
        return f"treegen eval --against {shlex.quote(str(folders[0]))}"
    here = folders[0].resolve().is_relative_to(Path.cwd())
    spec = Path("treegen.yaml") if here else folders[0].parent.parent / "treegen.yaml"
    option = "" if here else f" --spec {shlex.quote(str(spec))}"
    commands = [f"treegen build{option}"] if has_times else []
    text = spec.read_text(errors="replace") if spec.is_file() else None
    new = [folder for folder in folders if os.path.relpath(folder, spec.parent) not in (text or "")]
    if new:
        tables = pattern if pattern and new == folders else shlex.join(map(str, new))
        commands.insert(0, f"treegen init {'' if text is None else '--add '}{tables}{option}")
    return " && ".join(commands)


def table_folder(options: argparse.Namespace, workload: Workload, facts: Facts) -> Path:
    if options.folder is not None:
        return Path(options.folder)
    prefix, suffix = f"{UNTUNED}_" if options.untuned else "", options.shard.suffix if options.shard else ""
    return Path(options.root) / workload.kernel / f"{prefix}{device_key(str(facts['name']))}{suffix}"


def _versions(workload: Workload) -> dict[str, str]:
    """What the times depend on beside the device, by its key of run.yaml."""
    return {
        "driver": driver_version(),
        "torch": str(torch.__version__),
        "triton": triton.__version__,
        "source_hash": workload.source_hash,
    }


def create_table(options: argparse.Namespace, workload: Workload, facts: Facts) -> TableWriter:
    return create(
        table_folder(options, workload, facts),
        kernel=workload.kernel,
        device=facts,
        timing="one launch by the host's clock" if facts["arch"] == "cpu" else workload.timing,
        **_versions(workload),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        scenario_set=workload.scenario_set,
        strategy=options.strategy,
        features=workload.features,
        configs=workload.rows,
        scenarios={s: list(row.values()) for s, row in workload.problem.features.items()},
        **workload.provenance,
    )


def _recheck(options: argparse.Namespace, workload: Workload, bench: Bench, facts: Facts) -> int:
    """Check a table's choices again. Returns 1 if some are stale, or too many unsure."""
    folder = Path(options.recheck or table_folder(options, workload, facts))
    if not (folder / RUN).exists():
        named = "name one, as in --recheck tuning_data/<kernel>/<device>"
        raise TuningError(f"{folder}: no table of this device to check again; {named}")
    recorded = read_run(folder)
    if recorded.header.kernel != workload.kernel:
        raise TuningError(f"{folder}: a table of {recorded.header.kernel}, not of {workload.kernel}")
    chosen = workload.chosen()
    choices = "what the generated module chooses" if chosen else "the fastest config of each scenario"
    print(f"{folder}: checking {choices}")
    before = {**recorded.header.provenance, "device": recorded.header.device_name}
    for key, value in {"device": facts["name"], **_versions(workload)}.items():
        if before.get(key) != value:
            print(f"  {key} was {before.get(key)}, now {value}")
    lines, doubted = recheck(recorded, workload.problem, bench, chosen)
    print("\n".join(lines))
    if doubted:
        print(f"to measure again: remove {folder} or choose another --out, and leave out --recheck")
    return int(doubted)


def _dry_run(options: argparse.Namespace, workload_on: Callable[[torch.device, Facts], Workload]) -> int:
    """Describe a run, and estimate how long it takes by what it took on an H100."""
    folder, spent, num_devices = options.folder, 0.0, 1
    if torch.cuda.is_available() or options.gpus != "all":
        devices = devices_from(options.gpus)
        facts, num_devices = device_facts(devices[0]), len(devices)
        print(f"on {num_devices} of {facts['name']}")
        workload = workload_on(devices[0], facts)
        folder = table_folder(options, workload, facts)
    else:
        workload = workload_on(torch.device("cpu"), ASSUMED)
        print("no GPU here: the estimate is for an H100")
    if folder is not None and (folder / RUN).exists():
        recorded = read_run(folder)
        spent = recorded.header.seconds
        print(f"{folder} holds {len(recorded.visits)} rows from {spent:.0f} s")
    problem = problem_of_shard(workload.problem, options.shard)
    workers = default_workers() if options.compile_workers is None else options.compile_workers
    launches = {(problem.shape(scenario), c) for scenario, row in problem.candidates.items() for c in row}
    compiling = COMPILE_S * REFERENCE_WORKERS / max(1, workers) * len(launches)
    measuring = (VISIT_S * len(problem.scenarios) + CELL_S * problem.possible) / num_devices
    print("\n".join(workload.lines))
    print(
        f"to time {problem.possible} cells of {len(problem.scenarios)} scenarios once would take about "
        f"{compiling + measuring:.0f} s; the budget is {options.budget:.0f} s, {spent:.0f} s are used up"
    )
    return 0

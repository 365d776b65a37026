"""The command `attn-tune`."""

import argparse
import contextlib
import datetime
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import triton

from attn_kernels.core.config import Config
from attn_kernels.measure.device import device_facts, driver_version
from attn_kernels.tuning.bench.devices import ASSUMED, devices_from
from attn_kernels.tuning.bench.gpu import TIMING
from attn_kernels.tuning.bench.pool import GpuBench
from attn_kernels.tuning.cli.arguments import parser
from attn_kernels.tuning.cli.estimate import RunEstimate, describe
from attn_kernels.tuning.cli.progress import Progress, check_rich
from attn_kernels.tuning.cli.replaying import replay
from attn_kernels.tuning.cli.summary import lines_of, summarise
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.kernels import KERNELS, TunedKernel
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.scenarios.outside import outside
from attn_kernels.tuning.scenarios.recorded import drawn, read_counted, write_recorded
from attn_kernels.tuning.scenarios.scenario import Scenario, digest
from attn_kernels.tuning.search.loop import tune
from attn_kernels.tuning.search.search import STRATEGIES
from attn_kernels.tuning.space.candidates import Possible, dropped_text, find_possible, gpu_of
from attn_kernels.warmup.processes import default_workers
from tuning_table import TableError, TableWriter, create, read_run
from tuning_table.files import os_errors_in_one_line, replace_file
from tuning_table.names import device_key
from tuning_table.table import RUN, Visit

SUMMARY_EVERY_S = 20.0  # how often run.yaml is written while a run measures
INTERRUPTED = 130
GO_ON = "the same command with a larger --budget goes on"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 for wrong input (one line on stderr), or 130 if it is interrupted."""
    options = parser().parse_args(arguments)
    kernel = KERNELS[options.kernel]
    options.scenarios = options.scenarios or kernel.default_set
    options.strategy = options.strategy or kernel.strategy
    try:
        if options.outside is not None:
            print("\n".join(outside(_recorded(options), options.outside, kernel.features_of)))
            return 0
        scenarios = _scenarios(options)
        if options.list_scenarios:
            sys.stdout.write(write_recorded(scenarios))
            sys.stdout.flush()
            return 0
        if options.replay is not None:
            print("\n".join(replay(options.replay, options.strategy, options.budget)))
            return 0
        variants = _variants(options)
        if options.dry_run:
            return _dry_run(options, scenarios, variants)
        return _run(options, scenarios, variants)
    except (TuningError, TableError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before anything was measured", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader stopped early, as in `attn-tune --list-scenarios | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if options.list_scenarios else INTERRUPTED
    except OSError as error:
        print(f"cannot print: {error.strerror}", file=sys.stderr)
        return 2


def _kernel(options: argparse.Namespace) -> TunedKernel:
    return KERNELS[options.kernel]


def _scenarios(options: argparse.Namespace) -> tuple[Scenario, ...]:
    kernel = _kernel(options)
    if options.scenarios in kernel.sets:
        return kernel.sets[options.scenarios](options.seed)
    return drawn(_recorded(options), options.max_scenarios, options.seed)


def _recorded(options: argparse.Namespace) -> dict[Scenario, int]:
    """The batches of a file that the kernel serves, with how often each was planned."""
    kernel = _kernel(options)
    path = Path(options.scenarios)
    with os_errors_in_one_line(path):
        is_file = path.is_file()
    if not is_file:
        raise TuningError(
            f"--scenarios {options.scenarios!r:.120}: neither a file nor a named set "
            f"({', '.join(kernel.sets)})"
        )
    recorded = read_counted(path, in_parts=kernel.in_parts)
    counts = {scenario: count for scenario, count in recorded.items() if kernel.serves(scenario.batch)}
    if not counts:
        raise TuningError(f"{path}: {kernel.name} needs batches of decodes and prompts, but this has none")
    return counts


def _variants(options: argparse.Namespace) -> list[str] | None:
    """The variants that --variants names; None for all."""
    if options.variants is None:
        return None
    names = options.variants.split(",")
    for name in names:
        if name not in _kernel(options).variants:
            raise TuningError(f"--variants: {name!r:.40} is none of {', '.join(_kernel(options).variants)}")
    return list(names)


def _possible(
    options: argparse.Namespace,
    facts: dict[str, str | int],
    scenarios: Sequence[Scenario],
    variants: list[str] | None,
) -> tuple[Possible, list[Config]]:
    gpu, kernel = gpu_of(facts), _kernel(options)
    configs = [c for c in kernel.configs(gpu.vendor) if variants is None or c.variant in variants]
    possible = find_possible(scenarios, configs, gpu, options.seed, kernel.features_of)
    used = possible.problem.configs
    if not used:
        raise TuningError("no config of these variants may be measured in any of these scenarios")
    return possible, [config for config in configs if str(config) in used]


def _dry_run(options: argparse.Namespace, scenarios: Sequence[Scenario], variants: list[str] | None) -> int:
    facts, line, devices = ASSUMED, "no GPU here: the estimate is for an H100", 1
    folder = options.out
    if torch.cuda.is_available() or options.gpus == "cpu":
        visible = devices_from(options.gpus)
        facts, devices = device_facts(visible[0]), len(visible)
        line = f"on {devices} of {facts['name']}"
        folder = _folder(options, facts)
    possible, _ = _possible(options, facts, scenarios, variants)
    times, spent = Times(), 0.0
    if folder is not None and (folder / RUN).exists():
        recorded = read_run(folder)
        times, spent = Times(recorded.visits), recorded.header.seconds
        line += f"; {folder} holds {times.num_visits} rows from {spent:.0f} s"
    workers = default_workers() if options.compile_workers is None else options.compile_workers
    print(f"{options.scenarios} (digest {digest(scenarios)}), {line}")
    estimate = RunEstimate(options.strategy, options.budget, spent, times, workers, devices)
    print("\n".join(describe(possible, Counter(s.batch.kind for s in scenarios), estimate)))
    return 0


def _folder(options: argparse.Namespace, facts: Mapping[str, str | int]) -> Path:
    return options.out or Path("tuning_data") / _kernel(options).name / device_key(str(facts["name"]))


def _run(options: argparse.Namespace, scenarios: Sequence[Scenario], variants: list[str] | None) -> int:
    check_rich()
    kernel, devices = _kernel(options), devices_from(options.gpus)
    by_id = {scenario.id: scenario for scenario in scenarios}
    with GpuBench(devices, by_id, options.compile_workers) as bench:
        possible, configs = _possible(options, bench.facts, scenarios, variants)
        bench.configs = {str(config): config for config in configs}
        folder = _folder(options, bench.facts)
        named_set = options.scenarios if options.scenarios in kernel.sets else Path(options.scenarios).name
        table = create(
            folder,
            kernel=kernel.name,
            device=bench.facts,
            timing=TIMING,
            driver=driver_version(),
            torch=str(torch.__version__),
            triton=triton.__version__,
            source_hash=kernel.source_hash(),
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            scenario_set=f"{named_set} (digest {digest(scenarios)})",
            seed=options.seed,
            strategy=options.strategy,
            features=kernel.features,
            configs=[
                {"id": str(config), "variant": config.variant}
                | {name: getattr(config, name) for name in kernel.parameters}
                for config in configs
            ],
            scenarios={s.id: list(kernel.features_of(s.batch).values()) for s in scenarios},
        )
        with table:
            return _fill(options, table, possible, bench)


def _fill(options: argparse.Namespace, table: TableWriter, possible: Possible, bench: GpuBench) -> int:
    problem = possible.problem
    times = Times(table.visits)
    spent = table.header.seconds
    start = written = bench.clock()

    def save(finished: bool) -> dict[str, object]:
        summary = summarise(problem, times, spent + bench.clock() - start, finished)
        table.summarise(summary)
        return summary

    def tick() -> None:
        nonlocal written
        if bench.clock() - written > SUMMARY_EVERY_S:
            written = bench.clock()
            save(False)

    def record(visit: Visit) -> None:
        table.append(visit.scenario, visit.cells, visit.repeat)

    strategy = STRATEGIES[options.strategy](problem)
    budget = options.budget
    if strategy.next_round(times, min(1.0, spent / budget)) is None:
        summary = summarise(problem, times, spent, True)
        table.summarise(summary)
        print(f"{table.folder}: nothing is left to measure; an earlier run finished. Its result:")
        print("\n".join(lines_of(summary, problem, times)))
        return 0
    if spent >= budget:
        print(f"{table.folder}: the budget of {budget:.0f} s is used up; {GO_ON}")
        return 0
    with os_errors_in_one_line(table.folder):
        replace_file(table.folder / "dropped.csv", dropped_text(possible.spaces))
    try:
        with Progress(budget, spent, tick) as progress:
            finished = tune(strategy, bench, times, record, progress, budget=budget, spent=spent)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not lose the summary
        save(False)
        print(f"\nstopped; {table.folder} keeps {times.num_visits} rows; the same command goes on from there")
        return INTERRUPTED
    except Exception:
        with contextlib.suppress(TableError):
            save(False)
        raise
    summary = save(finished)
    end = "nothing is left to measure" if finished else f"the budget is used up; {GO_ON}"
    print("\n".join([f"{table.folder}: {end}", *lines_of(summary, problem, times)]))
    return 0

"""The command `attn-tune`."""

import argparse
import datetime
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import triton

from attn_kernels.core.config import Config
from attn_kernels.tuning.bench.compiling import job_for
from attn_kernels.tuning.bench.gpu import TIMING, measure
from attn_kernels.tuning.cli.arguments import parser
from attn_kernels.tuning.cli.estimate import RunEstimate, describe
from attn_kernels.tuning.kernels import KERNELS, TunedKernel
from attn_kernels.tuning.likeness import ATTENTION
from attn_kernels.tuning.scenarios.outside import outside
from attn_kernels.tuning.scenarios.recorded import drawn, read_counted, write_recorded
from attn_kernels.tuning.scenarios.scenario import Scenario, digest
from attn_kernels.tuning.space.candidates import Possible, dropped_text, find_possible, gpu_of
from triton_tune.bench.devices import ASSUMED, devices_from
from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.core.device import device_facts
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Times
from triton_tune.fleet.command import Prepared, folder_name, measure_here, measure_on_ray, part_of
from triton_tune.fleet.worker import WorkerFacts, facts_here
from triton_tune.processes.compile_ahead import Job, default_workers
from triton_tune.run.fill import INTERRUPTED
from triton_tune.run.progress import check_rich
from triton_tune.run.replaying import replay
from tuning_table import TableError, TableWriter, create, read_run
from tuning_table.files import os_errors_in_one_line, replace_file
from tuning_table.names import device_key
from tuning_table.table import RUN

WITHOUT_GPU = "--dry-run describes the run, --replay TABLE searches a recorded table"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 for wrong input (one line on stderr), or 130 if it is interrupted."""
    options = parser().parse_args(arguments)
    kernel = KERNELS[options.kernel]
    named = options.scenarios is None or options.scenarios in kernel.sets
    options.scenarios = options.scenarios or kernel.default_set
    options.strategy = options.strategy or kernel.strategy
    try:
        if options.outside is not None:
            if named:
                raise TuningError("--outside needs --scenarios FILE, a file of recorded batches")
            print("\n".join(outside(_recorded(options), options.outside, kernel.features_of)))
            return 0
        scenarios = _scenarios(options)
        if options.list_scenarios:
            sys.stdout.write(write_recorded(scenarios))
            sys.stdout.flush()
            return 0
        if options.replay is not None:
            print("\n".join(replay(options.replay, options.strategy, options.budget, ATTENTION)))
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
    if torch.cuda.is_available() or options.gpus != "all":
        visible = devices_from(options.gpus, WITHOUT_GPU)
        facts, devices = device_facts(visible[0]), len(visible)
        line = f"on {devices} of {facts['name']}"
        folder = _folder(options, facts)
    possible, _ = _possible(options, facts, scenarios, variants)
    possible = replace(possible, problem=part_of(options, possible.problem))
    times, spent = Times(), 0.0
    if folder is not None and (folder / RUN).exists():
        recorded = read_run(folder)
        times, spent = Times(recorded.visits), recorded.header.seconds
        line += f"; {folder} holds {times.num_visits} rows from {spent:.0f} s"
    workers = default_workers() if options.compile_workers is None else options.compile_workers
    print(f"{options.scenarios} (digest {digest(scenarios)}), {line}")
    estimate = RunEstimate(options.strategy, options.budget, spent, times, workers, devices)
    kinds = Counter(s.batch.kind for s in scenarios if s.id in possible.problem.features)
    print("\n".join(describe(possible, kinds, estimate)))
    return 0


def _folder(options: argparse.Namespace, facts: Mapping[str, str | int]) -> Path:
    if options.out:
        return Path(options.out)
    return Path("tuning_data") / _kernel(options).name / folder_name(options, device_key(str(facts["name"])))


def _job_for(scenario: Scenario, config: Config, device: torch.device) -> Job:
    return job_for(scenario.batch, config, device)


def _run(options: argparse.Namespace, scenarios: Sequence[Scenario], variants: list[str] | None) -> int:
    check_rich("attn-tune")

    def prepare(facts: WorkerFacts) -> Prepared:
        possible, configs = _possible(options, dict(facts.device), scenarios, variants)
        return Prepared(
            possible.problem,
            {str(config): config for config in configs},
            lambda: _create(options, facts, scenarios, configs),
            lambda table: _note_dropped(table.folder, possible),
        )

    subject = Subject({scenario.id: scenario for scenario in scenarios}, measure, _job_for)
    if options.ray is not None:
        return measure_on_ray(options, subject, _kernel(options).source_hash, prepare)
    with GpuBench(devices_from(options.gpus, WITHOUT_GPU), subject, options.compile_workers) as gpus:
        return measure_here(options, gpus, prepare(facts_here(gpus)))


def _note_dropped(folder: Path, possible: Possible) -> None:
    with os_errors_in_one_line(folder):
        replace_file(folder / "dropped.csv", dropped_text(possible.spaces))


def _create(
    options: argparse.Namespace, facts: WorkerFacts, scenarios: Sequence[Scenario], configs: Sequence[Config]
) -> TableWriter:
    """Create the table of a GPU model, or go on in it."""
    kernel = _kernel(options)
    named_set = options.scenarios if options.scenarios in kernel.sets else Path(options.scenarios).name
    return create(
        _folder(options, facts.device),
        kernel=kernel.name,
        device=facts.device,
        timing=TIMING,
        driver=facts.versions["driver"],
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

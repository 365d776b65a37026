"""The command `triton-tune`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_tune.core.errors import TuningError
from triton_tune.search.search import STRATEGIES
from tuning_table import TableError
from tuning_table.names import device_key

if TYPE_CHECKING:
    from triton_tune.kernel.scenarios import KernelScenarios
    from triton_tune.kernel.tuning import Tuning

INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = argparse.ArgumentParser(
        prog="triton-tune",
        description="Time the configs of a @triton.autotune kernel for many shapes and write a tuning table "
        "for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument("file", type=Path, metavar="FILE", help="a Python file that defines a Tuning")
    arguments.add_argument("--kernel", help="the Tuning to use, if the file defines several")
    arguments.add_argument(
        "--out",
        type=Path,
        default=Path("tuning_data"),
        help="the folder of all tables (default: %(default)s); this one is <out>/<kernel>/<device>",
    )
    arguments.add_argument(
        "--budget",
        type=_seconds,
        default=300.0,
        help="seconds, summed over all runs of the table (default: 300)",
    )
    arguments.add_argument(
        "--strategy",
        choices=list(STRATEGIES),
        default="race",
        help="race: promising configs in more scenarios; full: every config for every shape "
        "(default: %(default)s)",
    )
    arguments.add_argument(
        "--gpus",
        default="cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "all",
        help="all, numbers separated by commas, or cpu for Triton's interpreter (default: all; cpu where "
        "TRITON_INTERPRET is 1)",
    )
    arguments.add_argument(
        "--compile-workers",
        type=_count,
        help="number of processes that compile kernels before they are timed; 0 for none (default: one fewer "
        "than there are processors, at most 30)",
    )
    arguments.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be measured, without timing anything; needs no GPU",
    )
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 for wrong input (one line on stderr), or 130 if it is interrupted."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (TuningError, TableError) as error:
        print(f"triton-tune: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton", "yaml", "rich"):
            raise
        print(f"triton-tune: needs {error.name}: pip install 'attn-kernels[tune]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("triton-tune: stopped before anything was measured", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    import torch

    from triton_tune.bench.devices import devices_from
    from triton_tune.kernel.autotuned import AutotunedKernel
    from triton_tune.kernel.scenarios import find_scenarios
    from triton_tune.run.progress import check_rich

    check_rich("triton-tune", "tune")
    name, tuning = _tuning(options)
    kernel = AutotunedKernel(tuning.kernel)
    if options.dry_run:
        device = torch.device("cuda" if torch.cuda.is_available() and options.gpus != "cpu" else "cpu")
        print("\n".join(_described(name, kernel.configs, find_scenarios(kernel, tuning, device))))
        return 0
    devices = devices_from(options.gpus)
    scenarios = find_scenarios(kernel, tuning, devices[0])
    print("\n".join(_described(name, kernel.configs, scenarios)), flush=True)
    return _measure(options, name, tuning, scenarios, devices)


def _tuning(options: argparse.Namespace) -> tuple[str, Tuning]:
    from triton_tune.kernel.loading import load_tunings, named

    found = load_tunings(options.file)
    if options.kernel is not None:
        return options.kernel, named(found, options.kernel, options.file)
    if len(found) > 1:
        raise TuningError(f"{options.file}: defines several: choose one with --kernel: {', '.join(found)}")
    return next(iter(found.items()))


def _described(name: str, configs: object, scenarios: KernelScenarios) -> list[str]:
    problem = scenarios.problem
    words = [f"{feature} ({', '.join(known)})" for feature, known in scenarios.words.items()]
    plain = [feature for feature in scenarios.features if feature not in scenarios.words]
    return [
        f"{name}: {len(problem.scenarios)} shapes, {len(problem.configs)} configs, {problem.possible} cells; "
        f"early_config_prune leaves out {scenarios.excluded}",
        f"features: {', '.join([*plain, *words])}",
    ]


def _measure(
    options: argparse.Namespace,
    name: str,
    tuning: Tuning,
    scenarios: KernelScenarios,
    devices: Sequence[object],
) -> int:
    import datetime

    import torch
    import triton

    from triton_tune.bench.pool import GpuBench, Subject
    from triton_tune.core.device import driver_version
    from triton_tune.kernel.autotuned import AutotunedKernel
    from triton_tune.kernel.measuring import TIMING, KernelFile
    from triton_tune.run.fill import SearchPlan, fill
    from tuning_table import create

    kernel, file = AutotunedKernel(tuning.kernel), KernelFile(options.file.resolve(), name)
    subject = Subject(scenarios.shapes, file.measure, file.job_for)
    with GpuBench(devices, subject, options.compile_workers) as bench:  # type: ignore[arg-type]
        bench.configs = {config: config for config in kernel.configs}
        used = scenarios.problem.configs
        provenance: dict[str, Any] = (
            {"values": {name: list(words) for name, words in scenarios.words.items()}}
            if scenarios.words
            else {}
        )
        table = create(
            options.out / name / device_key(str(bench.facts["name"])),
            kernel=name,
            device=bench.facts,
            timing=TIMING if devices_are_gpus(devices) else "one launch by the host's clock",
            driver=driver_version(),
            torch=str(torch.__version__),
            triton=triton.__version__,
            source_hash=kernel.source_hash(),
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            scenario_set=options.file.name,
            strategy=options.strategy,
            features=scenarios.features,
            configs=[{"id": c.id, **c.parameters} for c in kernel.configs.values() if c.id in used],
            scenarios={s: list(row.values()) for s, row in scenarios.problem.features.items()},
            **provenance,
        )
        with table:
            return fill(table, bench, SearchPlan(scenarios.problem, options.strategy, options.budget))


def devices_are_gpus(devices: Sequence[object]) -> bool:
    """Return whether kernels run on GPUs, and not in the interpreter."""
    return all(getattr(device, "type", "") == "cuda" for device in devices)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1.0 <= float(text) <= 1e7:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of seconds from 1 to 10000000")


def _count(text: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= int(text) <= 1024:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not an integer from 0 to 1024")

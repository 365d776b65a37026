"""The command `attn-tune`. Its help and wrong use need no torch."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from triton_tune.cli.arguments import add_run_arguments, count, tuning_command
from triton_tune.core.errors import TuningError
from tuning_table.command_line import CommandParser
from tuning_table.files import os_errors_in_one_line

if TYPE_CHECKING:
    from attn_kernels.measure.batches import Batch
    from attn_kernels.tuning.kernels import TunedKernel


def parser() -> CommandParser:
    arguments = CommandParser(
        prog="attn-tune",
        description="Time many configs in many scenarios on this machine's GPUs and write a tuning "
        "table for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument(
        "--kernel",
        choices=["unified_attention", "mixed_attention", "invariant_attention"],
        default="unified_attention",
        help="the kernel of treegen.yaml whose table this is (default: unified_attention)",
    )
    arguments.add_argument(
        "--out",
        type=Path,
        dest="folder",
        metavar="OUT",
        help="the table's folder (default: tuning_data/<kernel>/<device>)",
    )
    arguments.add_argument(
        "--scenarios",
        help="a named set of docs/scenarios.md, or a file of recorded batch shapes, JSON lines (default: "
        "serving; steps for mixed_attention)",
    )
    arguments.add_argument(
        "--max-scenarios",
        type=partial(count, least=1, most=1 << 20),
        default=1080,
        help="draw at most this many batches of a recorded file, weighted by their counts (default: 1080)",
    )
    arguments.add_argument(
        "--outside",
        type=Path,
        metavar="TABLE",
        help="print which recorded batches lie outside of a table, how often each was planned, and exit",
    )
    arguments.add_argument(
        "--seed",
        type=partial(count, least=-(1 << 62), most=1 << 62),
        default=0,
        help="seed of the named set and of the order of visits (default: 0)",
    )
    add_run_arguments(arguments, budget=600.0, gpus="all", strategy="race; full for mixed_attention")
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parser().parse_args(arguments)
    return tuning_command("attn-tune").run(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    from attn_kernels.tuning.kernels import KERNELS
    from attn_kernels.tuning.scenarios.recorded import drawn, outside
    from triton_tune.cli.command import run

    kernel = KERNELS[options.kernel]
    options.strategy = options.strategy or kernel.strategy
    name = options.scenarios or next(iter(kernel.sets))
    if options.outside is not None:
        if name in kernel.sets:
            raise TuningError("--outside needs --scenarios FILE, a file of recorded batches")
        print("\n".join(outside(_recorded(kernel, name), options.outside, kernel.features_of)))
        return 0
    if name in kernel.sets:
        scenarios = kernel.sets[name](options.seed)
    else:
        scenarios = drawn(_recorded(kernel, name), options.max_scenarios, options.seed)
        name = Path(name).name
    return run(options, partial(kernel.workload, scenarios, name, options.seed))


def _recorded(kernel: "TunedKernel", file: str) -> "dict[Batch, int]":
    """The batches of a file that the kernel serves, with how often each was planned."""
    from attn_kernels.tuning.scenarios.recorded import read_counted

    path = Path(file)
    with os_errors_in_one_line(path):
        is_file = path.is_file()
    if not is_file:
        sets = ", ".join(kernel.sets)
        raise TuningError(f"--scenarios {file!r:.120}: neither a file nor a named set ({sets})")
    recorded = read_counted(path, in_parts=kernel.in_parts)
    counts = {scenario: count for scenario, count in recorded.items() if kernel.serves(scenario)}
    if not counts:
        raise TuningError(f"{path}: {kernel.name} needs batches of decodes and prompts, but this has none")
    return counts

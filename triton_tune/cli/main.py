"""The command `triton-tune`. Its help and wrong use need no torch."""

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from triton_tune.cli.arguments import add_run_arguments
from triton_tune.core.arguments import CommandParser, exit_code


def parser() -> argparse.ArgumentParser:
    arguments = CommandParser(
        prog="triton-tune",
        description="Time the configs of a @triton.autotune kernel for many shapes and write a tuning table "
        "for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument("file", type=Path, metavar="FILE", help="a Python file that defines a Tuning")
    arguments.add_argument("--kernel", help="the Tuning to use, if the file defines several")
    arguments.add_argument(
        "--out",
        type=Path,
        dest="root",
        metavar="OUT",
        help="the folder of all tables (default: tuning_data); this one is <out>/<kernel>/<device>",
    )
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    add_run_arguments(arguments, budget=300.0, gpus="cpu" if interpreted else "all", strategy="race")
    arguments.add_argument(
        "--untuned",
        action="store_true",
        help="measure the shapes that were kept aside when shapes were drawn from ranges, for another table, "
        "by which `treegen eval --against` judges; with --strategy full by default",
    )
    arguments.add_argument(
        "--empty",
        action="store_true",
        help="write the table without times, so that `treegen init` can read it, and stop",
    )
    return arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 as `cli.command.run` does, or as `exit_code`."""
    options = parser().parse_args(arguments)
    options.strategy = options.strategy or ("full" if options.untuned else "race")

    def work() -> int:
        from triton_tune.cli.command import run
        from triton_tune.kernel.workload import file_of, workload_on

        file = file_of(options.file, options.kernel, untuned=options.untuned)
        asked = {"ask_module": options.recheck is not None}
        asked["without_tensors"] = options.dry_run or options.empty
        return run(options, partial(workload_on, file, **asked), file.load)

    return exit_code("triton-tune", work)

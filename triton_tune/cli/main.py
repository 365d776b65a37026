"""The command `triton-tune`. Its help and wrong use need no torch."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from triton_tune.bootstrap.sitecustomize import HEURISTICS, RECORD
from triton_tune.cli.arguments import add_run_arguments, tuning_command
from triton_tune.core.errors import TuningError
from triton_tune.record.lines import SUFFIX
from tuning_table.command_line import CommandParser
from tuning_table.files import os_errors_in_one_line


def parser() -> CommandParser:
    arguments = CommandParser(
        prog="triton-tune",
        description="Time the configs of a @triton.autotune kernel for many shapes and write a tuning table "
        "for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="a Python file that defines a Tuning, or the folder of a record, all of whose kernels are tuned",
    )
    arguments.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="run the command after -- and note all launches of its autotuned kernels in DIR",
    )
    arguments.add_argument(
        "--use",
        metavar="PACKAGE",
        help="run the command after -- with the heuristics of this package for all kernels that it has; with "
        "the folder of a record, compile what they choose for its launches before",
    )
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


def run_command(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run a program whose launches are recorded, or chosen by a package. Returns its exit code."""
    from triton_tune import bootstrap

    environment = dict(os.environ)
    if options.record:
        with os_errors_in_one_line(options.record):
            options.record.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=options.record).close()  # processes must be able to write there
        environment[RECORD] = str(options.record.resolve())
    if options.use:
        environment[HEURISTICS] = options.use
        sys.path.insert(0, "")  # where the program finds the package, too
        if options.file is not None:
            from triton_tune.cli.many import compile_ahead

            print(compile_ahead(options.file, options.use, options.gpus, options.compile_workers), flush=True)
    if not command:
        return 0
    home = str(Path(bootstrap.__file__).parent)
    path = [home, environment.get("PYTHONPATH", ""), str(Path(__file__).parents[2])]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    try:
        program = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise TuningError(f"{command[0]}: {error.strerror}") from None
    status = _awaited(program)
    if options.record:
        files = len(list(options.record.glob(f"*{SUFFIX}")))
        following = f"; next: triton-tune {shlex.quote(str(options.record))}" if files else ""
        print(f"{options.record}: {files} files of launches{following}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _awaited(program: subprocess.Popen[bytes]) -> int:
    """Wait for a program, which ends in its own way after Ctrl-C or SIGTERM. Returns its exit code."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a terminal interrupts the program, too
    before_term = signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    try:
        return program.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, before_term)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words[words.index("--") + 1 :] if "--" in words else []
    line = parser()
    options = line.parse_args(words[: words.index("--")] if "--" in words else words)
    if (options.record or options.use) and not (command or (options.use and options.file)):
        line.error("give the command to run after --")
    if command and not (options.record or options.use):
        line.error("a command after -- needs --record or --use")
    if options.file is None and not command:
        line.error("give a FILE, or the folder of a record")
    options.strategy = options.strategy or ("full" if options.untuned else "race")

    def work() -> int:
        if options.record or options.use:
            return run_command(options, command)
        if options.file.is_dir():
            of_file = options.kernel, options.shard, options.untuned, options.empty
            if options.recheck is not None or any(of_file):
                what = "--kernel, --recheck, --shard, --untuned and --empty"
                raise TuningError(f"{what} take a file, not a record")
            from triton_tune.cli.many import run_record

            sys.path.insert(0, "")  # where a recorded script finds modules
            return run_record(options)
        from triton_tune.cli.command import run
        from triton_tune.kernel.measuring import loaded
        from triton_tune.kernel.workload import file_of, workload_on

        file = file_of(options.file, options.kernel, untuned=options.untuned)
        how = {"ask_module": options.recheck is not None, "without_tensors": options.dry_run or options.empty}
        return run(options, lambda device, _: workload_on(file, device, **how), partial(loaded, file))

    return tuning_command("triton-tune").run(work)

"""Processes in place of those that measure, and whole runs of `attn-tune` in a process of their own."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attn_kernels.tuning.space.space import declared
from triton_tune.bench.worker import Begin
from tuning_table import TableWriter

# Called with a scenario's id and the config that is asked for; None: the scenario is to be prepared.
Act = Callable[[str, Any], None]
OUTPUT_FILES = ("stdout", "stderr")
LINE = (
    '{{"id": "{}", "query_lens": [1], "context_lens": [{}], "num_query_heads": 2, "num_kv_heads": 1, '
    '"head_size": 16, "block_size": 16}}\n'
)
BATCHES = "".join(LINE.format(name, length) for name, length in (("a", 3), ("b", 20), ("c", 40)))
RUN = ("--scenarios", "batches.jsonl", "--gpus", "cpu", "--out", "table")
CONFIGS = [str(config) for config in declared("cpu") if config.block_m <= 64 and not config.tma]


def stub(act: Act, load: Callable[[], object] = bool) -> Callable[[Connection, str, object], None]:
    """A process that gives every config 7 us, after `act` did with it what it likes."""

    def serve(connection: Connection, device: str, _: object) -> None:
        load()
        connection.send(None)
        scenario = ""
        with contextlib.suppress(EOFError):
            while True:
                request = connection.recv()
                if isinstance(request, Begin):
                    scenario = request.scenario.name
                    act(scenario, None)
                    connection.send(None)
                else:
                    act(scenario, request.config)
                    connection.send(7.0)

    return serve


@contextlib.contextmanager
def command(folder: Path, arguments: Sequence[str], hold_after: int | None = None) -> Iterator[BaseProcess]:
    """Start `attn-tune` in `folder` with its output in the files OUTPUT_FILES, and kill it at the end.

    Once it has written `hold_after` rows, it waits for a signal. It is forked from a server that has imported
    all modules already.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attn_kernels.tuning.kernels", "triton_tune.cli.command"])
    process = context.Process(target=_command, args=(folder, tuple(arguments), hold_after))
    with patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])):  # of the fork server
        process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _command(folder: Path, arguments: Sequence[str], hold_after: int | None) -> None:
    import torch

    from attn_kernels.tuning.cli import main
    from triton_tune.bench import pool

    # A background process of a shell script inherits an ignored SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    os.chdir(folder)
    for descriptor, name in enumerate(OUTPUT_FILES, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    pool.START_METHOD = "fork"  # type: ignore[misc]
    append, rows = TableWriter.append, 0
    parent = multiprocessing.parent_process()
    assert parent is not None

    def append_and_hold(table: TableWriter, *row: Any) -> None:
        nonlocal rows
        append(table, *row)
        rows += 1
        while rows == hold_after:
            time.sleep(0.01)
            if not parent.is_alive():  # the tests were killed
                os._exit(1)

    TableWriter.append = append_and_hold  # type: ignore[method-assign]
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

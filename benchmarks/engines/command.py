"""What both commands share: arguments, and a process for each backend and mode."""

import argparse
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.environment import describe, headline, stop, write_atomically
from benchmarks.engines.engine_process import Job
from benchmarks.engines.turns import Limits, Row, Task, Turns, append, read
from benchmarks.engines.vllm_folder import (
    LLAMA_3_8B,
    OURS,
    PLUGIN,
    TMP,
    environment,
    write_model,
    write_plugins,
)

MODES = ("graphs", "eager")


def numbers(text: str) -> list[int]:
    """Read positive integers that commas separate."""
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.60}: positive integers, separated by commas, are needed")
    return found


def setting(text: str) -> tuple[str, Any]:
    """Read `name=value`, where the value is JSON, or else a word."""
    name, equals, value = text.partition("=")
    if not name.isidentifier() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r:.60}: name=value is needed")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parser_of(name: str, description: str | None, modes: str) -> argparse.ArgumentParser:
    """The arguments that both commands have."""
    parser = argparse.ArgumentParser(
        prog=f"benchmarks.engines.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--vllm",
        type=Path,
        help="folder of vllm.tar.xz, or one with a package vllm; default: the installed one",
    )
    add("--backends", default="FLASH_ATTN,TRITON_ATTN,CUSTOM", help="vLLM's names; default: %(default)s")
    add("--modes", default=modes, help="graphs, eager or both; default: %(default)s")
    add("--out", type=Path, default=Path("results"), help="folder; rows are added to those of earlier runs")
    add("--together", action="store_true", help="backends of a mode share the GPU and take turns")
    add("--kv-gib", type=float, help="GiB of each engine's cache; default: what vLLM finds free")
    add("--once", default="", help="backends whose long measurements are not repeated")
    add("--repeats", type=int, default=3, help="default: %(default)s")
    add("--seconds-budget", type=float, default=3600.0, help="begin nothing new after that; default: an hour")
    add("--process-seconds", type=float, default=900.0, help="limit of each process; default: %(default)s")
    add("--cache", type=Path, help="folder of compiled code that later runs find again; default: in /tmp")
    add("--record", type=Path, metavar="FILE", help="ATTN_KERNELS_RECORD of the engines (docs/recording.md)")
    add("--engine-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of vLLM's LLM")
    add("--model-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of config.json")
    return parser


def modes_of(options: argparse.Namespace) -> list[str]:
    """The modes that the command line names; stops with a line about an unknown one."""
    modes: list[str] = options.modes.split(",")
    for mode in modes:
        if mode not in MODES:
            stop(f"--modes {mode!r:.40}: not one of {', '.join(MODES)}")
    return modes


def run_engines(options: argparse.Namespace, jobs: Iterable[Job], tasks: Sequence[Task]) -> bool:
    """Measure the tasks with each job's engine; returns whether all went well."""
    work = TMP / f"benchmarks_engines_{os.getpid()}"
    custom = OURS in options.backends.split(",")
    plugins = write_plugins(work / "plugins", PLUGIN if custom else None)
    cache = (options.cache or TMP / "benchmarks_engines_cache").resolve()
    values = environment(options.vllm, plugins, cache)
    if options.record is not None:
        values["ATTN_KERNELS_RECORD"] = str(options.record.resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    if torch.cuda.is_available():
        facts = headline(describe(torch.device("cuda")))
        print(facts, flush=True)
        append(options.out, {"kind": "host", "text": facts})
    model = write_model(work / "model", LLAMA_3_8B | dict(options.model_arg))
    deadline = time.time() + options.seconds_budget
    limits = Limits(options.repeats, options.once.split(","), options.process_seconds, deadline)
    ready = [dataclasses.replace(job, model=str(model), engine=engine_of(options, job)) for job in jobs]
    fine = True
    for _, group in itertools.groupby(
        ready, key=lambda job: (job.mode, job.budget, None if options.together else job.backend)
    ):
        members = list(group)
        if time.time() > limits.deadline:
            print(f"{', '.join(job.name for job in members)}: left out, the time is up", flush=True)
            fine = False
            continue
        fine &= Turns(options.out, limits).run(members, values, tasks)
    return fine


def engine_of(options: argparse.Namespace, job: Job) -> dict[str, Any]:
    """The arguments of vLLM's LLM, those of the command line last."""
    engine = dict(job.engine)
    if options.kv_gib is not None:  # vLLM then measures no memory, which other engines' would disturb
        engine |= {"kv_cache_memory_bytes": int(options.kv_gib * 2**30), "gpu_memory_utilization": 0.1}
    return engine | dict(options.engine_arg)


def report(
    options: argparse.Namespace,
    name: str,
    jobs: Iterable[Job],
    tasks: Sequence[Task],
    lines_of: Callable[[list[Row]], list[str]],
) -> int:
    """Run the engines, then print and write a table of the rows of the kind ``name``.

    Returns 0, or 1 if an engine failed or something was left out.
    """
    fine = run_engines(options, jobs, tasks)
    rows = read(options.out)
    if not any(row["kind"] == name for row in rows):
        stop(f"no {name} was measured")
    lines = lines_of(rows)
    print("\n".join(lines))
    write_atomically(options.out / f"{name}.md", "\n".join([*lines, ""]))
    return 0 if fine else 1

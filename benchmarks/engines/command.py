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
from benchmarks.engines.results import append, read
from benchmarks.engines.turns import Limits, Task, Turns
from benchmarks.engines.vllm_folder import (
    TMP,
    environment,
    pack,
    site_of,
    unpack,
    write_model,
    write_plugins,
)

MODES = ("graphs", "eager")
PLUGIN = "attn_kernels.engines.vllm:register"
OURS = "CUSTOM"


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
    """Return the arguments that both commands have."""
    parser = argparse.ArgumentParser(
        prog=f"benchmarks.engines.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--vllm", type=Path, default=Path(".vllm"), help="folder of vllm.tar.xz, or one with a package vllm")
    add("--backends", default="FLASH_ATTN,TRITON_ATTN,CUSTOM", help="vLLM's names; default: %(default)s")
    add("--modes", default=modes, help="graphs, eager or both; default: %(default)s")
    add("--out", type=Path, default=Path("results"), help="folder; rows are added to those of earlier runs")
    add(
        "--merge",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="measure nothing; a table of these folders",
    )
    add("--together", action="store_true", help="backends of a mode share the GPU and take turns")
    add("--kv-gib", type=float, help="GiB of each engine's cache; default: what vLLM finds free")
    add("--once", default="", help="backends whose long measurements are not repeated")
    add("--repeats", type=int, default=3, help="default: %(default)s")
    add("--gpu", help="number of the GPU, so that several commands can run beside one another")
    add("--seconds-budget", type=float, default=3600.0, help="begin nothing new after that; default: an hour")
    add("--start-seconds", type=float, default=600.0, help="limit of an engine's start; default: %(default)s")
    add("--process-seconds", type=float, default=900.0, help="limit of each process; default: %(default)s")
    add("--cache", type=Path, help="folder of compile caches that later runs find again; default: in /tmp")
    add("--load-cache", type=Path, metavar="FILE", help="archive that --save-cache wrote")
    add("--save-cache", type=Path, metavar="FILE", help="pack the compile caches at the end (.tar.xz)")
    add("--record", type=Path, metavar="FILE", help="ATTN_KERNELS_RECORD of the engines (docs/recording.md)")
    add("--plugin", default=PLUGIN, help="module:function that registers CUSTOM; default: %(default)s")
    add("--path", action="append", default=[], metavar="DIR", help="further folder for PYTHONPATH")
    add("--engine-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of vLLM's LLM")
    add("--model-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of config.json")
    return parser


def run_engines(
    options: argparse.Namespace, jobs: Iterable[Job], tasks: Sequence[Task], last_tasks: Sequence[Task]
) -> bool:
    """Measure the tasks with each job's engine; returns whether all went well."""
    if options.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = options.gpu  # before CUDA starts here
    options.out.mkdir(parents=True, exist_ok=True)
    cache = (options.cache or TMP / "benchmarks_engines_cache").resolve()
    if options.load_cache is not None:
        unpack(options.load_cache, cache)
    cache.mkdir(parents=True, exist_ok=True)
    if torch.cuda.is_available():
        facts = headline(describe(torch.device("cuda")))
        print(facts, flush=True)
        append(options.out, [{"kind": "host", "text": facts}])
    site = site_of(options.vllm)
    work = TMP / f"benchmarks_engines_{os.getpid()}"
    model = write_model(work / "model", dict(options.model_arg))
    custom = OURS in options.backends.split(",")
    plugins = write_plugins(work / "plugins", options.plugin if custom else None)
    record = options.record.resolve() if options.record else None
    values = environment(site, plugins, cache, options.path, options.gpu, record)
    limits = Limits(
        options.repeats,
        options.once.split(","),
        options.start_seconds,
        options.process_seconds,
        time.time() + options.seconds_budget,
    )
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
        fine &= Turns(options.out, limits).run(members, values, tasks, last_tasks)
    if options.save_cache is not None:
        pack(cache, options.save_cache)
    return fine


def engine_of(options: argparse.Namespace, job: Job) -> dict[str, Any]:
    """Return the arguments of vLLM's LLM, those of the command line last."""
    engine = dict(job.engine)
    if options.kv_gib is not None:  # vLLM then measures no memory, which other engines' would disturb
        engine |= {"kv_cache_memory_bytes": int(options.kv_gib * 2**30), "gpu_memory_utilization": 0.1}
    return engine | dict(options.engine_arg)


def report(
    options: argparse.Namespace,
    name: str,
    jobs_of: Callable[[argparse.Namespace], Iterable[Job]],
    tasks: Sequence[Task],
    lines_of: Callable[[list[dict[str, Any]]], list[str]],
    plot: Callable[[list[dict[str, Any]], Path], None],
    last_tasks: Sequence[Task] = (),
) -> int:
    """Run the engines, or merge earlier runs; then print, write and plot the rows of the kind ``name``.

    Args:
        options: of the command line.
        name: the kind of the tasks.
        jobs_of: returns the engines.
        tasks, last_tasks: as `Turns.run` takes them.
        lines_of: returns the table.
        plot: draws the rows into a file.

    Returns 0, or 1 if an engine failed or something was left out.
    """
    fine = True
    if options.merge is None:
        fine = run_engines(options, list(jobs_of(options)), tasks, last_tasks)
        rows = read([options.out])
    else:
        rows = read(options.merge)
        _merge_into(options.out, options.merge, rows)
    if not any(row["kind"] == name for row in rows):
        stop(f"no {name} was measured")
    lines = lines_of(rows)
    print("\n".join(lines))
    write_atomically(options.out / f"{name}.md", "\n".join([*lines, ""]))
    plot(rows, options.out / f"{name}.png")
    return 0 if fine else 1


def _merge_into(out: Path, folders: list[Path], rows: list[dict[str, Any]]) -> None:
    """Write the rows of several folders to another one."""
    if out.resolve() in [folder.resolve() for folder in folders]:
        return
    out.mkdir(parents=True, exist_ok=True)
    append(out, rows)


def modes_of(options: argparse.Namespace) -> list[str]:
    """Return the modes that the command line names; stops with a line about an unknown one."""
    modes: list[str] = options.modes.split(",")
    for mode in modes:
        if mode not in MODES:
            stop(f"--modes {mode!r:.40}: not one of {', '.join(MODES)}")
    return modes

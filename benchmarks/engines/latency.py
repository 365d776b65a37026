"""Latency of vLLM by output length, for several attention backends.

python -m benchmarks.engines.latency [--vllm .vllm] [--backends FLASH_ATTN,TRITON_ATTN,CUSTOM]

A row is one batch of equal prompts, from the call of `generate` to its last token. The model has the shape of
Llama-3.1-8B and random weights. Each backend and mode is a process of its own. `graphs` is vLLM's default,
with torch.compile and CUDA graphs; `eager` is without both. With `--together --kv-gib 20`, the backends of a
mode start beside one another and then take turns, row by row, so drift of the GPU touches all of them.
Writes results.jsonl and latency.md.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.environment import describe, headline, parser_of, stop, write_atomically
from benchmarks.engines.engine_process import Job
from benchmarks.engines.tables import SIZES, latency_lines
from benchmarks.engines.turns import Limits, Row, append, read, take_turns
from benchmarks.engines.vllm_folder import (
    LLAMA_3_8B,
    OURS,
    PLUGIN,
    TMP,
    VLLM_HELP,
    environment,
    write_model,
    write_plugins,
)

MODES = ("graphs", "eager")
CAPTURE_SIZES = [1, 2, 4, 8, 16, 32, 64, 512]  # vLLM has more of its own, whose capture takes longer
MAX_SEQS = 64


def numbers(text: str) -> list[int]:
    """Read positive integers that commas separate; raises ValueError, which argparse reports."""
    values = [int(word) for word in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def setting(text: str) -> tuple[str, Any]:
    """Read `name=value`, where the value is JSON, or else a word."""
    name, value = text.split("=", 1)
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__, "benchmarks.engines.latency")
    add = parser.add_argument
    add("--vllm", type=Path, help=VLLM_HELP)
    add("--backends", default="FLASH_ATTN,TRITON_ATTN,CUSTOM", help="vLLM's names; default: %(default)s")
    add("--modes", default="graphs,eager", help="graphs, eager or both; default: %(default)s")
    add("--batches", type=numbers, default=[1, 16], help="numbers of requests; default: 1,16")
    add("--prompts", type=numbers, default=[500, 8000], help="tokens of each prompt; default: 500,8000")
    add("--outputs", type=numbers, default=[1, 128, 512], help="tokens to generate; default: 1,128,512")
    add("--out", type=Path, default=Path("results"), help="folder; rows are added to those of earlier runs")
    add("--together", action="store_true", help="backends of a mode share the GPU and take turns")
    add("--kv-gib", type=float, help="GiB of each engine's cache; default: what vLLM finds free")
    add("--repeats", type=int, default=3, help="default: %(default)s")
    add("--seconds-budget", type=float, default=3600.0, help="begin nothing new after that; default: an hour")
    add("--process-seconds", type=float, default=900.0, help="limit of each process; default: %(default)s")
    add("--cache", type=Path, help="folder of compiled code that later runs find again; default: in /tmp")
    add("--engine-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of vLLM's LLM")
    add("--model-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of config.json")
    options = parser.parse_args(arguments)
    for mode in options.modes.split(","):
        if mode not in MODES:
            stop(f"--modes {mode!r:.40}: not one of {', '.join(MODES)}")
    return options


def jobs_of(options: argparse.Namespace, model: Path) -> Iterator[Job]:
    """A job for each mode and backend, with the engine's arguments of the command line last."""
    for mode, backend in itertools.product(options.modes.split(","), options.backends.split(",")):
        engine: dict[str, Any] = {
            "max_model_len": max(options.prompts) + max(options.outputs) + 16,
            "max_num_seqs": max(MAX_SEQS, *options.batches),
            "gpu_memory_utilization": 0.8,
        }
        if mode == "graphs":
            engine["compilation_config"] = {"cudagraph_capture_sizes": CAPTURE_SIZES}
        if options.kv_gib is not None:  # vLLM then measures no memory, which other engines' would disturb
            engine |= {"kv_cache_memory_bytes": int(options.kv_gib * 2**30), "gpu_memory_utilization": 0.1}
        yield Job(backend, mode, engine | dict(options.engine_arg), str(model))


def run_engines(options: argparse.Namespace, tasks: Sequence[Row]) -> bool:
    """Measure the tasks with each job's engine; returns whether all went well."""
    work = TMP / f"benchmarks_engines_{os.getpid()}"
    custom = OURS in options.backends.split(",")
    plugins = write_plugins(work / "plugins", PLUGIN if custom else None)
    cache = (options.cache or TMP / "benchmarks_engines_cache").resolve()
    values = environment(options.vllm, plugins, cache)
    options.out.mkdir(parents=True, exist_ok=True)
    if torch.cuda.is_available():
        facts = headline(describe(torch.device("cuda")))
        print(facts, flush=True)
        append(options.out, {"kind": "host", "text": facts})
    model = write_model(work / "model", LLAMA_3_8B | dict(options.model_arg))
    limits = Limits(options.repeats, options.process_seconds, time.time() + options.seconds_budget)
    fine = True
    for _, group in itertools.groupby(
        jobs_of(options, model), key=lambda job: (job.mode, None if options.together else job.backend)
    ):
        members = list(group)
        if time.time() > limits.deadline:
            print(f"{', '.join(job.name for job in members)}: left out, the time is up", flush=True)
            fine = False
            continue
        fine &= take_turns(members, values, tasks, options.out, limits)
    return fine


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if an engine failed or something was left out."""
    options = parse_arguments(arguments)
    sizes = itertools.product(options.batches, options.prompts, options.outputs)
    fine = run_engines(options, [dict(zip(SIZES, row, strict=True)) for row in sizes])
    rows = read(options.out)
    if not any(row["kind"] == "latency" for row in rows):
        stop("no latency was measured")
    lines = latency_lines(rows)
    print("\n".join(lines))
    write_atomically(options.out / "latency.md", "\n".join([*lines, ""]))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

"""Latency of vLLM by output length, for several attention backends.

python -m benchmarks.engines.latency [--vllm .vllm] [--backends FLASH_ATTN CUSTOM]

A row is one batch of equal prompts, from the call of `generate` to its last token. The model has the shape of
Llama-3.1-8B and random weights. The engines of all backends start beside one another, a process each, and
take turns, row by row, so drift of the GPU touches all of them. Writes results.jsonl and latency.md.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
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

CAPTURE_SIZES = [1, 2, 4, 8, 16, 32, 64, 512]  # vLLM has more of its own, whose capture takes longer
MAX_SEQS = 64


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
    add("--backends", nargs="+", default=["FLASH_ATTN", OURS], help="vLLM's names; default: %(default)s")
    add("--batches", nargs="+", type=int, default=[1, 16], help="numbers of requests; default: %(default)s")
    add("--prompts", nargs="+", type=int, default=[500, 8000], help="tokens of each; default: %(default)s")
    add("--outputs", nargs="+", type=int, default=[1, 128, 512], help="tokens; default: %(default)s")
    add("--out", type=Path, default=Path("results"), help="folder; rows are added to those of earlier runs")
    add("--kv-gib", type=float, default=18.0, help="GiB of each engine's cache; default: %(default)s")
    add("--repeats", type=int, default=3, help="default: %(default)s")
    add("--seconds-budget", type=float, default=3600.0, help="begin nothing new after that; default: an hour")
    add("--answer-seconds", type=float, default=900.0, help="limit of a start, and of a row; default: 900")
    add("--cache", type=Path, help="folder of compiled code that later runs find again; default: in /tmp")
    add("--engine-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of vLLM's LLM")
    add("--model-arg", type=setting, action="append", default=[], metavar="NAME=JSON", help="of config.json")
    return parser.parse_args(arguments)


def run_engines(options: argparse.Namespace, tasks: Sequence[Row]) -> bool:
    """Measure the tasks with each backend's engine; returns whether all went well."""
    work = TMP / f"benchmarks_engines_{os.getpid()}"
    plugins = write_plugins(work / "plugins", PLUGIN if OURS in options.backends else None)
    cache = (options.cache or TMP / "benchmarks_engines_cache").resolve()
    values = environment(options.vllm, plugins, cache)
    options.out.mkdir(parents=True, exist_ok=True)
    if torch.cuda.is_available():
        facts = headline(describe(torch.device("cuda")))
        print(facts, flush=True)
        append(options.out, {"kind": "host", "text": facts})
    model = write_model(work / "model", LLAMA_3_8B | dict(options.model_arg))
    engine: dict[str, Any] = {
        "enable_prefix_caching": False,
        "max_model_len": max(options.prompts) + max(options.outputs) + 16,
        "max_num_seqs": max(MAX_SEQS, *options.batches),
        "compilation_config": {"cudagraph_capture_sizes": CAPTURE_SIZES},
        # vLLM then measures no memory, which other engines' would disturb.
        "kv_cache_memory_bytes": int(options.kv_gib * 2**30),
        "gpu_memory_utilization": 0.1,
        **dict(options.engine_arg),
    }
    limits = Limits(options.repeats, options.answer_seconds, time.time() + options.seconds_budget)
    jobs = [Job(backend, engine, str(model)) for backend in options.backends]
    return take_turns(jobs, values, tasks, options.out, limits)


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

"""Latency of vLLM by output length, for several attention backends.

python -m benchmarks.engines.latency [--vllm .vllm] [--backends FLASH_ATTN,TRITON_ATTN,CUSTOM]

A row is one batch of equal prompts, from the call of `generate` to its last token. The model has the shape of
Llama-3.1-8B and random weights. Each backend and mode is a process of its own. `graphs` is vLLM's default,
with torch.compile and CUDA graphs; `eager` is without both. With `--together --kv-gib 20`, the backends of a
mode start beside one another and then take turns, row by row, so drift of the GPU touches all of them.
Writes results.jsonl and latency.md.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.engines.command import modes_of, numbers, parser_of, report
from benchmarks.engines.engine_process import Job
from benchmarks.engines.tables import SIZES, latency_lines

CAPTURE_SIZES = [1, 2, 4, 8, 16, 32, 64, 512]  # vLLM has more of its own, whose capture takes longer
MAX_SEQS = 64


def jobs_of(options: Any) -> Iterator[Job]:
    """A job for each mode and backend."""
    for mode, backend in itertools.product(modes_of(options), options.backends.split(",")):
        engine: dict[str, Any] = {
            "max_model_len": max(options.prompts) + max(options.outputs) + 16,
            "max_num_seqs": max(MAX_SEQS, *options.batches),
            "gpu_memory_utilization": 0.8,
        }
        if mode == "graphs":
            engine["compilation_config"] = {"cudagraph_capture_sizes": CAPTURE_SIZES}
        yield Job(backend, mode, engine)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if an engine failed or something was left out."""
    parser = parser_of("latency", __doc__, "graphs,eager")
    add = parser.add_argument
    add("--batches", type=numbers, default=[1, 16], help="numbers of requests; default: 1,16")
    add("--prompts", type=numbers, default=[500, 8000], help="tokens of each prompt; default: 500,8000")
    add("--outputs", type=numbers, default=[1, 128, 512], help="tokens to generate; default: 1,128,512")
    options = parser.parse_args(arguments)
    rows = itertools.product(options.batches, options.prompts, options.outputs)
    tasks = [{"kind": "latency", **dict(zip(SIZES, row, strict=True))} for row in rows]
    return report(options, "latency", list(jobs_of(options)), tasks, latency_lines)


if __name__ == "__main__":
    sys.exit(main())

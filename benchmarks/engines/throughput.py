"""Offline throughput of vLLM on a declared mix of requests, for several attention backends.

python -m benchmarks.engines.throughput [--vllm .vllm] [--backends FLASH_ATTN,TRITON_ATTN,CUSTOM]

All requests arrive at once. Their lengths are drawn from two log-normal distributions (request_mix.py) with a
fixed seed. A step takes at most `--budgets` query tokens, and prompts are chunked. Each backend, mode and
budget is a process of its own. With `--together --kv-gib 45`, the backends of a budget start beside one
another and then take turns. Writes results.jsonl and throughput.md.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.engines.command import modes_of, numbers, parser_of, report
from benchmarks.engines.engine_process import Job
from benchmarks.engines.request_mix import OUTPUTS, PROMPTS
from benchmarks.engines.tables import throughput_lines

CAPTURE_SIZES = [1, 2, 4, 8, *range(16, 257, 16)]
MAX_SEQS = 256


def jobs_of(options: Any) -> Iterator[Job]:
    """A job for each mode, budget and backend."""
    ways = itertools.product(modes_of(options), options.budgets, options.backends.split(","))
    for mode, budget, backend in ways:
        engine: dict[str, Any] = {
            "max_model_len": PROMPTS[1] + OUTPUTS[1] + 16,
            "max_num_seqs": MAX_SEQS,
            "max_num_batched_tokens": budget,
            "enable_chunked_prefill": True,
            "gpu_memory_utilization": 0.8,
            "disable_log_stats": False,  # the times of each request
        }
        if mode == "graphs":
            engine["compilation_config"] = {"cudagraph_capture_sizes": CAPTURE_SIZES}
        yield Job(backend, mode, engine, budget)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if an engine failed or something was left out."""
    parser = parser_of("throughput", __doc__, "graphs")
    add = parser.add_argument
    add("--budgets", type=numbers, default=[2048, 8192], help="query tokens of a step; default: 2048,8192")
    add("--requests", type=int, default=512, help="default: %(default)s")
    add("--seed", type=int, default=0, help="of the lengths; default: %(default)s")
    options = parser.parse_args(arguments)
    tasks = [{"kind": "throughput", "requests": options.requests, "seed": options.seed}]
    return report(options, "throughput", list(jobs_of(options)), tasks, throughput_lines)


if __name__ == "__main__":
    sys.exit(main())

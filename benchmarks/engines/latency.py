"""Latency of vLLM by output length, for several attention backends.

python -m benchmarks.engines.latency --vllm .vllm [--backends FLASH_ATTN,TRITON_ATTN,CUSTOM] [--modes graphs]
python -m benchmarks.engines.latency --merge results_a results_b --out results

A row is one batch of equal prompts, from the call of `generate` to its last token. The model has the shape of
Llama-3.1-8B and random weights. Each backend and mode is a process of its own. `graphs` is vLLM's default,
with torch.compile and CUDA graphs; `eager` is without both. With `--together --kv-gib 20`, the backends of a
mode start beside one another and then take turns, row by row, so drift of the GPU touches all of them.
Writes results.jsonl, latency.md and latency.png.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.engines.command import modes_of, numbers, parser_of, report
from benchmarks.engines.engine_process import Job
from benchmarks.engines.latency_tables import latency_lines, plot
from benchmarks.engines.results import SIZES

CAPTURE_SIZES = [1, 2, 4, 8, 16, 32, 64, 512]  # vLLM has more of its own, whose capture takes longer
MAX_SEQS = 64
PROFILED = (1, 33)  # tokens; the difference is 32 decode steps


def jobs_of(options: Any) -> Iterator[Job]:
    """Yield a job for each mode and backend."""
    for mode, backend in itertools.product(modes_of(options), options.backends.split(",")):
        engine: dict[str, Any] = {
            "max_model_len": max(options.prompts) + max(options.outputs) + 16,
            "max_num_seqs": max(MAX_SEQS, *options.batches),
            "gpu_memory_utilization": 0.8,
        }
        if mode == "graphs":
            engine["compilation_config"] = {"cudagraph_capture_sizes": options.capture_sizes}
        if options.profile:
            engine["profiler_config"] = {
                "profiler": "torch",
                "torch_profiler_dir": str((options.out / f"profile_{backend}_{mode}").resolve()),
                "torch_profiler_with_stack": False,
            }
        yield Job(backend, mode, engine)


def main() -> int:
    """Return 0, or 1 if an engine failed or something was left out."""
    parser = parser_of("latency", __doc__, "graphs,eager")
    add = parser.add_argument
    add("--batches", type=numbers, default=[1, 16], help="numbers of requests; default: 1,16")
    add("--prompts", type=numbers, default=[500, 8000], help="tokens of each prompt; default: 500,8000")
    add("--outputs", type=numbers, default=[1, 128, 512], help="tokens to generate; default: 1,128,512")
    add("--capture-sizes", type=numbers, default=CAPTURE_SIZES, help="tokens of the steps that are captured")
    add(
        "--profile",
        action="store_true",
        help="at the end, the kernels' times of the largest batch in each log",
    )
    options = parser.parse_args()
    rows = itertools.product(options.batches, options.prompts, options.outputs)
    tasks = [{"kind": "latency", **dict(zip(SIZES, row, strict=True))} for row in rows]
    profiled = itertools.product(options.batches, options.prompts, PROFILED)
    profiles = [
        {"kind": "profile", **dict(zip(SIZES, row, strict=True))} for row in profiled if options.profile
    ]
    return report(options, "latency", jobs_of, tasks, latency_lines, plot, profiles)


if __name__ == "__main__":
    sys.exit(main())

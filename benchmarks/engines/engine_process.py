"""The process of one engine: start it, measure what the job asks for, and write a line of JSON each time.

python -m benchmarks.engines.engine_process JOB, where JOB is the JSON text of a `Job`.
"""

import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engines.cpu_time import main_threads_s
from benchmarks.engines.random_weights import LOAD_FORMAT
from benchmarks.engines.request_mix import draw_requests, tokens_of

WARM_UP_TOKENS = 2
FIGURES = ("seconds", "first_token_median", "first_token_p99", "per_token_median", "per_token_p99")


@dataclass(frozen=True)
class Job:
    """What one process measures."""

    backend: str
    mode: str  # graphs or eager
    model: str  # folder
    results: str  # file to which lines are appended
    deadline: float  # time.time() after which nothing new begins
    engine: dict[str, Any]  # arguments of vLLM's LLM
    repeats: int
    rows: list[tuple[int, int, int]] = field(default_factory=list)  # of latency: batch, prompt, output
    requests: int = 0  # of throughput
    seed: int = 0
    budget: int | None = None  # query tokens of a step

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class Engine:
    """vLLM's engine, with the times of what it generates."""

    def __init__(self, job: Job) -> None:
        from vllm import LLM, SamplingParams

        self.params = SamplingParams
        self.llm = LLM(
            model=job.model,
            load_format=LOAD_FORMAT,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            generation_config="vllm",
            seed=0,
            attention_config={"backend": job.backend},
            enable_prefix_caching=False,
            enforce_eager=job.mode == "eager",
            **job.engine,
        )

    def generate(self, prompts: Sequence[list[int]], outputs: Sequence[int]) -> tuple[float, list[Any]]:
        """Generate so many tokens for each prompt; returns the seconds and vLLM's outputs."""
        params = [
            self.params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
            for count in outputs
        ]
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        start = time.perf_counter()
        found = self.llm.generate(asked, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        counts = [len(output.outputs[0].token_ids) for output in found]
        if counts != list(outputs):
            raise RuntimeError(f"asked for {list(outputs)} tokens, but the engine generated {counts}")
        return seconds, found


def measure(job: Job) -> None:
    """Start an engine and measure; stops between measurements when the time is up."""
    with Path(job.results).open("a", buffering=1) as file:

        def report(**row: object) -> None:
            file.write(
                json.dumps({"backend": job.backend, "mode": job.mode, "budget": job.budget, **row}) + "\n"
            )

        started = time.perf_counter()
        engine = Engine(job)
        report(kind="start", seconds=time.perf_counter() - started)
        left = latencies(engine, job, report) if job.rows else throughputs(engine, job, report)
        if left:
            report(kind="left_out", count=left)


Report = Callable[..., None]


def latencies(engine: Engine, job: Job, report: Report) -> int:
    """Time batches of equal prompts from the call to the last token; returns how many were left out."""
    warm: set[tuple[int, int]] = set()
    for number, (batch, length, output) in enumerate(job.rows):
        prompts = tokens_of([length] * batch, f"latency/{batch}/{length}")
        if time.time() > job.deadline:
            return len(job.rows) - number
        if (batch, length) not in warm:
            warm.add((batch, length))
            engine.generate(prompts, [WARM_UP_TOKENS] * batch)
        seconds, cpu_seconds, first = [], [], []
        for _ in range(job.repeats):
            cpu = main_threads_s(os.getpid())
            took, found = engine.generate(prompts, [output] * batch)
            seconds.append(took)
            cpu_seconds.append(main_threads_s(os.getpid()) - cpu)
            first = [one.outputs[0].token_ids[0] for one in found]
        sizes = {"batch": batch, "prompt": length, "output": output}
        report(kind="latency", **sizes, seconds=seconds, cpu_seconds=cpu_seconds, first_tokens=first)
    return 0


def throughputs(engine: Engine, job: Job, report: Report) -> int:
    """Give the engine all requests at once; returns how many repeats were left out."""
    requests = draw_requests(job.requests, job.seed)
    prompts = tokens_of([request.prompt for request in requests], f"throughput/{job.seed}")
    outputs = [request.output for request in requests]
    few = slice(0, min(64, len(requests)))
    engine.generate(prompts[few], [min(8, output) for output in outputs[few]])
    kept: dict[str, list[float]] = {name: [] for name in FIGURES}
    for repeat in range(job.repeats):
        if time.time() > job.deadline:
            return job.repeats - repeat
        seconds, found = engine.generate(prompts, outputs)
        metrics = [one.metrics for one in found]
        first = [stats.first_token_latency for stats in metrics]
        per_token = [
            (stats.last_token_ts - stats.first_token_ts) / (count - 1)
            for stats, count in zip(metrics, outputs, strict=True)
            if count > 1
        ]
        figures = (seconds, *percentiles(first), *percentiles(per_token))
        for name, value in zip(FIGURES, figures, strict=True):
            kept[name].append(value)
        tokens = {"prompt_tokens": sum(map(len, prompts)), "output_tokens": sum(outputs)}
        report(kind="throughput", requests=len(requests), seed=job.seed, **tokens, **kept)  # of all repeats
    return 0


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile; NaN without values."""
    if not values:
        return math.nan, math.nan
    ordered = sorted(values)
    return statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1]


if __name__ == "__main__":
    measure(Job(**json.loads(sys.argv[1])))

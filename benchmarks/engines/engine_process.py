"""The process of one engine: start it, then measure whatever the parent asks for.

python -m benchmarks.engines.engine_process JOB NUMBER, where JOB is the JSON text of a `Job`, and NUMBER that
of an inherited file: a `multiprocessing.connection.Connection` to the parent.
"""

import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.engines.plugins import LARGE
from benchmarks.engines.request_mix import draw_requests, tokens_of

WARM_UP_TOKENS = 2
PROC = Path("/proc")
LIKELIEST = 5  # first tokens of a prompt that are compared


@dataclass(frozen=True)
class Job:
    """What one process starts."""

    backend: str
    mode: str  # graphs or eager
    engine: dict[str, Any]  # arguments of vLLM's LLM
    budget: int | None = None  # query tokens of a step
    model: str = ""  # folder

    @property
    def name(self) -> str:
        return "_".join(map(str, filter(None, (self.backend, self.mode, self.budget))))

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class Engine:
    """vLLM's engine, with the times of what it generates."""

    def __init__(self, job: Job) -> None:
        from vllm import LLM, SamplingParams

        self.params = SamplingParams
        self.warm: set[tuple[int, ...]] = set()
        self.llm = LLM(
            model=job.model,
            load_format=LARGE,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            generation_config="vllm",
            seed=0,
            attention_config={"backend": job.backend},
            enable_prefix_caching=False,
            enforce_eager=job.mode == "eager",
            **job.engine,
        )

    def generate(
        self, prompts: Sequence[list[int]], outputs: Sequence[int], logprobs: int | None = None
    ) -> tuple[float, list[Any]]:
        """Generate so many tokens for each prompt; returns the seconds and vLLM's outputs.

        logprobs: of how many of the likeliest tokens the outputs have the logarithms of probabilities.
        """
        params = [
            self.params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False, logprobs=logprobs)
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


def latency(engine: Any, batch: int, prompt: int, output: int) -> dict[str, Any]:
    """Time a batch of equal prompts from the call to the last token.

    The first run of a batch warms the engine up, and gives the likeliest first tokens of each prompt, with
    the logarithms of their probabilities.
    """
    prompts = tokens_of([prompt] * batch, f"latency/{batch}/{prompt}")
    answer: dict[str, Any] = {}
    if (batch, prompt) not in engine.warm:
        engine.warm.add((batch, prompt))
        _, scored = engine.generate(prompts, [WARM_UP_TOKENS] * batch, logprobs=LIKELIEST)
        answer["likeliest"] = [likeliest(one.outputs[0].logprobs[0]) for one in scored]
    cpu = main_threads_s(os.getpid())
    seconds, _ = engine.generate(prompts, [output] * batch)
    return {**answer, "seconds": seconds, "cpu_seconds": main_threads_s(os.getpid()) - cpu}


def likeliest(known: Mapping[int, Any]) -> list[tuple[int, float]]:
    """The tokens of which vLLM gave logarithms of probabilities, the likeliest first."""
    return sorted(((token, found.logprob) for token, found in known.items()), key=lambda pair: -pair[1])


def throughput(engine: Any, requests: int, seed: int) -> dict[str, Any]:
    """Give the engine all requests at once and time them; a first run with a few warms it up."""
    drawn = draw_requests(requests, seed)
    prompts = tokens_of([request.prompt for request in drawn], f"throughput/{seed}")
    outputs = [request.output for request in drawn]
    if (requests, seed) not in engine.warm:
        engine.warm.add((requests, seed))
        few = slice(0, min(64, requests))
        engine.generate(prompts[few], [min(8, output) for output in outputs[few]])
    seconds, found = engine.generate(prompts, outputs)
    metrics = [one.metrics for one in found]
    first = percentiles([stats.first_token_latency for stats in metrics])
    per_token = percentiles(
        [
            (stats.last_token_ts - stats.first_token_ts) / (count - 1)
            for stats, count in zip(metrics, outputs, strict=True)
            if count > 1
        ]
    )
    return {
        "seconds": seconds,
        "first_token_median": first[0],
        "first_token_p99": first[1],
        "per_token_median": per_token[0],
        "per_token_p99": per_token[1],
        "prompt_tokens": sum(map(len, prompts)),
        "output_tokens": sum(outputs),
    }


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            children.setdefault(int(_fields(folder / "stat")[1]), []).append(int(folder.name))
        except OSError:  # it has ended
            continue
    found, todo = [], [pid]
    while todo:
        todo = [child for parent in todo for child in children.get(parent, [])]
        found += todo
    return found


def main_threads_s(pid: int) -> float:
    """CPU seconds of the main threads of all descendants, where vLLM's engine plans and launches."""
    total = 0
    for child in descendants(pid):
        try:
            fields = _fields(PROC / str(child) / "task" / str(child) / "stat")
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _fields(path: Path) -> list[str]:
    """The fields of a stat file behind the name, which may hold spaces; the first is the state."""
    return path.read_text().rpartition(")")[2].split()


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile; NaN without values."""
    if not values:
        return math.nan, math.nan
    ordered = sorted(values)
    return statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1]


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"latency": latency, "throughput": throughput}


def serve(job: Job, parent: Connection) -> None:
    """Start the engine, send how long that took, and answer tasks until the parent sends None."""
    started = time.perf_counter()
    engine = Engine(job)
    parent.send({"seconds": time.perf_counter() - started})
    while (task := parent.recv()) is not None:
        sizes = {name: value for name, value in task.items() if name != "kind"}
        parent.send(MEASURES[task["kind"]](engine, **sizes))


if __name__ == "__main__":
    serve(Job(**json.loads(sys.argv[1])), Connection(int(sys.argv[2])))

"""The process of one engine: start it, then measure whatever the parent asks for.

python -m benchmarks.engines.engine_process JOB NUMBER, where JOB is the JSON text of a `Job`, and NUMBER that
of an inherited file: a `multiprocessing.connection.Connection` to the parent.
"""

import json
import random
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.engines.plugins import LARGE, start_vllm

WARM_UP_TOKENS = 2
FIRST_TOKEN, LAST_TOKEN = 1_000, 100_000  # ids of random tokens


@dataclass(frozen=True)
class Job:
    """What one process starts."""

    backend: str
    engine: dict[str, Any]  # arguments of vLLM's LLM
    model: str  # folder


def generate(llm: Any, prompts: list[list[int]], count: int) -> float:
    """Seconds in which vLLM generates `count` tokens for each prompt."""
    from vllm import SamplingParams

    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    begun = time.perf_counter()
    results = llm.generate(asked, [params] * len(prompts), use_tqdm=False)
    seconds = time.perf_counter() - begun
    if any(len(result.outputs[0].token_ids) != count for result in results):
        raise RuntimeError(f"asked for {count} tokens, but the engine generated others")
    return seconds


def serve(job: Job, parent: Connection) -> None:
    """Start the engine, send how long that took, and answer tasks until the parent sends None.

    A task is a batch of equal prompts, timed from the call to the last token. The first one of a batch warms
    the engine up.
    """
    begun = time.perf_counter()
    llm, warm = start_vllm(job.model, LARGE, job.backend, **job.engine), set[tuple[int, int]]()
    parent.send({"seconds": time.perf_counter() - begun})
    while (task := parent.recv()) is not None:
        batch, prompt = task["batch"], task["prompt"]
        rng = random.Random(f"tokens/latency/{batch}/{prompt}")  # the same in every run
        prompts = [[rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(prompt)] for _ in range(batch)]
        if (batch, prompt) not in warm:
            warm.add((batch, prompt))
            generate(llm, prompts, WARM_UP_TOKENS)
        parent.send({"seconds": generate(llm, prompts, task["output"])})


if __name__ == "__main__":
    serve(Job(**json.loads(sys.argv[1])), Connection(int(sys.argv[2])))

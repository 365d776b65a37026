"""The process of one engine: start it, then measure whatever the parent asks for.

python -m benchmarks.engines.engine_process JOB NUMBER, where JOB is the JSON text of a `Job`, and NUMBER that
of an inherited file: a `multiprocessing.connection.Connection` to the parent.
"""

import dataclasses
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.engines.plugins import LARGE

WARM_UP_TOKENS = 2
LIKELIEST = 5  # first tokens of a prompt that are compared
FIRST_TOKEN, LAST_TOKEN = 1_000, 100_000  # ids of random tokens


@dataclass(frozen=True)
class Job:
    """What one process starts."""

    backend: str
    mode: str  # graphs or eager
    engine: dict[str, Any]  # arguments of vLLM's LLM
    model: str  # folder

    @property
    def name(self) -> str:
        return f"{self.backend}_{self.mode}"

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
        """Generate this many tokens for each prompt; returns the seconds and vLLM's outputs.

        logprobs: of how many of the likeliest tokens the outputs have the logarithms of probabilities.
        """
        params = [
            self.params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False, logprobs=logprobs)
            for count in outputs
        ]
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        start = time.perf_counter()
        results = self.llm.generate(asked, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        counts = [len(output.outputs[0].token_ids) for output in results]
        if counts != list(outputs):
            raise RuntimeError(f"asked for {list(outputs)} tokens, but the engine generated {counts}")
        return seconds, results


def latency(engine: Any, batch: int, prompt: int, output: int) -> dict[str, Any]:
    """Time a batch of equal prompts from the call to the last token.

    The first run of a batch warms the engine up, and gives the likeliest first tokens of each prompt, with
    the logarithms of their probabilities.
    """
    rng = random.Random(f"tokens/latency/{batch}/{prompt}")  # the same in every run
    prompts = [[rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(prompt)] for _ in range(batch)]
    answer: dict[str, Any] = {}
    if (batch, prompt) not in engine.warm:
        engine.warm.add((batch, prompt))
        _, scored = engine.generate(prompts, [WARM_UP_TOKENS] * batch, logprobs=LIKELIEST)
        answer["likeliest"] = [likeliest(one.outputs[0].logprobs[0]) for one in scored]
    seconds, _ = engine.generate(prompts, [output] * batch)
    return {**answer, "seconds": seconds}


def likeliest(logprobs: Mapping[int, Any]) -> list[tuple[int, float]]:
    """The tokens of which vLLM gave logarithms of probabilities, the likeliest first."""
    return sorted(((token, one.logprob) for token, one in logprobs.items()), key=lambda pair: -pair[1])


def serve(job: Job, parent: Connection) -> None:
    """Start the engine, send how long that took, and answer tasks until the parent sends None."""
    started = time.perf_counter()
    engine = Engine(job)
    parent.send({"seconds": time.perf_counter() - started})
    while (task := parent.recv()) is not None:
        parent.send(latency(engine, **task))


if __name__ == "__main__":
    serve(Job(**json.loads(sys.argv[1])), Connection(int(sys.argv[2])))

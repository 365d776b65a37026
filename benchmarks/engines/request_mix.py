"""Requests of an offline throughput run: a declared mix of conversation and code."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Log-normal lengths of one kind of request, in tokens."""

    name: str
    median_prompt: float
    median_output: float
    prompt_sigma: float  # of the logarithm
    output_sigma: float


# The medians are near those of a public trace of an LLM service (Patel et al., Splitwise, ISCA 2024, section
# III). The spreads are assumptions.
CONVERSATION = Kind("conversation", 1000, 130, 1.0, 0.8)
CODE = Kind("code", 1500, 13, 1.0, 0.8)
SHARE_OF_CODE = 0.5
PROMPTS = (16, 16_000)  # tokens; lengths beyond are drawn again
OUTPUTS = (1, 1_024)
FIRST_TOKEN, LAST_TOKEN = 1_000, 100_000  # ids of random tokens


@dataclass(frozen=True)
class Request:
    """One request: the tokens of its prompt and how many tokens it generates."""

    kind: str
    prompt: int
    output: int


def draw_requests(count: int, seed: int) -> list[Request]:
    """Draw requests; the first ones of a larger count are the same."""
    rng = random.Random(f"requests/{seed}")
    requests = []
    for _ in range(count):
        kind = CODE if rng.random() < SHARE_OF_CODE else CONVERSATION
        prompt = _log_normal(rng, kind.median_prompt, kind.prompt_sigma, PROMPTS)
        output = _log_normal(rng, kind.median_output, kind.output_sigma, OUTPUTS)
        requests.append(Request(kind.name, prompt, output))
    return requests


def _log_normal(rng: random.Random, median: float, sigma: float, bounds: tuple[int, int]) -> int:
    while True:
        length = round(median * math.exp(rng.gauss(0, sigma)))
        if bounds[0] <= length <= bounds[1]:
            return length


def tokens_of(lengths: Sequence[int], name: str) -> list[list[int]]:
    """Return random prompts of these lengths; the same name gives the same tokens."""
    rng = random.Random(f"tokens/{name}")
    return [[rng.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(length)] for length in lengths]

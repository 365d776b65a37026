"""Models of transformers with random weights: our attention against transformers' own in float32.

Our logits may have MOST_ERROR times the error of eager attention in the model's type. A token is wrong if the
reference prefers another one by more than twice the largest error of eager attention's logits.
"""

import copy
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor

importlib.import_module("attn_kernels.engines.transformers")  # registers itself

OURS = "attn_kernels"
MOST_ERROR = 1.5
KINDS = ["sliding_attention", "full_attention"]

# The shapes of Llama-3.1-8B, Gemma-2-9B, and of gpt-oss-20b with fewer layers and experts.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "LlamaConfig",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 12}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    ),
    "gemma2": (
        "Gemma2Config",
        {"vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 12}
        | {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256}
        | {"sliding_window": 512, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256},
    ),
    "gpt_oss": (
        "GptOssConfig",
        {"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 8}
        | {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64}
        | {"sliding_window": 128, "num_local_experts": 8, "num_experts_per_tok": 4},
    ),
}


def made(name: str, device: torch.device) -> Any:
    """A model of CONFIGS in bfloat16."""
    config_class, sizes = CONFIGS[name]
    if "sliding_window" in sizes:
        sizes = sizes | {"layer_types": [KINDS[i % 2] for i in range(sizes["num_hidden_layers"])]}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    config = getattr(transformers, config_class)(**sizes, **special, max_position_embeddings=16384)
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


WINDOW = 20  # longer than a page, and shorter than prompts
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
TINY: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, sliding_window=WINDOW, layer_types=KINDS, attn_logit_softcapping=3.0, query_pre_attn_scalar=8
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **SIZES, sliding_window=WINDOW, layer_types=KINDS, num_local_experts=2, num_experts_per_tok=2
    ),
}


def make(name: str, dtype: torch.dtype = torch.float16) -> Any:
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(
        TINY[name](), attn_implementation="attn_kernels", dtype=dtype
    ).eval()
    assert model.config._attn_implementation == "attn_kernels"
    return model


class Models:
    """A model of random weights, the same one in float32, and prompts."""

    def __init__(self, model: Any, lengths: Sequence[int], new: int) -> None:
        self.model = model
        self.reference = copy.deepcopy(model).float()
        self.new = new  # tokens to generate
        generator, most = torch.Generator().manual_seed(3), model.config.vocab_size
        self.prompts = [torch.randint(2, most, (n,), generator=generator).tolist() for n in lengths]

    def logit_errors(self) -> dict[str, float]:
        """The errors of the last tokens' logits over their spread, with eager attention and with ours."""
        expected = logits_of(self.reference, "eager", self.prompts, 1)
        errors = {}
        for name in ("eager", OURS):
            difference = logits_of(self.model, name, self.prompts, 1) - expected
            errors[name] = float(difference.square().mean().sqrt() / expected.std())
        return errors

    def generate(self, cache: str) -> list[list[int]]:
        """Greedy tokens of ``generate`` with our attention."""
        batch = padded(self.prompts, self.model.device)
        options = {"max_new_tokens": self.new, "min_new_tokens": self.new, "do_sample": False}
        with attending(self.model, OURS):
            ids = self.model.generate(**batch, **options, disable_compile=True, cache_implementation=cache)
        return [row[batch["input_ids"].shape[1] :].tolist() for row in ids]

    def generate_batch(self, attention: str = OURS, **sizes: Any) -> list[list[int]]:
        """Greedy tokens of continuous batching. Raises RuntimeError if a request fails."""
        config = transformers.GenerationConfig(max_new_tokens=self.new, do_sample=False, pad_token_id=0)
        batching = transformers.ContinuousBatchingConfig(**sizes)
        with attending(self.model, attention):
            outputs = self.model.generate_batch(
                self.prompts, generation_config=config, continuous_batching_config=batching
            ).values()
        tokens = {tuple(output.prompt_ids): output.generated_tokens for output in outputs}
        short = [output.error for output in outputs if len(output.generated_tokens) != self.new]
        if short or len(outputs) != len(self.prompts):
            raise RuntimeError(f"{len(outputs) - len(short)} requests finished: {short[:1]}")
        return [tokens[tuple(prompt)] for prompt in self.prompts]

    def wrong(self, found: list[list[int]]) -> int:
        """Count tokens that the reference would not have chosen, given the tokens before, beyond rounding."""
        wrong = 0
        for prompt, tokens in zip(self.prompts, found, strict=True):
            whole, last = [prompt + tokens], len(tokens) + 1
            expected = logits_of(self.reference, "eager", whole, last)[0, :-1]
            rounded = logits_of(self.model, "eager", whole, last)[0, :-1]
            margin = 2 * (rounded - expected).abs().amax().item()
            chosen = expected.gather(1, torch.tensor(tokens, device=expected.device)[:, None])[:, 0]
            wrong += int((~(expected.amax(1) - chosen <= margin)).sum())  # NaN is wrong too
        return wrong


@contextmanager
def attending(model: Any, name: str) -> Iterator[None]:
    """Give a model another attention for a while."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def padded(prompts: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Prompts as one batch with padding on the left."""
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {
        "input_ids": torch.tensor(ids, device=device),
        "attention_mask": torch.tensor(mask, device=device),
    }


def logits_of(model: Any, attention: str, prompts: Sequence[Sequence[int]], last: int) -> Tensor:
    """The logits of the last tokens of each prompt, float32 [prompts, last, vocabulary]."""
    with attending(model, attention), torch.no_grad():
        batch = padded(prompts, model.device)
        return torch.as_tensor(model(**batch, use_cache=False, logits_to_keep=last).logits).float()

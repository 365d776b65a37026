"""Models of transformers with random weights at real sizes: our attention against transformers' own.

python -m benchmarks.engines.transformers_models [--models llama,qwen3,gemma2,gpt_oss] [--tiny] [--no-times]

For each model: errors of logits, greedy tokens of `generate` and of continuous batching, and milliseconds for
each generated token. The reference is the same model in float32 with eager attention. Our logits may have 1.5
times the error of eager attention in the model's type. A token is wrong if the reference prefers another one
by more than twice the largest error of eager attention's logits. Exits with 1 if anything is wrong.
"""

import argparse
import copy
import gc
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_kernels.core.errors import brief
from benchmarks.common import environment

OURS = "attn_kernels"
MOST_ERROR = 1.5  # of the error of eager attention
LAYER_TYPES = ("sliding_attention", "full_attention")

# The shapes of Llama-3.1-8B, Qwen3-8B, Gemma-2-9B, and of gpt-oss-20b with fewer layers and experts.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "LlamaConfig",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    ),
    "qwen3": (
        "Qwen3Config",
        {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    ),
    "gemma2": (
        "Gemma2Config",
        {"vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42}
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
TINY = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2} | {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
}


@dataclass(frozen=True)
class Sizes:
    """Lengths in tokens."""

    prompts: tuple[int, ...]  # of one batch, padded on the left
    new: int
    timed: tuple[tuple[int, int], ...]  # number of prompts, and the length of each
    timed_new: int
    batching: dict[str, int]


ON_GPU = Sizes(
    (1100, 700, 64, 1),
    48,
    ((1, 1024), (1, 8192), (16, 1024)),
    64,
    {"block_size": 64, "num_blocks": 2048, "max_batch_tokens": 2048, "max_requests_per_batch": 32},
)
ON_CPU = Sizes(
    (37, 21, 1),
    4,
    ((1, 16),),
    2,
    {"block_size": 16, "num_blocks": 40, "max_batch_tokens": 24, "max_requests_per_batch": 4},
)


class Verdicts:
    """Printed lines, and whether anything was wrong."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.fine = True

    def add(self, model: str, what: str, ok: bool | None, **figures: object) -> None:
        """Print a line; ``ok`` is None where nothing is judged."""
        self.fine &= ok is not False
        self.rows.append({"model": model, "what": what, "ok": ok, **figures})
        verdict = {None: "", True: "ok", False: "WRONG"}[ok]
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
        print(f"{model:8} {what:34} {verdict:6} {text}", flush=True)


def build(name: str, tiny: bool, device: torch.device, layers: int | None = None) -> Any:
    """A model of random weights, in bfloat16, or in float16 if tiny."""
    import transformers

    config_class, sizes = CONFIGS[name]
    if tiny:
        # All experts serve each token: rounding would change which of a few do, and so the logits.
        changed = {"sliding_window": 20, "num_experts_per_tok": sizes.get("num_local_experts")}
        sizes = sizes | TINY | {key: value for key, value in changed.items() if key in sizes}
    if layers is not None:
        sizes = sizes | {"num_hidden_layers": layers}
    if "sliding_window" in sizes:
        kinds = [LAYER_TYPES[i % 2] for i in range(sizes["num_hidden_layers"])]
        sizes = sizes | {"layer_types": kinds}
    config = getattr(transformers, config_class)(
        **sizes, pad_token_id=0, bos_token_id=1, eos_token_id=None, max_position_embeddings=16384
    )
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float16 if tiny else torch.bfloat16
        ).eval()


@contextmanager
def attending(model: Any, name: str) -> Iterator[Any]:
    """Give a model another attention for a while."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield model
    finally:
        model.set_attn_implementation(before)


def draw(model: Any, lengths: Sequence[int]) -> list[list[int]]:
    """Random prompts, the same in every run."""
    generator = torch.Generator().manual_seed(3)
    most = model.config.vocab_size
    return [torch.randint(2, most, (length,), generator=generator).tolist() for length in lengths]


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


def check_logits(
    name: str, model: Any, reference: Any, prompts: list[list[int]], verdicts: Verdicts
) -> list[str]:
    """Compare the errors of logits; returns transformers' own attentions that the model has."""
    expected = logits_of(reference, "eager", prompts, 1)
    scale = expected.std().item()
    errors, own = {}, []
    for attention in ("eager", "sdpa", OURS):
        try:
            got = logits_of(model, attention, prompts, 1)
        except ValueError as error:
            if attention == OURS:
                raise
            print(f"{name:8} has no {attention}: {brief(error)}", flush=True)
            continue
        if attention != OURS:
            own.append(attention)
        errors[attention] = (got - expected).square().mean().sqrt().item() / scale
    ok = errors[OURS] <= MOST_ERROR * errors["eager"]  # False for NaN too
    verdicts.add(name, "logits, error over spread", ok, **{k: f"{v:.5f}" for k, v in errors.items()})
    return own


def check_tokens(
    name: str,
    what: str,
    models: tuple[Any, Any],
    prompts: list[list[int]],
    found: list[list[int]],
    verdicts: Verdicts,
) -> None:
    """Count tokens that the reference would not have chosen, given the tokens before, beyond rounding."""
    model, reference = models
    wrong = total = other = 0
    for prompt, tokens in zip(prompts, found, strict=True):
        whole, last = [prompt + tokens], len(tokens) + 1
        expected = logits_of(reference, "eager", whole, last)[0, :-1]
        rounded = logits_of(model, "eager", whole, last)[0, :-1]
        margin = 2 * (rounded - expected).abs().amax().item()
        chosen = expected.gather(1, torch.tensor(tokens, device=expected.device)[:, None])[:, 0]
        behind = expected.amax(1) - chosen
        total, other = total + len(tokens), other + int((behind > 0).sum())
        wrong += int((~(behind <= margin)).sum())
    verdicts.add(name, what, wrong == 0, tokens=total, within_rounding=other - wrong, wrong=wrong)


def generate(
    model: Any, attention: str, prompts: list[list[int]], new: int, **options: Any
) -> list[list[int]]:
    """The greedy tokens of ``generate``."""
    batch = padded(prompts, model.device)
    with attending(model, attention):
        ids = model.generate(
            **batch, max_new_tokens=new, min_new_tokens=new, do_sample=False, disable_compile=True, **options
        )
    return [[int(token) for token in row[batch["input_ids"].shape[1] :]] for row in ids]


def generate_batch(
    model: Any, attention: str, prompts: list[list[int]], new: int, **sizes: Any
) -> list[list[int]]:
    """The greedy tokens of continuous batching. Raises RuntimeError if a request fails."""
    import transformers

    config = transformers.GenerationConfig(max_new_tokens=new, do_sample=False, pad_token_id=0)
    batching = transformers.ContinuousBatchingConfig(**sizes)
    with attending(model, f"paged|{attention}"):
        outputs = model.generate_batch(
            prompts, generation_config=config, continuous_batching_config=batching
        ).values()
    tokens = {tuple(output.prompt_ids): output.generated_tokens for output in outputs}
    short = [o.error for o in outputs if len(o.generated_tokens) != new]
    if short or len(outputs) != len(prompts):
        raise RuntimeError(f"continuous batching finished {len(outputs) - len(short)} requests: {short[:1]}")
    return [tokens[tuple(prompt)] for prompt in prompts]


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The median seconds of three calls, after one more; without a GPU, of one call."""
    times = []
    for _ in range(4 if device.type == "cuda" else 1):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times)


def time_tokens(name: str, model: Any, own: Sequence[str], sizes: Sizes, verdicts: Verdicts) -> None:
    """Time a generated token of ``generate``, and all requests of continuous batching."""
    theirs = own[-1]  # sdpa where the model has it
    for count, length in sizes.timed:
        prompts = draw(model, [length] * count)
        for cache in ("dynamic", "static"):
            figures = {}
            for attention in (theirs, OURS):
                call = partial(generate, model, attention, prompts, cache_implementation=cache)
                few, many = (seconds(partial(call, new), model.device) for new in (1, 1 + sizes.timed_new))
                figures[attention] = f"{1e3 * (many - few) / sizes.timed_new:.2f}"
            verdicts.add(name, f"ms a token, {count} x {length}, {cache}", None, **figures)
        figures = {}
        ways = [(theirs, False), (OURS, False), *([(OURS, True)] if model.device.type == "cuda" else [])]
        for attention, graphs in ways:
            options = {**sizes.batching, "use_cuda_graph": graphs}
            call = partial(generate_batch, model, attention, prompts, sizes.timed_new, **options)
            try:
                took = f"{seconds(call, model.device):.3f}"
            except Exception as error:
                environment.raise_if_lost(model.device)
                took = brief(error)
            figures[attention + (" graphs" if graphs else "")] = took
        verdicts.add(name, f"s of all, {count} x {length}, batching", None, **figures)


def verify(name: str, options: argparse.Namespace, device: torch.device, verdicts: Verdicts) -> None:
    """Check and time one model."""
    sizes = ON_CPU if options.tiny else ON_GPU
    model = build(name, options.tiny, device, options.layers)
    reference = copy.deepcopy(model).float()
    prompts = draw(model, sizes.prompts)
    own = check_logits(name, model, reference, prompts, verdicts)
    models = model, reference
    for cache in ("dynamic", "static"):
        found = generate(model, OURS, prompts, sizes.new, cache_implementation=cache)
        check_tokens(name, f"tokens, {cache} cache", models, prompts, found, verdicts)
    for graphs in (False, True) if device.type == "cuda" else (False,):
        what = "tokens, continuous batching" + (", graphs" if graphs else "")
        try:
            found = generate_batch(model, OURS, prompts, sizes.new, **sizes.batching, use_cuda_graph=graphs)
        except Exception as error:
            environment.raise_if_lost(device)
            verdicts.add(name, what, False, failed=brief(error))
            continue
        check_tokens(name, what, models, prompts, found, verdicts)
    del reference, models
    if not options.no_times:
        time_tokens(name, model, own, sizes, verdicts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if anything was wrong."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="benchmarks.engines.transformers_models", description=__doc__)
    add = parser.add_argument
    add("--models", default=",".join(CONFIGS), help="default: %(default)s")
    add("--tiny", action="store_true", help="tiny models in float16, in Triton's interpreter on the CPU")
    add("--layers", type=int, help="of each model; default: its own number")
    add("--no-times", action="store_true", help="only check")
    add("--device", default="cuda", help="cuda or cuda:N")
    add("--out", type=Path, help="folder for transformers_models.json")
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    for name in names:
        if name not in CONFIGS:
            environment.stop(f"--models {name!r:.40}: not one of {', '.join(CONFIGS)}")
    device = environment.device_from("cpu" if options.tiny else options.device)
    try:
        import transformers

        importlib.import_module("attn_kernels.engines.transformers")  # registers itself
    except ImportError as error:
        environment.stop(f"transformers 5 cannot be imported: {error}")
    facts = environment.describe(device) | {"transformers": transformers.__version__}
    print(environment.headline(facts), flush=True)
    verdicts = Verdicts()
    for name in names:
        try:
            verify(name, options, device, verdicts)
        except Exception as error:
            environment.raise_if_lost(device)
            verdicts.add(name, "broke off", False, error=brief(error))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if options.out is not None:
        text = json.dumps({"environment": facts, "rows": verdicts.rows}, indent=1)
        environment.write_atomically(options.out / "transformers_models.json", text)
    print(f"{time.monotonic() - started:.0f} s; {'all fine' if verdicts.fine else 'SOMETHING IS WRONG'}")
    return 0 if verdicts.fine else 1


if __name__ == "__main__":
    sys.exit(main())

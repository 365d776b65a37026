"""Print what each engine's attention supports and refuses, from what refuses it.

    python -m attn_kernels.engines.supported                             # Markdown
    python -m attn_kernels.engines.supported --write docs/supported.md   # between the marks of a page

Refusals are those of the checks themselves, asked with a value that they refuse. Neither vLLM nor SGLang
need be installed: their backends are read, not imported. Exit codes: 0 fine, 2 wrong use.
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from attn_kernels.core.checks import DTYPES, FP8, MAX_HEAD_SIZE
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.core.model import Model
from attn_kernels.engines import sglang_supported as sglang
from attn_kernels.engines import vllm_supported as vllm
from attn_kernels.launch.run import run

MARKS = "<!-- printed by python -m attn_kernels.engines.supported -->", "<!-- end of what is printed -->"
YES, NO = "yes", "no"
ENGINES = {  # the files that call ``run``
    "vLLM": "vllm_layer",
    "SGLang": "sglang_backend",
    "transformers": "transformers",
    "transformers, continuous batching": "transformers_paged",
}
OPTIONS = {  # of ``run``, where its own name does not say it
    "sliding_window": "sliding windows, different in each layer",
    "softcap": "soft caps",
    "alibi_slopes": "ALiBi slopes",
    "sinks": "sinks",
    "lse": "log-sum-exps",
    "bidirectional_ranges": "images whose tokens see each other",
    "k_scale": "fp8 caches (e4m3) with one scale a layer",
}
PLAIN = {"plan", "q", "k_cache", "v_cache", "out", "softmax_scale", "v_scale"}  # of ``run``: all engines
# What vLLM asks a backend by a method, and its words for a refusal.
VLLM_ASKS = {
    "supports_sink": "sink setting",
    "supports_mm_prefix": "partial multimodal token full attention",
    "supports_batch_invariance": "batch invariance",
    "supports_non_causal": "non-causal attention",
    "supports_per_head_quant_scales": "per-head quant scales",
    "is_mla": "MLA",
}


def _source(name: str) -> ast.Module:
    return ast.parse(Path(__file__).with_name(f"{name}.py").read_text())


def passed_to_run(file: str) -> set[str]:
    """The options that a file passes to ``run``, by keyword or by names in a dictionary."""
    tree = list(ast.walk(_source(file)))
    named = {word.arg for call in tree if isinstance(call, ast.Call) for word in call.keywords if word.arg}
    return named | {str(word.value) for word in tree if isinstance(word, ast.Constant)}


def answered_by_vllm_backend() -> set[str]:
    """The methods of the backend of vLLM that answer otherwise than ``return False``."""
    functions = (node for node in ast.walk(_source("vllm_backend")) if isinstance(node, ast.FunctionDef))
    return {node.name for node in functions if ast.unparse(node.body[-1]) != "return False"}


def _head_sizes(fits: Callable[[int], object]) -> str:
    sizes = [size for size in range(1, 2 * MAX_HEAD_SIZE) if not _refusal(partial(fits, size))]
    return f"multiples of {sizes[0]} up to {sizes[-1]}" if sizes[0] > 1 else f"1 to {sizes[-1]}"


def _refusal(check: Callable[[], object]) -> str | None:
    """The message with which a check refuses, or that it answers False; None where it accepts."""
    try:
        return "no" if check() is False else None
    except (ValueError, TypeError, NotImplementedError) as error:
        return str(error)


def _model(head_size: int) -> Model:
    return Model(1, 1, head_size, 16, torch.bfloat16)


def supported() -> Iterator[list[str]]:
    """Rows of a table: what, and for each engine whether it is supported, or which of it."""
    count = len(ENGINES)
    yield ["types", *[" and ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)] * count]
    yield ["head sizes", _head_sizes(vllm.head_size_fits), *[_head_sizes(_model)] * (count - 1)]
    pages = (f"multiples of {module.PAGE_MULTIPLE} tokens" for module in (vllm, sglang))
    yield ["pages", *pages, *["as transformers has them"] * (count - 2)]
    passed = [passed_to_run(file) for file in ENGINES.values()]
    for name in signature(run).parameters:
        if name not in PLAIN:
            yield [OPTIONS.get(name, f"`{name}`"), *(YES if name in own else NO for own in passed)]
    asked = answered_by_vllm_backend()
    yield ["batch invariance", YES if "supports_batch_invariance" in asked else NO, *[NO] * (count - 1)]
    shares = _refusal(partial(vllm.check_parallel, SimpleNamespace(decode_context_parallel_size=2)))
    yield ["decode context parallelism", NO if shares else YES, *[NO] * (count - 1)]
    drafts = "speculative decoding" in " ".join(line for _, line in refused_by_sglang())
    speculative = f"yes; drafts of up to {MAX_DRAFT - 1} tokens count as decodes"
    yield ["speculative decoding", speculative, NO if drafts else YES, *["as `generate` does it", NO]]


def refused_by_vllm() -> Iterator[tuple[str, str]]:
    """What the backend of vLLM refuses, and the line that it gives."""
    tried = {
        "other head sizes": ("head_size", MAX_HEAD_SIZE + 64),
        "other types": ("dtype", torch.float32),
        "other caches": ("kv_cache_dtype", "fp8_e5m2"),
        "other pages": ("block_size", vllm.PAGE_MULTIPLE * 3 // 2),
        "older GPUs": ("device_capability", SimpleNamespace(major=vllm.MIN_CAPABILITY[0] - 1, minor=5)),
    }
    reasons = {name: reason for reason, (name, _) in vllm.NEEDED.items()}
    for what, (name, value) in tried.items():
        yield what, vllm.refusals([reasons[name]], {name: value})[0]
    answered = answered_by_vllm_backend()
    for method, words in VLLM_ASKS.items():
        if method not in answered:
            yield words, vllm.refusals([f"{words} not supported"], {})[0]
    spec = SimpleNamespace(head_size=128, head_size_v=64)
    checks: dict[str, Callable[[], object]] = {
        "values of another head size": partial(vllm.check_spec, spec, torch.bfloat16)
    }
    for name, value in {"prefill_context_parallel_size": 2, "dcp_comm_backend": "a2a"}.items():
        checks[f"`{name}` {value}"] = partial(vllm.check_parallel, SimpleNamespace(**{name: value}))
    no_options = dict.fromkeys(("sliding_window", "alibi_slopes", "kv_sharing_target_layer_name"))
    for name in (*no_options, "is_mm_prefix_lm", "VLLM_BATCH_INVARIANT", "head_size"):
        impl = SimpleNamespace(**no_options | {"head_size": 80, name: 80})
        asked = {name: True} if name in ("is_mm_prefix_lm", "VLLM_BATCH_INVARIANT") else {}
        checks[f"`{name}` with decode context parallelism"] = partial(vllm.check_shares, 2, impl, **asked)
    yield from _lines(checks)


class AttentionType(Enum):
    DECODER = sglang.DECODER
    ENCODER_ONLY = "encoder_only"


def refused_by_sglang() -> Iterator[tuple[str, str]]:
    """What the backend of SGLang refuses, and the line that it gives."""

    def runner(**changes: Any) -> Callable[[], object]:
        plain = {
            "use_mla_backend": False,
            "model_config": SimpleNamespace(is_encoder_decoder=False),
            "spec_algorithm": SimpleNamespace(is_speculative=lambda: False),
            "dtype": torch.bfloat16,
            "page_size": sglang.PAGE_MULTIPLE,
            "pool": SimpleNamespace(dtype=FP8),
        }
        pool = changes.get("pool", plain["pool"])
        return partial(sglang.check_runner, SimpleNamespace(**plain | changes), pool)

    def layer(**changes: Any) -> Callable[[], object]:
        plain = {
            "attn_type": AttentionType.DECODER,
            "is_cross_attention": False,
            "v_head_dim": 128,
            "head_dim": 128,
        }
        return partial(sglang.check_layer, SimpleNamespace(**plain | {"xai_temperature_len": -1} | changes))

    yield from _lines(
        {
            "other types": runner(dtype=torch.float32),
            "other caches": runner(pool=SimpleNamespace(dtype=torch.float8_e5m2)),
            "other pages": runner(page_size=1),
            "caches of their own for layers with windows": runner(
                pool=SimpleNamespace(dtype=FP8, swa_layer_nums=1)
            ),
            "speculative decoding": runner(spec_algorithm=SimpleNamespace(is_speculative=lambda: True)),
            "MLA": runner(use_mla_backend=True),
            "encoders": runner(model_config=SimpleNamespace(is_encoder_decoder=True)),
            "other kinds of attention": layer(attn_type=AttentionType.ENCODER_ONLY),
            "values of another head size": layer(v_head_dim=64),
            "temperatures by position": layer(xai_temperature_len=1),
        }
    )


def refused_by_transformers() -> Iterator[tuple[str, str]]:
    """What the attention of transformers refuses of its arguments, and the line that it gives."""
    from attn_kernels.engines.transformers import _check_supported, step_of

    checks: dict[str, Callable[[], object]] = {
        "dropout": partial(_check_supported, 0.1, None, {}),
        "bidirectional attention": partial(_check_supported, 0.0, False, {}),
        "masks that the caller made": partial(step_of, torch.zeros(1, 1, 4, 4)),
    }
    for name in ("position_bias", "output_attentions"):
        checks[f"`{name}`"] = partial(_check_supported, 0.0, None, {name: True})
    yield from _lines(checks)


def _lines(checks: dict[str, Callable[[], object]]) -> Iterator[tuple[str, str]]:
    for what, check in checks.items():
        if line := _refusal(check):
            yield what, line


def _table(header: Sequence[str], rows: Iterator[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]


def markdown() -> str:
    """All tables."""
    lines = _table(["", *ENGINES], supported())
    refusals = [refused_by_vllm, refused_by_sglang, refused_by_transformers]
    for engine, refused in zip(ENGINES, refusals, strict=False):
        header = [f"{engine} refuses", "line"]
        lines += ["", *_table(header, ([what, f"`{line}`"] for what, line in refused()))]
    return "\n".join(lines)


def with_block(page: str) -> str:
    """A page with the tables between its marks. Raises ValueError where it has no marks."""
    begin, end = MARKS
    before, mark, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        raise ValueError(f"it has no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{markdown()}\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, or write them into a page; 2 after wrong use."""
    parser = argparse.ArgumentParser(prog="python -m attn_kernels.engines.supported", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a page with marks")
    path = parser.parse_args(arguments).write
    if path is None:
        print(markdown())
        return 0
    try:
        path.write_text(with_block(path.read_text()))
    except (OSError, ValueError) as error:
        print(f"attn_kernels.engines.supported: {path}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

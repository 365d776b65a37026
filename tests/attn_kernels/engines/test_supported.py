"""The page of what is supported holds what the checks answer.

Neither vLLM nor SGLang need be installed: their backends are read, not imported.
"""

import ast
from enum import Enum
from functools import partial
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from treegen_builders import REPOSITORY

pytest.importorskip("transformers")

from attn_kernels.core.checks import DTYPES, FP8, MAX_HEAD_SIZE
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.core.model import Model
from attn_kernels.engines import sglang_supported as sglang
from attn_kernels.engines import vllm_supported as vllm
from attn_kernels.engines.transformers import _check_supported, step_of
from attn_kernels.launch.run import run

FILES = ("vllm_layer", "sglang_backend", "transformers", "transformers_paged")  # that call ``run``
OPTIONS = {  # of ``run``
    "sliding_window": "sliding windows, different in each layer",
    "softcap": "soft caps",
    "alibi_slopes": "ALiBi slopes",
    "sinks": "sinks",
    "k_scale": "fp8 caches (e4m3) with one scale per layer",
    "lse": "log-sum-exps",
    "bidirectional_ranges": "images whose tokens see each other",
    "causal": "bidirectional attention: encoders, cross-attention",
}
PLAIN = {
    "plan",
    "q",
    "k_cache",
    "v_cache",
    "out",
    "softmax_scale",
    "v_scale",
    "keys_after",
}  # of ``run``: all engines
# What vLLM asks a backend by a method, and its words for a refusal.
VLLM_ASKS = {
    "supports_sink": "sink setting",
    "supports_mm_prefix": "partial multimodal token full attention",
    "supports_batch_invariance": "batch invariance",
    "supports_non_causal": "non-causal attention",
    "supports_per_head_quant_scales": "per-head quant scales",
    "is_mla": "MLA",
}


def table(begin):
    """The cells behind the first of each row of the page's table whose header begins so, by the first."""
    _, found, rest = (REPOSITORY / "docs/supported.md").read_text().partition(f"\n{begin} |")
    _, _, *lines = rest.partition("\n\n")[0].splitlines()
    assert found and lines
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {what: cells for what, *cells in rows}


def source(name):
    path = REPOSITORY / f"attn_kernels/engines/{name}.py"
    return list(ast.walk(ast.parse(path.read_text())))


def passed_to_run(file):
    """The options that a file passes to ``run``, by keyword or by names in a dictionary."""
    nodes = source(file)
    named = {word.arg for call in nodes if isinstance(call, ast.Call) for word in call.keywords if word.arg}
    return named | {str(word.value) for word in nodes if isinstance(word, ast.Constant)}


def answered_by_vllm_backend():
    """The methods of the backend of vLLM that answer otherwise than ``return False``."""
    functions = (node for node in source("vllm_backend") if isinstance(node, ast.FunctionDef))
    return {node.name for node in functions if ast.unparse(node.body[-1]) != "return False"}


def refusal(check):
    """The message with which a check refuses, or that it answers False; None where it accepts."""
    try:
        return "no" if check() is False else None
    except (ValueError, TypeError, NotImplementedError) as error:
        return str(error)


def test_the_page_says_what_each_engine_supports():
    rows = table("| ")
    for row in rows.values():
        assert len(row) == len(FILES)
    assert rows.pop("types") == [" and ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)] * 4
    sizes = range(1, 2 * MAX_HEAD_SIZE)
    every = [size for size in sizes if not refusal(partial(Model, 1, 1, size, 16, torch.bfloat16))]
    assert every == list(range(1, MAX_HEAD_SIZE + 1))
    assert list(filter(vllm.head_size_fits, sizes)) == every[7::8]
    assert rows.pop("head sizes") == ["multiples of 8 up to 512", *["1 to 512"] * 3]
    pages = [f"multiples of {engine.PAGE_MULTIPLE} tokens" for engine in (vllm, sglang)]
    pages[1] = f"1 token or {pages[1]}"
    assert rows.pop("pages") == [*pages, *["as transformers has them"] * 2]
    invariant = "supports_batch_invariance" in answered_by_vllm_backend()
    assert invariant and rows.pop("batch invariance") == ["yes", "no", "no", "no"]
    shares = refusal(partial(vllm.check_parallel, SimpleNamespace(decode_context_parallel_size=2)))
    assert shares is None and rows.pop("decode context parallelism") == ["yes", "no", "no", "no"]
    drafts = f"yes; drafts of up to {MAX_DRAFT - 1} tokens count as decodes"
    assert refused_by_sglang()["speculative decoding"]
    assert rows.pop("speculative decoding") == [drafts, "no", "as `generate` does it", "no"]
    passed = [passed_to_run(file) for file in FILES]
    assert signature(run).parameters.keys() - PLAIN == OPTIONS.keys()
    assert rows == {
        words: ["yes" if name in own else "no" for own in passed] for name, words in OPTIONS.items()
    }


def refused_by_vllm():
    """What the backend of vLLM refuses, and the line that it gives."""
    tried = {
        "other head sizes": ("head_size", MAX_HEAD_SIZE + 64),
        "other types": ("dtype", torch.float32),
        "other caches": ("kv_cache_dtype", "fp8_e5m2"),
        "other pages": ("block_size", vllm.PAGE_MULTIPLE * 3 // 2),
        "older GPUs": ("device_capability", SimpleNamespace(major=vllm.MIN_CAPABILITY[0] - 1, minor=5)),
    }
    reasons = {name: reason for reason, (name, _) in vllm.NEEDED.items()}
    found = {what: vllm.refusals([reasons[name]], {name: value})[0] for what, (name, value) in tried.items()}
    answered = answered_by_vllm_backend()
    for method, words in VLLM_ASKS.items():
        if method not in answered:
            found[words] = vllm.refusals([f"{words} not supported"], {})[0]
    spec = SimpleNamespace(head_size=128, head_size_v=64)
    found["values of another head size"] = refusal(partial(vllm.check_spec, spec, torch.bfloat16))
    for name, value in {"prefill_context_parallel_size": 2, "dcp_comm_backend": "a2a"}.items():
        parallel = SimpleNamespace(**{name: value})
        found[f"`{name}` {value}"] = refusal(partial(vllm.check_parallel, parallel))
    no_options = dict.fromkeys(("sliding_window", "alibi_slopes", "kv_sharing_target_layer_name"))
    asks = ("encoder", "is_mm_prefix_lm", "VLLM_BATCH_INVARIANT")
    for name in (*no_options, *asks, "head_size"):
        impl = SimpleNamespace(**no_options | {"head_size": 80, name: 80})
        asked = {name: True} if name in asks else {}
        line = refusal(partial(vllm.check_shares, 2, impl, **asked))
        found[f"`{name}` with decode context parallelism"] = line
    return found


class AttentionType(Enum):
    DECODER = sglang.DECODER
    ENCODER_ONLY = "encoder_only"


def refused_by_sglang():
    """What the backend of SGLang refuses, and the line that it gives."""

    def runner(**changes):
        plain = {
            "use_mla_backend": False,
            "model_config": SimpleNamespace(is_encoder_decoder=False),
            "spec_algorithm": SimpleNamespace(is_speculative=lambda: False),
            "dtype": torch.bfloat16,
            "page_size": sglang.PAGE_MULTIPLE,
            "pool": SimpleNamespace(dtype=FP8),
        }
        given = SimpleNamespace(**plain | changes)
        return refusal(partial(sglang.check_runner, given, given.pool))

    def layer(**changes):
        plain = {
            "attn_type": AttentionType.DECODER,
            "is_cross_attention": False,
            "v_head_dim": 128,
            "head_dim": 128,
            "xai_temperature_len": -1,
        }
        return refusal(partial(sglang.check_layer, SimpleNamespace(**plain | changes)))

    assert runner() is layer() is None
    return {
        "other types": runner(dtype=torch.float32),
        "other caches": runner(pool=SimpleNamespace(dtype=torch.float8_e5m2)),
        "other pages": runner(page_size=8),
        "speculative decoding": runner(spec_algorithm=SimpleNamespace(is_speculative=lambda: True)),
        "MLA": runner(use_mla_backend=True),
        "encoders": runner(model_config=SimpleNamespace(is_encoder_decoder=True)),
        "other kinds of attention": layer(attn_type=AttentionType.ENCODER_ONLY),
        "values of another head size": layer(v_head_dim=64),
        "temperatures by position": layer(xai_temperature_len=1),
        "attention within chunks (Llama 4)": layer(use_irope=True),
        "other caps": layer(logit_capping_method="sigmoid"),
        "positions in scores": layer(pos_encoding_mode="ALIBI"),
    }


def refused_by_transformers():
    """What the attention of transformers refuses of its arguments, and the line that it gives."""
    return {
        "dropout": refusal(partial(_check_supported, 0.1, {})),
        "masks that the caller made": refusal(partial(step_of, torch.zeros(1, 1, 4, 4))),
        "`position_bias`": refusal(partial(_check_supported, 0.0, {"position_bias": True})),
        "`output_attentions`": refusal(partial(_check_supported, 0.0, {"output_attentions": True})),
    }


@pytest.mark.parametrize(
    ("engine", "refused"),
    [("vLLM", refused_by_vllm), ("SGLang", refused_by_sglang), ("transformers", refused_by_transformers)],
)
def test_the_page_has_each_line_with_which_an_engine_refuses(engine, refused):
    assert table(f"| {engine} refuses") == {what: [f"`{line}`"] for what, line in refused().items()}

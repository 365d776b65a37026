"""Tiny random models of transformers."""

from __future__ import annotations

from typing import Any

import torch
import transformers

import attn_kernels.engines.transformers  # noqa: F401  (registers itself)

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
KINDS = ["sliding_attention", "full_attention"]
CONFIGS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES),
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
        CONFIGS[name](), attn_implementation="attn_kernels", dtype=dtype
    ).eval()
    assert model.config._attn_implementation == "attn_kernels"
    return model

"""What the SGLang backend refuses, at a server's start. Imports no SGLang."""

from typing import Any

from attn_kernels.core.checks import DTYPES, FP8

PAGE_MULTIPLE = 16  # tokens
DECODER = "decoder"  # SGLang's word for causal self-attention
# Values of layers that change no score; ``use_irope`` is of attention within chunks (Llama 4).
PLAIN = {"use_irope": False, "logit_capping_method": "tanh", "pos_encoding_mode": "NONE"}


def check_runner(runner: Any, pool: Any) -> None:
    """Check a model runner of SGLang. Raises ValueError about what is not supported."""
    if runner.use_mla_backend:
        raise ValueError("attn_kernels: MLA is not supported")
    if runner.model_config.is_encoder_decoder:
        raise ValueError("attn_kernels: encoders and cross-attention are not supported")
    if runner.spec_algorithm.is_speculative():
        raise ValueError("attn_kernels: speculative decoding is not supported")
    if runner.dtype not in DTYPES:
        raise ValueError(f"attn_kernels: dtype is {runner.dtype}, but float16 or bfloat16 is needed")
    if pool.dtype not in (runner.dtype, FP8):
        needed = f"{runner.dtype} or {FP8}"
        raise ValueError(f"attn_kernels: the cache's dtype is {pool.dtype}, but {needed} is needed")
    if runner.page_size > 1 and runner.page_size % PAGE_MULTIPLE:
        needed = f"1 or a multiple of {PAGE_MULTIPLE} is needed (--page-size {PAGE_MULTIPLE})"
        raise ValueError(f"attn_kernels: page_size is {runner.page_size}, but {needed}")


def check_layer(layer: Any) -> None:
    """Check one layer of a model. Raises ValueError about what is not supported."""
    if layer.attn_type.value != DECODER or layer.is_cross_attention:
        raise ValueError(f"attn_kernels: attention type is {layer.attn_type}, but decoder is needed")
    if layer.v_head_dim != layer.head_dim:
        needed = f"that of keys, {layer.head_dim}, is needed"
        raise ValueError(f"attn_kernels: v_head_dim is {layer.v_head_dim}, but {needed}")
    if layer.xai_temperature_len > 0:
        raise ValueError("attn_kernels: xai_temperature_len is not supported")
    for name, plain in PLAIN.items():
        if (value := getattr(layer, name, plain)) != plain:
            raise ValueError(f"attn_kernels: {name} is {value}, but {plain} is needed")

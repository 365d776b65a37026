"""Entry point of SGLang's plugins: makes ``--attention-backend attn_kernels`` mean this package's kernels.

SGLang calls ``register`` in each of its processes. The backend is imported where a model needs it.
"""

from typing import Any

NAME = "attn_kernels"


def register() -> None:
    """Register the backend under its name, and let the command line accept it; may be called again."""
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(NAME)(create)
    if NAME not in ATTENTION_BACKEND_CHOICES:
        ATTENTION_BACKEND_CHOICES.append(NAME)


def create(runner: Any) -> Any:
    """Return the backend of a model runner of SGLang. Raises ValueError about what is not supported."""
    from attn_kernels.engines.sglang_backend import AttnKernelsBackend

    return AttnKernelsBackend(runner)

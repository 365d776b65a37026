"""Entry point of vLLM's plugins: makes ``--attention-backend CUSTOM`` mean this package's kernels.

vLLM calls ``register`` in each of its processes, before they use CUDA. So nothing here imports torch, Triton
or a kernel; vLLM imports the backend by its path where a model needs it.
"""

BACKEND = "attn_kernels.engines.vllm_backend.AttnKernelsBackend"


def register() -> None:
    """Register the backend under vLLM's name ``CUSTOM``; may be called again."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)

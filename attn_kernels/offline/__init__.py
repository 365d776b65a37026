"""Compilation for GPUs that this machine lacks; see ``python -m attn_kernels.offline --help``."""

from attn_kernels.offline.compile import compile_config
from attn_kernels.offline.resources import Resources

__all__ = ["Resources", "compile_config"]

"""Compilation for GPUs that this machine lacks; see ``python -m attn_kernels.offline --help``."""

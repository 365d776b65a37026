"""Unified paged attention in Triton, launched with the configs that the ``generated`` package chooses."""

from attn_kernels.ahead import compile_ahead
from attn_kernels.config import Config, LaunchConfig
from attn_kernels.launch import run
from attn_kernels.planning import plan
from attn_kernels.structures import Plan
from attn_kernels.untuned import AttnKernelsWarning
from attn_kernels.varlen import flash_attn_varlen_func
from attn_kernels.workspace import Workspace

__all__ = [
    "AttnKernelsWarning",
    "Config",
    "LaunchConfig",
    "Plan",
    "Workspace",
    "compile_ahead",
    "flash_attn_varlen_func",
    "plan",
    "run",
]

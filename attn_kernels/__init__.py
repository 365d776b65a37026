"""Unified paged attention in Triton, launched with the configs that the ``generated`` package chooses."""

from attn_kernels.config import Config, LaunchConfig
from attn_kernels.launch import run
from attn_kernels.planning import plan
from attn_kernels.structures import Plan
from attn_kernels.varlen import flash_attn_varlen_func

__all__ = ["Config", "LaunchConfig", "Plan", "flash_attn_varlen_func", "plan", "run"]

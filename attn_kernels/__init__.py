"""Unified paged attention in Triton, launched with configs that the ``generated`` package chooses."""

from attn_kernels.choose.untuned import AttnKernelsWarning
from attn_kernels.core.config import Config, LaunchConfig
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan
from attn_kernels.planning.varlen import flash_attn_varlen_func
from attn_kernels.planning.workspace import Workspace
from attn_kernels.warmup.compile_ahead import compile_ahead

__all__ = [
    "AttnKernelsWarning",
    "Config",
    "LaunchConfig",
    "Lengths",
    "Model",
    "Parts",
    "Plan",
    "Workspace",
    "compile_ahead",
    "flash_attn_varlen_func",
    "plan",
    "run",
]


def __getattr__(name: str) -> str:
    """Read ``__version__`` from the installed package when it is first asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("attn-kernels")

"""Unified paged attention in Triton, launched with configs that the ``generated`` package chooses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Modules below this package that need no torch, such as the help of attn-tune, can be imported without it.
_HOMES = {
    "AttnKernelsWarning": "choose.untuned",
    "Config": "core.config",
    "LaunchConfig": "core.config",
    "Lengths": "core.lengths",
    "Model": "core.model",
    "Parts": "core.lengths",
    "Plan": "core.structures",
    "Workspace": "planning.workspace",
    "compile_ahead": "warmup.compile_ahead",
    "flash_attn_varlen_func": "planning.varlen",
    "plan": "planning.plan",
    "run": "launch.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or read ``__version__`` of the installed package, when it is first asked for."""
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version

        value = version("attn-kernels")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value

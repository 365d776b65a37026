"""Unified paged attention in Triton, launched with configs that the ``generated`` package chooses.

A name is imported when it is first asked for. So a plugin of an engine loads no kernels in processes that
launch none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_kernels.choose.packages import use_heuristics as use_heuristics
    from attn_kernels.core.config import Config as Config
    from attn_kernels.core.config import LaunchConfig as LaunchConfig
    from attn_kernels.core.errors import AttnKernelsWarning as AttnKernelsWarning
    from attn_kernels.core.lengths import Lengths as Lengths
    from attn_kernels.core.lengths import Parts as Parts
    from attn_kernels.core.model import Model as Model
    from attn_kernels.core.structures import Plan as Plan
    from attn_kernels.launch.merge import merge_attention_states as merge_attention_states
    from attn_kernels.launch.run import run as run
    from attn_kernels.planning.plan import plan as plan
    from attn_kernels.planning.varlen import flash_attn_varlen_func as flash_attn_varlen_func
    from attn_kernels.planning.workspace import Workspace as Workspace
    from attn_kernels.warmup.compile_ahead import compile_ahead as compile_ahead

_MODULES = {
    "AttnKernelsWarning": "core.errors",
    "Config": "core.config",
    "LaunchConfig": "core.config",
    "Lengths": "core.lengths",
    "Model": "core.model",
    "Parts": "core.lengths",
    "Plan": "core.structures",
    "Workspace": "planning.workspace",
    "compile_ahead": "warmup.compile_ahead",
    "flash_attn_varlen_func": "planning.varlen",
    "merge_attention_states": "launch.merge",
    "plan": "planning.plan",
    "run": "launch.run",
    "use_heuristics": "choose.packages",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a name, or read ``__version__`` from the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("attn-kernels")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

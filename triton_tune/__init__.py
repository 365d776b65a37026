"""Tune any Triton kernel, and launch it with what was found.

`Tuning` describes a kernel to `triton-tune`; `@tuned` launches it with a module that treegen generated from
the table, and `install` does so for all kernels of a program. Triton is imported with the last two, and
nothing else but the standard library.
"""

import importlib
from typing import TYPE_CHECKING, Any

from triton_tune.kernel.tuning import Tuning

if TYPE_CHECKING:
    from triton_tune.launch.install import install
    from triton_tune.launch.tuned import Tuned, tuned

__all__ = ["Tuned", "Tuning", "install", "tuned"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"triton_tune.launch.{name.lower()}"), name)
    raise AttributeError(f"module 'triton_tune' has no attribute {name!r}")

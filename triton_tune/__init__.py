"""Tune any Triton kernel, and launch it with what was found.

`Tuning` describes a kernel to `triton-tune`; `@tuned` launches it with a module that treegen generated from
the table, and `install` does so for all kernels of a program. Triton is imported with the last two, and
nothing else but the standard library.
"""

from typing import TYPE_CHECKING, Any

from triton_tune.kernel.tuning import Tuning

if TYPE_CHECKING:
    from triton_tune.launch.install import install
    from triton_tune.launch.tuned import Tuned, tuned

__all__ = ["Tuned", "Tuning", "install", "tuned"]


def __getattr__(name: str) -> Any:
    if name == "install":
        from triton_tune.launch.install import install

        return install
    if name in ("Tuned", "tuned"):
        from triton_tune.launch import tuned as module

        return getattr(module, name)
    raise AttributeError(f"module 'triton_tune' has no attribute {name!r}")

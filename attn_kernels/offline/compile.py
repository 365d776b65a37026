"""A config's kernels, compiled as its launches on a GPU would compile them."""

from collections.abc import Iterable
from typing import Any

import torch
import triton
from triton.compiler import ASTSource

from attn_kernels.core.config import LaunchConfig, complete
from attn_kernels.offline.resources import TARGETS, Resources, measure
from attn_kernels.offline.sources import Shape, Source, sources


def compile_config(
    config: LaunchConfig,
    *,
    target: str,
    head_size: int,
    block_size: int,
    queries_per_kv: int,
    dtype: torch.dtype = torch.bfloat16,
    features: Iterable[str] = (),
) -> dict[str, Resources]:
    """Compile a config's kernels as a launch on ``target`` (``sm_90``, ``gfx942``, ...) would; needs no GPU.

    Tensors are taken to be contiguous and, but for the caches, smaller than 2 GiB. ``features``: what the
    launch has, of ``attn_kernels.offline.sources.FEATURES``.

    Returns:
        What each kernel needs, by its name without ``_kernel``, in launch order.

    Raises:
        ValueError: an impossible config, size, target or feature. TypeError: dtype. RuntimeError:
        TRITON_INTERPRET is set. Whatever Triton raises when it cannot compile.
    """
    shape = Shape(target, head_size, block_size, queries_per_kv, dtype, tuple(features))
    found = sources(complete(config), shape)
    return {name: measure(compile_source(source, target)) for name, source in found.items()}


def compile_source(source: Source, target: str) -> Any:
    """Triton's compiled kernel, whose ``asm`` holds every stage (``ttgir``, ``ptx`` or ``amdgcn``)."""
    arguments = (source.kernel, source.signature, source.constants, source.attributes)
    if type(source.kernel).__name__ == "GluonJITFunction":
        from triton.experimental.gluon._runtime import GluonASTSource

        ast = GluonASTSource(*arguments)
    else:
        ast = ASTSource(*arguments)
    return triton.compile(ast, target=TARGETS[target], options=source.options)

"""Compilation of a config's kernels as launches on a GPU would compile them."""

from collections.abc import Iterable
from typing import Any

import torch
import triton
from triton.compiler import ASTSource

from attn_kernels.core.config import LaunchConfig, complete
from attn_kernels.offline.resources import TARGETS, Resources, measure
from attn_kernels.offline.sources import CompileShape, KernelSource, sources


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
    """Compile a config's kernels as a launch on ``target`` would; no GPU is needed.

    Tensors are taken to be contiguous and, except the caches, smaller than 2 GiB.

    Args:
        config: with the attributes of ``LaunchConfig``.
        target: a key of ``attn_kernels.offline.resources.TARGETS``, such as ``sm_90`` or ``gfx942``.
        head_size: 1 to 256. block_size: tokens a page holds.
        queries_per_kv: query heads that share a KV head.
        dtype: of queries, output and, without the feature "fp8", caches.
        features: what the launch has, of ``attn_kernels.offline.sources.FEATURES``.

    Returns:
        The Resources of each kernel, by its name without ``_kernel``, in launch order.

    Raises:
        ValueError: a config, size, target or feature is impossible. TypeError: dtype is not supported.
        RuntimeError: TRITON_INTERPRET is set. Any exception of Triton's compiler.
    """
    shape = CompileShape(target, head_size, block_size, queries_per_kv, dtype, tuple(features))
    return {
        name: measure(compile_source(source, target))
        for name, source in sources(complete(config), shape).items()
    }


def compile_source(source: KernelSource, target: str) -> Any:
    """Triton's compiled kernel; its ``asm`` holds every stage (``ttgir``, ``ptx`` or ``amdgcn``)."""
    arguments = (source.kernel, source.signature, source.constants, source.attributes)
    if type(source.kernel).__name__ == "GluonJITFunction":
        from triton.experimental.gluon._runtime import GluonASTSource

        ast = GluonASTSource(*arguments)
    else:
        ast = ASTSource(*arguments)
    return triton.compile(ast, target=TARGETS[target], options=source.options)

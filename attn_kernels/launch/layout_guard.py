"""Whether a layer's tensors are as those before them were, asked once a layer and so in one C call.

torch's own guard of tensors compares types, shapes, strides, dtypes, devices and dispatch keys in a quarter
of the time that Python takes to read them one by one. It is private, so it is tried before it is trusted;
without it they are read.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None  # type: ignore[assignment, misc]

from attn_kernels.launch.signature import ALWAYS, Facts, read

Same = Callable[..., bool]


def same_as(tensors: Sequence[Tensor], facts: Facts) -> Same:
    """Of as many tensors, whether they differ from these in nothing but their contents and addresses.

    A false "no" is possible, so the one who asks then finds out in another way. ``facts``: as ``read`` has
    them of the first four.
    """
    guard = _guard(tensors) if _guard_works() else None
    if guard is not None and guard(*tensors):  # it finds twice the same tensor never the same
        return guard
    described = tuple(map(_describe, tensors[ALWAYS:]))

    def same(*others: Any) -> bool:
        try:
            return read(*others[:ALWAYS]) == facts and tuple(map(_describe, others[ALWAYS:])) == described
        except AttributeError:  # no tensor
            return False

    return same


def _describe(tensor: Tensor) -> Facts:
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def _guard(tensors: Sequence[Tensor]) -> Same:
    sizes_and_strides: Any = {"dynamic_dims_sizes": None, "dynamic_dims_strides": None}  # none may change
    check: Same = TensorGuards(*tensors, **sizes_and_strides).check
    return check


@cache
def _guard_works() -> bool:
    """Whether this version of torch has the guard, and it tells apart what it has to."""

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device="cpu")  # not what a server's defaults are

    one, two = zeros(2, 3), zeros(4)
    try:
        check = _guard((one, two))
        unlike = (one[:1], one.half(), one.mT.contiguous().mT, one.to("meta"), one[None], None)
        return (
            check(one, two)
            and check(zeros(2, 3) + 1, zeros(4) + 1)
            and not any(check(other, two) for other in unlike)
            and not check(one, two[:3])
        )
    except Exception:  # whatever a private interface of another version may raise
        return False

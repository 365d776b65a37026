"""Operators of torch, as which compiled graphs hold launches: ``torch.compile``, ``torch.export``.

A graph takes tensors and numbers. So a plan has a handle, a tensor that holds a number, and the operator finds
the plan by it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from attn_kernels.core.structures import Plan

NAMESPACE = "attn_kernels"
CHUNK = 1024  # handles made at a time, of which each then costs little

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_plans: WeakValueDictionary[int, Plan] = WeakValueDictionary()


def _handles() -> Iterator[tuple[int, Tensor]]:
    for first in count(0, CHUNK):
        numbers = torch.arange(first, first + CHUNK, device="cpu")
        yield from zip(range(first, first + CHUNK), numbers.unbind(), strict=True)


_free = _handles()


def take_handle(plan: Plan) -> None:
    """Give a plan its handle, int64 on the CPU."""
    number, plan.handle = next(_free)
    _plans[number] = plan


def plan_of(handle: Tensor) -> Plan:
    """Find a plan. Raises ValueError if nothing keeps it any more."""
    plan = _plans.get(int(handle))
    if plan is None:
        raise ValueError(
            f"plan number {int(handle)} is gone, but one that is kept until its launches is needed"
        )
    return plan


def define(function: Callable[..., None], name: str) -> None:
    """Register a function that writes ``out`` and ``lse`` as an operator; shapes are the caller's."""
    if hasattr(getattr(torch.ops, NAMESPACE), name):  # its module was imported again
        return
    schema = torch.library.infer_schema(function, mutates_args=("out", "lse"))
    _library.define(name + schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", lambda *_: None, lib=_library)


def number_and_tensor(scale: float | Tensor) -> tuple[float, Tensor | None]:
    """A scale as two arguments of an operator, of which the tensor counts if there is one."""
    return (1.0, scale) if isinstance(scale, Tensor) else (scale, None)

"""The torch operators that stand for launches in graphs of ``torch.compile`` and ``torch.export``.

A graph takes only tensors and numbers. So each plan has a handle, a tensor that holds a number, and the
operator finds the plan by that number.
"""

from collections.abc import Callable
from itertools import count
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from attn_kernels.core.structures import Plan

NAMESPACE = "attn_kernels"
CHUNK = 1024  # handles are made this many at a time, which makes each one cheap

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_plans: WeakValueDictionary[int, Plan] = WeakValueDictionary()
_chunks = count()
_free: list[tuple[int, Tensor]] = []


def take_handle(plan: Plan) -> None:
    """Give a plan its handle, int64 on the CPU; threads may do so at once."""
    try:
        number, plan.handle = _free.pop()
    except IndexError:
        first = CHUNK * next(_chunks)
        numbers = torch.arange(first, first + CHUNK, device="cpu").unbind()
        number, plan.handle = first, numbers[0]
        _free.extend(zip(range(first + 1, first + CHUNK), numbers[1:], strict=True))
    _plans[number] = plan


def plan_of(handle: Tensor) -> Plan:
    """Find a plan. Raises ValueError if nothing keeps it any more."""
    plan = _plans.get(int(handle))
    if plan is None:
        raise ValueError(f"plan number {int(handle)} is gone, but it is needed for as long as its handle")
    return plan


def define(name: str, schema: str, function: Callable[..., None]) -> None:
    """Register a function that writes outputs of its caller as an operator."""
    if hasattr(getattr(torch.ops, NAMESPACE), name):  # its module was imported again
        return
    _library.define(name + schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", lambda *_: None, lib=_library)


def number_and_tensor(scale: float | Tensor) -> tuple[float, Tensor | None]:
    """A scale as two arguments of an operator, of which the tensor counts if there is one."""
    return (1.0, scale) if isinstance(scale, Tensor) else (scale, None)

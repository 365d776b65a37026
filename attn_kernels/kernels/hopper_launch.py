"""Whether the Hopper kernel is launched, and its launches, for the variants that ask for it."""

import importlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.arguments import CU_SEQLENS_Q
from attn_kernels.kernels.hopper_limits import asked_by, roles_of, unsupported_reason
from attn_kernels.kernels.schedule import bind_schedule
from attn_kernels.kernels.variant import Scratch


@cache
def hopper_module() -> ModuleType | None:
    """The module ``hopper``; None where Triton's Gluon does not support it."""
    try:
        return importlib.import_module("attn_kernels.kernels.hopper")
    except (ImportError, AttributeError):  # Gluon is experimental: its names come and go
        return None


@cache
def hopper_for(device: torch.device) -> ModuleType | None:
    hopper = hopper_module()
    return hopper if hopper is not None and hopper.serves(device) else None


def launches(config: Config, device: torch.device) -> bool:
    """Return whether a config asks for the kernel, and the device has it."""
    return asked_by(config) and hopper_for(device) is not None


def take_schedule(scratch: Scratch, plan: Plan) -> tuple[Tensor, ...]:
    """The memory of a schedule, where the kernel is launched."""
    if not launches(plan.config, plan.device):
        return ()
    roles = roles_of(plan.config, plan.model.gqa_group_size)
    length = roles.length(plan.lengths.num_query_tokens, plan.lengths.num_seqs)
    return (scratch.schedule(length, plan.part),)


def bind_schedules(plan: Plan, schedule: OfPlan, cu_decodes: OfPlan = CU_SEQLENS_Q) -> tuple[Launch, ...]:
    """The launch that computes a plan's schedule, if ``take_schedule`` gave memory for one."""
    if not launches(plan.config, plan.device):
        return ()
    roles = roles_of(plan.config, plan.model.gqa_group_size)
    return (bind_schedule(roles, schedule, CU_SEQLENS_Q, cu_decodes),)


def bind_hopper(
    plan: Plan,
    layer: Layer,
    schedule: OfPlan,
    *,
    cu_decodes: OfPlan = CU_SEQLENS_Q,
    fragments: Sequence[OfPlan | None] = (None,) * 4,
    num_splits: OfPlan | int | None = None,
) -> tuple[Launch, ...]:
    """The launch for layers like this one; none if the kernel cannot compute them."""
    hopper = hopper_for(plan.device) if asked_by(plan.config) else None
    if hopper is None or unsupported_reason(plan, layer) is not None:
        return ()
    return (hopper.bind(plan, layer, schedule, cu_decodes, fragments, num_splits),)

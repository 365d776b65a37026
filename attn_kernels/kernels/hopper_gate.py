"""Launches of the Hopper kernel, which is there only where Triton's Gluon supports it."""

import importlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TypeGuard

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.arguments import CU_SEQLENS_Q
from attn_kernels.kernels.schedule import bind_schedule
from attn_kernels.kernels.scratch import Scratch, ScratchSizes


@cache
def hopper_module() -> ModuleType | None:
    """The module ``hopper``; None where Triton's Gluon does not support it."""
    try:
        return importlib.import_module("attn_kernels.kernels.hopper")
    except (ImportError, AttributeError):  # Gluon is experimental: its names come and go
        return None


@cache
def hopper_for(device: torch.device) -> ModuleType | None:
    """The module ``hopper`` where it can be used: on Hopper GPUs."""
    hopper = hopper_module()
    return hopper if hopper is not None and hopper.serves(device) else None


def _chosen_by(config: Config | None) -> TypeGuard[Config]:
    """Return whether a config asks for the kernel: with descriptors, or as ``pod``."""
    return config is not None and bool(config.descriptors or config.decode_tile)


def take_schedule(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    """The memory of a schedule, where a config asks for the kernel and the device is a Hopper GPU."""
    hopper = hopper_for(scratch.device)
    if hopper is None or not _chosen_by(sizes.config):
        return ()
    roles = hopper_limits.roles_of(sizes.config, sizes.queries_per_kv)
    return (scratch.schedule(roles.length(sizes.num_query_tokens, sizes.num_seqs), sizes),)


def bind_schedules(plan: Plan, schedule: OfPlan, cu_decodes: OfPlan = CU_SEQLENS_Q) -> tuple[Launch, ...]:
    """The launch that computes a plan's schedule, if ``take_schedule`` gave memory for one.

    Args:
        schedule: that memory. cu_decodes: as ``bind_schedule`` takes it.
    """
    hopper = hopper_for(plan.device)
    if hopper is None or not _chosen_by(plan.config):
        return ()
    roles = hopper_limits.roles_of(plan.config, plan.model.queries_per_kv)
    return (bind_schedule(roles, schedule, CU_SEQLENS_Q, cu_decodes),)


def bind_hopper(
    plan: Plan,
    layer: Layer,
    schedule: OfPlan,
    *,
    cu_decodes: OfPlan = CU_SEQLENS_Q,
    fragments: Sequence[OfPlan | None] = (None,) * 4,
) -> tuple[Launch, ...]:
    """The launch for layers like this one; none if the kernel cannot compute them."""
    hopper = hopper_for(plan.device)
    if hopper is None or not _chosen_by(plan.config) or hopper_limits.why_not(plan, layer) is not None:
        return ()
    return (hopper.bind(plan, layer, schedule, CU_SEQLENS_Q, cu_decodes, fragments),)

"""What is alike in all layers that one bound launch serves."""

from collections.abc import Hashable
from typing import Any

from torch import Tensor

from attn_kernels.core.structures import Plan

# A layer's tensors, in the order of their addresses. The first four are always there.
TENSORS = ("out", "q", "k_cache", "v_cache", "k_new", "v_new", "alibi_slopes", "sinks", "k_scale", "v_scale")
ALWAYS = 4
ALIGNMENT = 16  # bytes, which Triton compiles kernels for

Facts = tuple[Any, ...]

generation = 0  # part of every key


def forget() -> None:
    """From now on no key equals one from before."""
    global generation
    generation += 1


def of_plan(plan: Plan) -> Hashable:
    """The key of what is launched for a plan and for no layer."""
    return "plan", plan.segments_function, generation


def read(out: Tensor, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Facts:
    """All that checks read of a layer's tensors and that Triton compiles for.

    None of it is remembered by tensor, whose shape, strides, dtype and memory may all change in place
    (``resize_``, ``set_``, ``t_``, ``data``); nor does one of these tell of another.

    Returns:
        A pair: what has to be as the plan says, and what may be otherwise.

    Raises:
        AttributeError: something is no tensor.
    """
    a, b, c, d = out.data_ptr(), q.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr()
    return (
        (out.shape, q.shape, out.device, q.device, k_cache.device, v_cache.device),
        (
            (not a % ALIGNMENT, not b % ALIGNMENT, not c % ALIGNMENT, not d % ALIGNMENT),
            out.dtype,
            q.dtype,
            k_cache.dtype,
            v_cache.dtype,
            out.stride(),
            q.stride(),
            k_cache.stride(),
            v_cache.stride(),
            k_cache.shape,
            v_cache.shape,
        ),
    )


def kinds(others: tuple[Any, ...]) -> Facts:
    """Which of the optional tensors, in the order of ``TENSORS``, are there; what is no tensor counts as a
    number, by its value and type, as 1, 1.0 and True are equal."""
    return tuple(Tensor if isinstance(other, Tensor) else (other, type(other)) for other in others)


def key_of(plan: Plan, facts: Facts, others: tuple[Any, ...], scoring: Hashable) -> Hashable:
    """A key of everything that a launch is bound for, alike for plans of other batches.

    Args:
        facts: as ``read`` returns them. others: the optional tensors.
        scoring: the options of the scores, and which optional tensors there are.

    Returns:
        None if a tensor has not the plan's shape or device.
    """
    placed, kind = facts
    if placed != plan.placed:
        return None
    key: list[Hashable] = [scoring, kind]
    for name, other in zip(TENSORS[ALWAYS:], others, strict=True):
        if isinstance(other, Tensor):
            if other.device != plan.device:
                return None
            shape: tuple[int, ...] = other.shape
            if name in ("k_new", "v_new"):
                if shape != (plan.num_query_tokens, plan.model.num_kv_heads, plan.model.head_size):
                    return None
                shape = (other.data_ptr() % ALIGNMENT,)
            key.append((other.dtype, other.stride(), shape))
    return tuple(key)

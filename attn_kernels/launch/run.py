"""One layer's attention, by the launches that the planned variant describes."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn_kernels.core import layer_checks
from attn_kernels.core.structures import Layer, Plan
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.launch import binding, signature
from attn_kernels.launch.binding import Bound
from attn_kernels.launch.direct import hooked
from attn_kernels.launch.layout_guard import Same, same_as
from attn_kernels.launch.ready import launch_all
from attn_kernels.launch.signature import ALIGNMENT, ALWAYS, key_of, kinds, of_plan, read


def run(
    plan: Plan,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    out: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: float | Tensor = 1.0,
    v_scale: float | Tensor = 1.0,
) -> Tensor:
    """Attention of one layer over the paged KV cache, with exactly the plan's config.

    Causal and aligned at the end: query i of a sequence with n queries and L keys sees keys 0 .. L - n + i,
    or the last ``sliding_window`` of those. A score is ``softmax_scale * q @ k``, then soft-capped, then
    biased.

    Args:
        q: [num_query_tokens, num_query_heads, head_size].
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size], of q's dtype or
            ``torch.float8_e4m3fn``; they hold the query tokens' keys and values as well.
        out: like q, written in place; allocated if None. These and the next may be strided in any dimension
            but the last.
        k_new, v_new: [num_query_tokens, num_kv_heads, head_size] of q's dtype, the query tokens' own keys and
            values: ``prefix_prefill`` and the prefill kernel of ``split`` read them from here if given, all
            others from the cache.
        softmax_scale: a positive factor of the scores; ``head_size ** -0.5`` if None.
        sliding_window: how many keys a query sees, its own included; None means all.
        softcap: scores become ``softcap * tanh(score / softcap)`` (Gemma 2); 0 means none; at most 1000.
        alibi_slopes: float32 [num_query_heads]; adds ``slope * (key position - query position)`` (Press et
            al., arXiv 2108.12409).
        sinks: [num_query_heads], float32 or of q's dtype: a score per head that takes part in the softmax
            without a value (attention sinks as in gpt-oss).
        k_scale, v_scale: what the cached keys and values are multiplied by, positive: a number, or a float32
            tensor of one element on the device, which is not read on the host.

    Returns:
        out.

    Raises:
        TypeError: a wrong dtype. ValueError: a shape, device, stride, page id or number that cannot be right.
    """
    # Once a layer: everything up to the first return is what a server pays for 32 to 80 times a step.
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format) if isinstance(q, Tensor) else q
    tensors: tuple[Tensor, ...] = (out, q, k_cache, v_cache)
    others = (k_new, v_new, alibi_slopes, sinks, k_scale, v_scale)
    scoring: tuple[Any, ...] = (  # with types, as 1, 1.0 and True are equal
        signature.generation,
        softmax_scale,
        type(softmax_scale),
        sliding_window,
        type(sliding_window),
        softcap,
        k_scale,
        v_scale,
    )
    if not (
        k_new is v_new is alibi_slopes is sinks is None
        and type(softcap) is type(k_scale) is type(v_scale) is float
    ):
        scoring = (*scoring[:6], type(softcap), kinds(others))
        tensors += tuple(other for other in others if isinstance(other, Tensor))
    try:
        known = plan.ready.get(scoring)
    except TypeError:  # something has no hash; the checks say what
        known = None
    if known is not None and known.same(*tensors) and not hooked():
        a, b, c, d = out.data_ptr(), q.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr()
        if not (a | b | c | d) % ALIGNMENT:
            addresses: tuple[int, ...] = (a, b, c, d)
            if len(tensors) > ALWAYS:
                addresses += tuple([other.data_ptr() for other in tensors[ALWAYS:]])
            launch_all(plan.device.index, known.launches, addresses, tensors)
            return out
    _run_anew(plan, scoring, tensors, others, (softmax_scale, sliding_window, softcap))
    return out


class Known(NamedTuple):
    """What is launched for layers whose tensors are the ``same``: of one plan, or bound for many."""

    same: Same
    launches: tuple[Any, ...]


class Found(NamedTuple):
    """What is known of a plan's first layer of a kind.

    Attributes:
        addresses: of its tensors; none where one is no tensor.
        key: to bind launches by; None where none may be bound or nobody needs it.
        bound: the launches that plans like this one have for such layers; None if unknown.
        same: tells layers like this one of plans of as many query tokens; None if nothing does.
    """

    addresses: tuple[int, ...] = ()
    key: Hashable = None
    bound: tuple[Bound, ...] | None = None
    same: Same | None = None


def _run_anew(
    plan: Plan,
    scoring: Hashable,
    tensors: tuple[Tensor, ...],
    others: tuple[Any, ...],
    numbers: tuple[Any, ...],
) -> None:
    """``run`` for a plan's first layer of a kind.

    Args:
        scoring: what the plan knows the kind by. tensors: in the order of ``TENSORS``, those that there are.
        others: what was given for the optional ones. numbers: softmax scale, window and soft cap.
    """
    addresses, key, bound, same = _find(plan, scoring, tensors, others)
    out, q, k_cache, v_cache = tensors[:ALWAYS]
    if bound is None or (plan.max_page_id is not None and plan.max_page_id >= k_cache.shape[0]):
        layer_checks.check_run(plan, q, k_cache, v_cache, out, *others[:2])
        layer_checks.check_scoring(plan, *numbers, *others[2:])
    if plan.num_query_tokens == 0:
        return
    launches = None if bound is None or hooked() else binding.fill_in(plan, bound)
    if launches is not None:
        if same is not None:
            binding.remember(plan.ready, scoring, Known(same, launches))
        launch_all(plan.device.index, launches, addresses, tensors)
        return
    k_new, v_new, alibi_slopes, sinks, k_scale, v_scale = others
    softmax_scale, sliding_window, softcap = numbers
    layer = Layer(
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        out=out,
        k_new=k_new,
        v_new=v_new,
        softmax_scale=plan.model.head_size**-0.5 if softmax_scale is None else softmax_scale,
        sliding_window=sliding_window,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    if bound is None:
        bound = binding.bind(plan, key, VARIANTS[plan.config.variant].bind(plan, layer))
    binding.launch_through_triton(plan, bound, layer)


def _find(plan: Plan, scoring: Hashable, tensors: tuple[Tensor, ...], others: tuple[Any, ...]) -> Found:
    """Nothing where something is wrong: the checks say what."""
    try:
        addresses = tuple([tensor.data_ptr() for tensor in tensors])
        usual = others[0] is None and not (
            (addresses[0] | addresses[1] | addresses[2] | addresses[3]) % ALIGNMENT
        )
        alike = scoring, plan.num_query_tokens
        known = plan.bound.get(alike) if usual else None
        if known is not None and known.same(*tensors):
            return Found(addresses, None, known.launches, known.same)
        facts = read(*tensors[:ALWAYS])
        key = key_of(plan, facts, others, scoring)
        bound = plan.bound.get(key)
    except (AttributeError, TypeError, RuntimeError):
        return Found()
    if bound is None or not usual:
        return Found(addresses, key, bound)
    same = same_as(tensors, facts)
    binding.remember(plan.bound, alike, Known(same, bound))
    return Found(addresses, key, bound, same)


def begin(plan: Plan) -> None:
    """Launch what the planned variant launches once a plan, before any layer."""
    bind_once = VARIANTS[plan.config.variant].bind_once
    if bind_once is None:
        return
    key = of_plan(plan)
    bound = plan.bound.get(key)
    if bound is None:
        bound = binding.bind(plan, key, bind_once(plan))
    if not bound:
        return
    ready = None if hooked() else binding.fill_in(plan, bound)
    if ready is None:
        binding.launch_through_triton(plan, bound)
    else:
        launch_all(plan.device.index, ready, (), ())

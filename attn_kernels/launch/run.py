"""One layer's attention: find the launches of the layer's signature, and make them."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor, is_grad_enabled
from torch.compiler import is_compiling

from attn_kernels.core import layer_checks
from attn_kernels.core.checks import MAX_TOKENS
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import bind_divide
from attn_kernels.launch import direct
from attn_kernels.launch.direct import ALIGNMENT, BoundLaunch, hooked, launch_filled
from attn_kernels.launch.operators import define, number_and_tensor, plan_of
from triton_tune.launch.choosing import DOES_NOT_FIT

# A layer's tensors in the order of their addresses. The first four are always there.
REQUIRED = ("out", "q", "k_cache", "v_cache")
OPTIONAL = ("alibi_slopes", "sinks", "k_scale", "v_scale", "lse", "bidirectional_ranges")
GRADIENT_NAMES = ("q", "k_cache", "v_cache", "out", *OPTIONAL)
# Of the operator that stands for ``run`` in a graph; of a scale, its tensor counts if there is one.
GRAPH_SCHEMA = (
    "(Tensor plan, Tensor q, Tensor k_cache, Tensor v_cache, Tensor(a!) out, float k_number, "
    "Tensor? k_scale, float v_number, Tensor? v_scale, float? softmax_scale, SymInt? sliding_window, "
    "float softcap, bool causal, SymInt? keys_after, Tensor? alibi_slopes, Tensor? sinks, "
    "Tensor(b!)? lse, Tensor? bidirectional_ranges) -> ()"
)
GRAPH_OPTIONS = (
    *("softmax_scale", "sliding_window", "softcap", "causal", "keys_after"),
    *("alibi_slopes", "sinks", "lse", "bidirectional_ranges"),
)
PARTS_BEGUN = "parts begun"  # a key of ``Plan.launches``


def run(
    plan: Plan,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    out: Tensor | None = None,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: float | Tensor = 1.0,
    v_scale: float | Tensor = 1.0,
    lse: Tensor | None = None,
    bidirectional_ranges: Tensor | None = None,
    causal: bool = True,
    keys_after: int | None = None,
) -> Tensor:
    """Attention of one layer over the paged KV cache, with exactly the plan's config.

    Queries are aligned with the end of the keys: query i of a sequence with n queries and L keys is at
    position L - n + i. In causal attention it sees keys 0 .. L - n + i, or the last ``sliding_window`` of
    those; otherwise it sees later keys, too.
    A score is ``softmax_scale * q @ k``, then soft-capped, then biased. A query that sees no key gives zeros.

    In a graph of ``torch.compile`` and ``torch.export`` this is the operator ``attn_kernels::run``. There, a
    plan's ``handle`` may stand for the plan, as an input of the graph.

    Args:
        q: [num_query_tokens, num_query_heads, head_size] of the model's dtype. Like the caches and ``out``,
            it may be strided in any dimension but the last.
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size], of q's dtype or
            ``torch.float8_e4m3fn``; they hold the query tokens' keys and values as well. Values must be
            finite: zero times infinity is NaN, even for queries that do not see the key. Scores of more than
            1e9 give NaN, too.
        out: like q, written in place, in memory that no input shares; allocated if None.
        softmax_scale: a positive factor of the scores; ``head_size ** -0.5`` if None.
        sliding_window: number of keys that a query sees up to its own, which counts; None means all.
        softcap: scores become ``softcap * tanh(score / softcap)`` (Gemma 2); 0 means none; at most 1000.
        alibi_slopes: float32 [num_query_heads]; adds ``slope * (key position - query position)`` (Press et
            al., arXiv 2108.12409), and subtracts as much for later keys if not ``causal``.
        sinks: [num_query_heads], float32 or of q's dtype: a score per head that takes part in the softmax
            without a value (attention sinks as in gpt-oss).
        k_scale, v_scale: positive factors of the cached keys and values: a number, or a float32 tensor of
            one element on the device, which is not read on the host.
        lse: contiguous float32 [num_query_heads, num_query_tokens], the shape of FlashAttention's
            ``softmax_lse`` with ``cu_seqlens``. Written in place: the natural logarithm of the sum of each
            query's exponentiated scores, and -inf of a query that sees no key. As in vLLM's FlashAttention
            3, the sum includes the head's sink. So when outputs are merged, give the sinks to only one.
            FlashInfer's has base 2 and shape [num_query_tokens, num_query_heads].
        bidirectional_ranges: int32 [num_seqs, max_ranges, 2], contiguous, on the device, not read on the
            host: the first and the last position of spans of each sequence whose tokens also see each
            other's later keys, such as those of an image. A sequence with fewer spans is padded with
            (0, 0). Keys before the window stay unseen, and so do keys past the sequence's own.
        causal: False if queries also see later keys. Set ``Model.causal`` of the plan to the same value.
        keys_after: number of keys that a query sees behind its own if not ``causal``. None means all; with a
            ``sliding_window``, as many as before its own.

    Returns:
        out.

    Raises:
        TypeError: a wrong type or dtype.
        ValueError: a wrong shape, device, stride, page id or number; an output that overlaps an input.
        NotImplementedError: a gradient that is required.
    """
    optional = (alibi_slopes, sinks, k_scale, v_scale, lse, bidirectional_ranges)
    if is_grad_enabled():
        layer_checks.check_no_gradient((q, k_cache, v_cache, out, *optional), GRADIENT_NAMES)
    if is_compiling():
        if out is None:
            out = torch.empty_like(q, memory_format=torch.contiguous_format)
        handle = plan if isinstance(plan, Tensor) else plan.handle
        scales = (*number_and_tensor(k_scale), *number_and_tensor(v_scale))
        scoring = (softmax_scale, sliding_window, softcap, causal, keys_after)
        others = (alibi_slopes, sinks, lse, bidirectional_ranges)
        torch.ops.attn_kernels.run(handle, q, k_cache, v_cache, out, *scales, *scoring, *others)
        return out
    # A server runs everything up to the first return 32 to 80 times per step.
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format) if isinstance(q, Tensor) else q
    tensors: tuple[Tensor, ...] = (out, q, k_cache, v_cache)
    try:
        a, b, c, d = out.data_ptr(), q.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr()
        addresses: tuple[int, ...] = (a, b, c, d)
        # All that checks read and Triton compiles for, read anew at each call: a tensor's shape, strides,
        # dtype and memory may change in place (``resize_``, ``set_``, ``t_``, ``data``).
        placed = (out.shape, q.shape, out.device, q.device, k_cache.device, v_cache.device)
        kind: tuple[Any, ...] = (
            k_cache.shape,
            v_cache.shape,
            out.stride(),
            q.stride(),
            k_cache.stride(),
            v_cache.stride(),
            out.dtype,
            q.dtype,
            k_cache.dtype,
            v_cache.dtype,
            (a | b | c | d) % ALIGNMENT and (a % ALIGNMENT, b % ALIGNMENT, c % ALIGNMENT, d % ALIGNMENT),
            direct.generation,
            softmax_scale,
            sliding_window,
            type(sliding_window),  # 1, 1.0 and True are equal, but only the first is a window
            causal,
            keys_after,
            softcap,
            k_scale,
            v_scale,
        )
        if not (
            alibi_slopes is sinks is lse is bidirectional_ranges is None
            and type(k_scale) is type(v_scale) is float
        ):
            present = tuple(other for other in optional if isinstance(other, Tensor))
            tensors += present
            addresses += tuple(other.data_ptr() for other in present)
            kind = (*kind[:-2], *_optional_signature(plan, optional))
        bound = plan.launches.get((placed, kind))
    except (AttributeError, TypeError, RuntimeError):
        # Something is no tensor, has no memory or no hash. The checks raise an error that names it.
        layer_checks.check_run(plan, q, k_cache, v_cache, out)
        layer_checks.check_scoring(
            plan, softmax_scale, sliding_window, softcap, causal, keys_after, *optional
        )
        raise
    if bound is not None and not hooked():
        launches, reaches = bound
        for written, other, before, behind in reaches:
            if before < addresses[written] - addresses[other] < behind:
                _check_apart(tensors, optional)
        launch_filled(plan.device.index, launches, addresses, tensors)
        return out
    scoring = (softmax_scale, sliding_window, softcap, causal, keys_after)
    call = Call(placed, kind, addresses, tensors, optional, scoring)
    launched = False
    while not launched:
        while plan.replacement is not None:
            plan = plan.replacement
        launched = _launch_first(plan, call)
    return out


def _run_in_graph(plan: Tensor, *arguments: Any) -> None:
    """Run a layer; arguments are those of GRAPH_SCHEMA."""
    *tensors, out, k_number, k_scale, v_number, v_scale = arguments[:8]
    options = dict(zip(GRAPH_OPTIONS, arguments[8:], strict=True))
    options["k_scale"] = k_number if k_scale is None else k_scale
    options["v_scale"] = v_number if v_scale is None else v_scale
    run(plan_of(plan), *tensors, out=out, **options)


define("run", GRAPH_SCHEMA, _run_in_graph)


def _names(optional: tuple[Any, ...]) -> list[str]:
    """The names of a layer's tensors: REQUIRED, and what is given of OPTIONAL."""
    given = zip(OPTIONAL, optional, strict=True)
    return [*REQUIRED, *(name for name, other in given if isinstance(other, Tensor))]


def _reaches(tensors: tuple[Tensor, ...], optional: tuple[Any, ...]) -> tuple[tuple[int, int, int, int], ...]:
    """For each output and other tensor: their places, and the address differences that may be an overlap."""
    reached = [layer_checks.bytes_reached(tensor) for tensor in tensors]
    written = [place for place, name in enumerate(_names(optional)) if name in ("out", "lse")]
    pairs = ((place, other) for place in written for other in range(len(tensors)) if other != place)
    return tuple((place, other, -reached[place], reached[other]) for place, other in pairs)


def _check_apart(tensors: tuple[Tensor, ...], optional: tuple[Any, ...]) -> None:
    """Refuse outputs that overlap other tensors: some programs read them when others have written."""
    names = _names(optional)
    for written, other, *_ in _reaches(tensors, optional):
        layer_checks.check_apart(names[written], tensors[written], names[other], tensors[other])


def _optional_signature(plan: Plan, optional: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a signature's entry for each optional argument; a number stands for itself.

    Batches of any length share the launches of layers with a log-sum-exp or ranges.
    """
    *others, lse, ranges = optional
    if isinstance(lse, Tensor):
        as_planned = lse.shape == (plan.model.num_query_heads, plan.lengths.num_query_tokens)
        lse = (lse.dtype, lse.device, as_planned, lse.is_contiguous())
    if isinstance(ranges, Tensor):
        as_planned = ranges.shape[:1] == (plan.lengths.num_seqs,)
        ranges = (ranges.dtype, ranges.device, ranges.shape[1:], as_planned, ranges.is_contiguous())
    return (
        *(
            (other.dtype, other.device, other.stride(), other.shape) if isinstance(other, Tensor) else other
            for other in others
        ),
        lse,
        ranges,
    )


class Call(NamedTuple):
    """A call of ``run``; its signature is ``placed`` and ``kind``."""

    placed: tuple[Any, ...]  # shapes of rows, and devices: the plan's, if nothing is wrong
    kind: tuple[Any, ...]  # all else that checks read and Triton compiles for
    addresses: tuple[int, ...]  # of ``tensors``
    tensors: tuple[Tensor, ...]  # those that were given, in the order of REQUIRED and OPTIONAL
    optional: tuple[Any, ...]  # the arguments that OPTIONAL names
    scoring: tuple[Any, ...]  # softmax scale, window, soft cap, ``causal`` and ``keys_after``

    def layer(self, model: Model) -> Layer:
        softmax_scale, window, softcap, causal, ahead = self.scoring
        if ahead is None:
            ahead = MAX_TOKENS if window is None else window - 1
        return Layer(
            **dict(zip(REQUIRED, self.tensors, strict=False)),
            softmax_scale=model.head_size**-0.5 if softmax_scale is None else softmax_scale,
            sliding_window=None if window is None else min(window, MAX_TOKENS),
            ahead=None if causal else min(ahead, MAX_TOKENS),
            softcap=softcap,
            **dict(zip(OPTIONAL, self.optional, strict=True)),
        )


def _launch_first(plan: Plan, call: Call) -> bool:
    """Check and launch a plan's first layer of a signature, and remember the launches for the next.

    A plan with parts makes the launches of one part after those of the other.

    Returns:
        False where the plan has become another: its config does not fit the device, so it has a
        ``replacement``, or one launch cannot compute both parts of such a layer.
    """
    num_query_tokens, model, max_page_id = plan.lengths.num_query_tokens, plan.model, plan.batch.max_page_id
    rows = (num_query_tokens, model.num_query_heads, model.head_size)
    as_planned = call.placed == (rows, rows, *(4 * (plan.device,)))
    parts = _plans_for(plan, call.kind)
    bound: list[tuple[BoundLaunch, ...] | None]
    bound = [part.launch_cache.get(call.kind) if as_planned else None for part in parts]
    out, q, k_cache, v_cache = call.tensors[: len(REQUIRED)]
    if None in bound or (max_page_id is not None and max_page_id >= k_cache.shape[0]):
        layer_checks.check_run(plan, q, k_cache, v_cache, out)
        layer_checks.check_scoring(plan, *call.scoring, *call.optional)
    if num_query_tokens == 0:
        return True
    _check_apart(call.tensors, call.optional)
    filled = [
        None if launches is None else direct.fill(part, launches)
        for part, launches in zip(parts, bound, strict=True)
    ]
    if None not in filled:
        together = tuple(launch for launches in filled if launches is not None for launch in launches)
        reaches = _reaches(call.tensors, call.optional)
        direct.remember(plan.launches, (call.placed, call.kind), (together, reaches))
        launch_filled(plan.device.index, together, call.addresses, call.tensors)
        return True
    named = dict(zip(_names(call.optional), call.tensors, strict=True))
    for part, launches in zip(parts, bound, strict=True):
        if launches is None:
            described = VARIANTS[part.config.variant].bind(part, call.layer(model))
            launches = tuple(BoundLaunch(launch, named) for launch in described)
            direct.remember(part.launch_cache, call.kind, launches)
        if not launches:
            return False
        try:
            direct.launch_through_triton(part, launches, named)
        except DOES_NOT_FIT as error:
            if plan.again is None:
                raise
            plan.replacement = plan.again(part.config, error)
            return False
    return True


def _plans_for(plan: Plan, key: Hashable) -> tuple[Plan, ...]:
    """The plans whose launches a layer of this signature makes, one after another."""
    if plan.fused is None:
        return plan.parts or (plan,)
    if plan.fused.launch_cache.get(key) != ():
        return (plan.fused,)
    if PARTS_BEGUN not in plan.launches:
        plan.launches[PARTS_BEGUN] = ()
        for part in plan.parts:
            begin(part)
    return plan.parts


def begin(plan: Plan) -> None:
    """Launch the kernels that run once per plan, before any layer: they divide and count."""
    if plan.parts:
        _launch_once(plan, "parts", bind_divide)
        for part in plan.parts if plan.fused is None else (plan.fused,):
            begin(part)
        return
    bind_once = VARIANTS[plan.config.variant].bind_once
    if bind_once is not None:
        _launch_once(plan, "plan", bind_once)


def _launch_once(plan: Plan, name: str, bind_once: Callable[[Plan], tuple[Launch, ...]]) -> None:
    key = (name, direct.generation)
    bound = plan.launch_cache.get(key)
    if bound is None:
        bound = tuple(BoundLaunch(launch, {}) for launch in bind_once(plan))
        direct.remember(plan.launch_cache, key, bound)
    if not bound:
        return
    launches = direct.fill(plan, bound)
    if launches is None:
        direct.launch_through_triton(plan, bound, {})
    elif launches:
        launch_filled(plan.device.index, launches, (), ())

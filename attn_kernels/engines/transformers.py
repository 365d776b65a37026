"""Attention for Hugging Face transformers: importing this module registers it as ``attn_kernels``.

Transformers calls a mask function once per step for each kind of layer, and passes its result to every layer.
Here the result is a small tensor that stands for a ``Step``; no mask of queries by keys is ever made.

Transformers keeps keys as [num_seqs, num_kv_heads, slots, head_size]. Strides make pages of PAGE_SIZE slots
of them where they can; otherwise each layer copies its keys and values into pages.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.engines import transformers_paged as transformers_paged  # registers itself
from attn_kernels.engines.transformers_masks import image_ranges, read_rule
from attn_kernels.engines.transformers_paged import NAME
from attn_kernels.engines.transformers_sequences import STARTS, Sequences, check_arguments, packed_sequences
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan


@dataclass(frozen=True, eq=False)
class Step:
    """The batch of one forward pass, as the layers of one kind see it."""

    num_seqs: int
    query_len: int  # of every sequence, padding included
    key_len: int  # slots per sequence in the key tensors, unused ones included
    end: int | Tensor  # slots up to the last query's own, included; a Tensor where only the device knows it
    window: int | None  # keys that a query sees, its own included
    ranges: Tensor | None = None  # ``bidirectional_ranges`` of ``run``
    causal: bool = True
    sequences: Sequences | None = None  # where they are packed, or have padding
    padded: bool = False  # on the left
    plans: dict[tuple[Model, int], Plan] = field(default_factory=dict)  # by model, and pages per sequence

    @property
    def longest(self) -> int:
        """The longest context in tokens, or a bound of it."""
        return self.key_len if isinstance(self.end, Tensor) else self.end

    @cached_property
    def whole_rows(self) -> Sequences:
        """All sequences, for key tensors of which strides make no pages."""
        queries = tuple((i * self.query_len, self.query_len) for i in range(self.num_seqs))
        keys = tuple((i * self.key_len, self.longest) for i in range(self.num_seqs))
        return Sequences(queries, keys, self.end if isinstance(self.end, Tensor) else None)


_steps: MutableMapping[Tensor, Step] = WeakTensorKeyDictionary()


def step_of(mask: Tensor | None, whole: Step | None = None) -> Step:
    """The step that a result of ``step_mask`` stands for; NotImplementedError for any other mask.

    ``whole``: the step of no mask, if there may be none.
    """
    if mask is None and whole is not None:
        return whole
    step = None if mask is None else _steps.get(mask)
    if step is None:
        got = "None" if mask is None else f"a tensor of shape {tuple(mask.shape)}"
        needed = "what transformers makes of a 2D mask, on one device, is needed"
        raise NotImplementedError(f"attention_mask is {got}, but {needed}")
    return step


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def step_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor:
    """Return a tensor that stands for the step; the signature is that of transformers' ``sdpa_mask``.

    Synchronises with the device if there are images, packed sequences or an ``attention_mask``
    [batch_size, tokens] (False or 0 for padding), because these decide what is launched.
    ``q_offset``, ``kv_offset``: positions of the first query and of the first slot.

    Raises:
        NotImplementedError: a ``mask_function`` that is none of ``transformers_masks.RULES``; padding between
            tokens.
        ValueError: an ``attention_mask`` that ends before the queries.
    """
    rule = read_rule(mask_function)
    mask = torch.empty((batch_size, 1, 1, 1), dtype=torch.bool, device=device)
    if not rule.causal or rule.sequences is not None:
        sequences = None
        if rule.window and q_offset + q_length != kv_offset + kv_length:
            raise NotImplementedError("keys behind the queries are only supported without a window")
        if rule.sequences is not None:
            sequences = Sequences.of_indices(rule.sequences.expand(batch_size, -1))
        elif attention_mask is not None:
            sequences = _padded(attention_mask[:, kv_offset:], q_length, kv_length, rule.window)
        shape = batch_size, q_length, kv_length, kv_length
        _steps[mask] = Step(*shape, rule.window, None, rule.causal, sequences)
        return mask
    firsts = [kv_offset] * batch_size  # of each sequence, the position of its first key
    if attention_mask is not None:
        q_offset = int(q_offset)
        spans = _tokens_of(attention_mask, q_offset + q_length, q_offset)
        firsts = [max(first, kv_offset) for first, _ in spans]
    first_query = 0 if isinstance(q_offset, Tensor) else q_offset
    ranges = image_ranges(rule, firsts, first_query)
    if ranges is not None:
        ranges = ranges.to(device)
    sequences = None
    if any(first > kv_offset for first in firsts):  # left padding; the host knows where queries begin
        stop = first_query + q_length
        padding = [max(0, first - first_query) for first in firsts]
        sequences = Sequences(
            tuple((i * q_length + count, q_length - count) for i, count in enumerate(padding)),
            tuple((i * kv_length + first - kv_offset, stop - first) for i, first in enumerate(firsts)),
        )
    end = q_offset + q_length - kv_offset
    sizes = batch_size, q_length, kv_length
    _steps[mask] = Step(*sizes, end, rule.window, ranges, True, sequences, padded=sequences is not None)
    return mask


def _padded(attention_mask: Tensor, q_length: int, kv_length: int, window: int | None) -> Sequences | None:
    """The sequences of queries that see keys on both sides; None without padding.

    With a window, queries are the last tokens of the keys, and of padding there are none.
    """
    spans = _tokens_of(attention_mask, kv_length)
    if all(span == (0, kv_length) for span in spans):
        return None
    keys = tuple((i * kv_length + first, count) for i, (first, count) in enumerate(spans))
    queries, before = [(0, q_length)] * len(spans), kv_length - q_length  # keys before the queries
    if window:
        queries = [(max(k - before, 0), k + count - max(k, before)) for k, count in spans]
    return Sequences(tuple((i * q_length + q, count) for i, (q, count) in enumerate(queries)), keys)


def _tokens_of(attention_mask: Tensor, stop: int, q_offset: int = 0) -> list[tuple[int, int]]:
    """The position of each sequence's first token that is no padding, and how many there are. Synchronises.

    Without tokens, the position is ``stop``. Raises NotImplementedError about padding behind tokens, except
    among the queries, from ``q_offset`` on: no other query sees it there.
    """
    if attention_mask.ndim != 2 or attention_mask.shape[1] < stop:
        needed = f"(batch_size, {stop}) is needed: a column for each token so far"
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, but {needed}")
    tokens = attention_mask[:, :stop].to(torch.bool)
    positions = torch.arange(stop, device=tokens.device)
    first = torch.where(tokens, positions, stop).amin(1)
    last = torch.where(tokens, positions, -1).amax(1)
    count = tokens.sum(1)
    spans = []
    for i, (begin, end, total) in enumerate(torch.stack((first, last, count), 1).tolist()):
        if total and (end - begin + 1 != total or end < q_offset):
            needed = "padding is only supported on the left, and on the right of the newest tokens"
            raise NotImplementedError(f"attention_mask has zeros behind tokens of sequence {i}, but {needed}")
        spans.append((begin, total))
    return spans


PAGE_SIZE = 16  # kernels compile for it, so it must not depend on the number of keys


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute one layer; the signature is that of transformers' attention functions.

    The window is that of the mask, as in transformers' eager attention. Outputs of queries that are left
    padding are zeros.

    Args:
        query: [num_seqs, num_query_heads, queries, head_size], float16 or bfloat16.
        key, value: [num_seqs, num_kv_heads, slots, head_size] of the same dtype.
        attention_mask: the result of ``step_mask`` for this step. None of attention that is not causal.
        scaling, softcap, s_aux: ``softmax_scale``, ``softcap`` and ``sinks`` of ``run``.
        is_causal: that of the module if None.
        kwargs: ``cu_seq_lens_q`` and ``cu_seq_lens_k`` say where packed sequences begin.

    Returns:
        The output [num_seqs, queries, num_query_heads, head_size], and None in place of weights.

    Raises:
        NotImplementedError: a mask or an argument that is not supported.
        TypeError, ValueError: as ``plan`` and ``run``; or keys that do not belong to the step.
    """
    _check_supported(dropout, kwargs)
    num_seqs, num_heads, queries, head_size = query.shape
    whole = None
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        slots = key.shape[2]
        whole = Step(num_seqs, queries, slots, slots, None, causal=False)
    step = step_of(attention_mask, whole)
    if is_causal is False and step.causal:
        raise NotImplementedError("is_causal is False, but attention_mask is causal")
    got = (num_seqs, queries, *(tensor.shape[2] for tensor in (key, value)))
    needed = (step.num_seqs, step.query_len, step.key_len, step.key_len)
    if got != needed:
        raise ValueError(f"sequences, queries, keys and values are {got}, but the mask is of {needed}")
    sizes = (num_heads, key.shape[1], head_size, PAGE_SIZE)
    model = Model(*sizes, query.dtype, None, step.window, causal=step.causal)
    options: dict[str, Any] = {
        "softmax_scale": scaling,
        "sliding_window": step.window,
        "softcap": softcap or 0.0,
        "sinks": s_aux,
        "causal": step.causal,
        "bidirectional_ranges": step.ranges,
    }
    packed = packed_sequences(kwargs)
    if packed is not None and (num_seqs > 1 or step.padded or step.ranges is not None):
        raise NotImplementedError("cu_seq_lens_q is given, but not of one row without padding and images")
    sequences = packed or step.sequences
    pages_apart = _pages_apart(key)
    if sequences is None and (not pages_apart or pages_apart != _pages_apart(value)):
        sequences = step.whole_rows
    if sequences is not None:
        return sequences.attend(model, query, key, value, options), None
    batch = step.plans.get((model, pages_apart))
    if batch is None:
        batch = step.plans[model, pages_apart] = _plan(step, model, pages_apart, query.device)
    rows = query.transpose(1, 2).reshape(num_seqs * queries, num_heads, head_size)
    out = run(batch, rows, _view(key, pages_apart), _view(value, pages_apart), **options)
    return out.view(num_seqs, queries, num_heads, head_size), None


def _check_supported(dropout: float, others: dict[str, Any]) -> None:
    if dropout:
        raise NotImplementedError(f"dropout is {dropout}, but 0 is needed")
    check_arguments(others, STARTS)


def _pages_apart(keys: Tensor) -> int:
    """Pages from one sequence to the next where strides make pages of the tensor; 0 where they cannot."""
    seq, head, slot, element = keys.stride()
    num_seqs, num_heads, slots, _ = keys.shape
    if slots % PAGE_SIZE or element != 1 or slot == 0 or (head == 0 and num_heads > 1):
        return 0
    if num_seqs == 1:
        return slots // PAGE_SIZE
    apart, rest = divmod(seq, PAGE_SIZE * slot)
    return 0 if rest else apart


def _view(keys: Tensor, pages_apart: int) -> Tensor:
    """The tensor as [pages, PAGE_SIZE, num_kv_heads, head_size]; the last page ends where the tensor does."""
    _, head, slot, element = keys.stride()
    num_seqs, num_heads, slots, head_size = keys.shape
    pages = (num_seqs - 1) * pages_apart + slots // PAGE_SIZE
    return keys.as_strided((pages, PAGE_SIZE, num_heads, head_size), (PAGE_SIZE * slot, slot, head, element))


def _plan(step: Step, model: Model, pages_apart: int, device: torch.device) -> Plan:
    count = step.num_seqs
    pages = -(-step.longest // PAGE_SIZE)
    seqs = torch.arange(count + 1, dtype=torch.int32, device=device)
    if isinstance(step.end, Tensor):
        seqused_k = step.end.to(device, torch.int32).reshape(1).expand(count).contiguous()
    else:
        seqused_k = torch.full((count,), step.end, dtype=torch.int32, device=device)
    return plan(
        seqs * step.query_len,
        seqused_k,
        seqs[:-1, None] * pages_apart + torch.arange(pages, dtype=torch.int32, device=device),
        model,
        num_query_tokens=count * step.query_len,
        max_query_len=step.query_len,
        max_seq_len=step.longest,
        num_kv_tokens=None if isinstance(step.end, Tensor) else count * step.end,
    )


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, step_mask)

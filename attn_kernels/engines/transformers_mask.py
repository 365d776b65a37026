"""What transformers' mask functions say of a step, found before its first layer.

Transformers calls a mask function once a step for each kind of layer, and passes its result to every layer.
Here the result is a small tensor that stands for a ``Step``; no mask of queries by keys is ever made.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.masking_utils import and_masks, causal_mask_function, sliding_window_overlay

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan

_BOTH = and_masks(causal_mask_function).__code__
_WINDOW = sliding_window_overlay(1).__code__


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The batch of one forward pass, as the layers of one kind see it."""

    num_seqs: int
    query_len: int  # of every sequence, padding included
    key_len: int  # slots a sequence in the key tensors, unused ones included
    end: int | Tensor  # slots up to the last query's own, included; a Tensor where only the device knows it
    first_slots: tuple[int, ...]  # of the first key of each sequence; empty without left padding
    padded_queries: tuple[int, ...]  # leading queries of each sequence that are padding; empty without
    window: int | None  # keys that a query sees, its own included
    plans: dict[tuple[Model, int], Plan] = field(default_factory=dict)  # by model and pages a sequence apart
    indices: dict[str, Tensor] = field(default_factory=dict)  # of copies, made by the first layer

    @property
    def longest(self) -> int:
        """The longest context in tokens, or a bound of it."""
        if isinstance(self.end, Tensor):
            return self.key_len
        return self.end - min(self.first_slots, default=0)


_steps: MutableMapping[Tensor, Step] = WeakTensorKeyDictionary()


def step_of(mask: Tensor | None) -> Step:
    """The step that a result of ``step_mask`` stands for.

    Raises NotImplementedError for any other mask.
    """
    step = None if mask is None else _steps.get(mask)
    if step is None:
        got = "None" if mask is None else f"a tensor of shape {tuple(mask.shape)}"
        needed = "what transformers makes of a 2D mask for causal attention, on one device, is needed"
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

    Synchronises with the device if there is an ``attention_mask``: its padding decides what is launched.

    Args:
        batch_size: number of sequences.
        q_length, kv_length: tokens of each sequence's queries, and slots of its keys.
        q_offset, kv_offset: positions of the first query and of the first slot.
        mask_function: causal, or causal with a sliding window.
        attention_mask: [batch_size, tokens], False or 0 where a token is padding.
        device: of the result.

    Raises:
        NotImplementedError: another ``mask_function``, or padding between tokens.
        ValueError: an ``attention_mask`` that ends before the queries.
    """
    window = _window_of(mask_function)
    first_slots: tuple[int, ...] = ()
    padded_queries: tuple[int, ...] = ()
    if attention_mask is not None:
        q_offset = int(q_offset)
        stop = q_offset + q_length
        firsts = _first_tokens(attention_mask, q_offset, stop)
        if any(first > kv_offset for first in firsts):
            first_slots = tuple(max(0, first - kv_offset) for first in firsts)
        if any(first > q_offset for first in firsts):
            padded_queries = tuple(max(0, first - q_offset) for first in firsts)
    end = q_offset + q_length - kv_offset
    mask = torch.empty((batch_size, 1, 1, 1), dtype=torch.bool, device=device)
    _steps[mask] = Step(batch_size, q_length, kv_length, end, first_slots, padded_queries, window)
    return mask


def _window_of(function: Callable[..., Any]) -> int | None:
    """The window of a mask function of transformers; None if it is only causal."""
    if function is causal_mask_function:
        return None
    if getattr(function, "__code__", None) is _BOTH:
        (functions,) = (cell.cell_contents for cell in function.__closure__ or ())
        if len(functions) == 2 and functions[1] is causal_mask_function:
            overlay = functions[0]
            if getattr(overlay, "__code__", None) is _WINDOW:
                return int(overlay.__closure__[0].cell_contents)
    name = getattr(function, "__qualname__", repr(function))
    raise NotImplementedError(
        f"mask_function is {name}, but only causal attention, with or without a sliding window, is supported"
    )


def _first_tokens(attention_mask: Tensor, q_offset: int, stop: int) -> list[int]:
    """The position of each sequence's first token that is no padding.

    Padding behind the last token is allowed among the queries: no other query sees it.
    """
    if attention_mask.ndim != 2 or attention_mask.shape[1] < stop:
        needed = f"(batch_size, {stop}) is needed: a column for each token so far"
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, but {needed}")
    tokens = attention_mask[:, :stop].to(torch.bool)
    positions = torch.arange(stop, device=tokens.device)
    first = torch.where(tokens, positions, stop).amin(1)
    last = torch.where(tokens, positions, -1).amax(1)
    count = tokens.sum(1)
    firsts = []
    for i, (begin, end, total) in enumerate(torch.stack((first, last, count), 1).tolist()):
        if total and (end - begin + 1 != total or end < q_offset):
            needed = "padding is only supported on the left, and on the right of the newest tokens"
            raise NotImplementedError(f"attention_mask has zeros behind tokens of sequence {i}, but {needed}")
        firsts.append(begin)
    return firsts

"""What a mask function of transformers lets a query see: earlier keys or all, of a window, image or sequence.

The code of a function shows which of transformers' own it is, and its closure shows its parts.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import masking_utils
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    or_masks,
    packed_sequence_mask_function,
    sliding_window_bidirectional_overlay,
    sliding_window_overlay,
)

_NAMED = {causal_mask_function: "causal", bidirectional_mask_function: "bidirectional"}
_COMBINED = {and_masks().__code__: "all", or_masks().__code__: "any"}
_OVERLAYS = {
    sliding_window_overlay(1).__code__: "window",
    sliding_window_bidirectional_overlay(1).__code__: "both sides",
    blockwise_overlay(torch.empty(0)).__code__: "images",
    packed_sequence_mask_function(torch.empty(0)).__code__: "sequences",
}
# Counts positions from the beginning of each packed sequence, in transformers 5.23 and later.
_remap = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
_REMAPPED = _remap and _remap(causal_mask_function, torch.empty(0)).__code__
_UNION = "any(all(causal, window), images)"
RULES = (
    "causal",
    "all(causal, window)",
    "any(causal, images)",
    "all(any(causal, images), window)",  # Gemma 3: ``create_masks_for_vision_model``
    "all(causal, sequences)",
    "all(all(causal, window), sequences)",
    "bidirectional",
    "all(bidirectional, both sides)",
    _UNION,  # ``create_sliding_window_causal_mask`` with ``block_sequence_ids``
)


class MaskRule(NamedTuple):
    """The keys that a query sees."""

    window: int | None  # the last ones up to its own; None for all
    groups: Tensor | None  # [num_seqs, tokens], the image of each token, or -1
    whole_images: bool = False  # it also sees keys of its image that lie before the window
    sequences: Tensor | None = None  # [num_seqs, tokens], the packed sequence of each token
    causal: bool = True


def read_rule(function: Callable[..., Any]) -> MaskRule:
    """Read a mask function; NotImplementedError if it is none of RULES."""
    values: dict[str, Any] = {}
    rule = _describe(function, values)
    if rule not in RULES:
        name = getattr(function, "__qualname__", repr(function))
        needed = (
            "causal or bidirectional attention, of sliding windows, images or packed sequences, is needed"
        )
        raise NotImplementedError(f"mask_function is {name}, but {needed}")
    window = values.get("window")
    if "both sides" in values:
        window = values["both sides"] + 1  # transformers counts keys on one side
    causal = "bidirectional" not in rule
    return MaskRule(window, values.get("images"), rule == _UNION, values.get("sequences"), causal)


def _describe(function: Any, values: dict[str, Any]) -> str:
    """Name what a function is made of, and note the window and the images."""
    code = getattr(function, "__code__", None)
    if code and code == _REMAPPED:
        names = code.co_freevars
        return _describe(function.__closure__[names.index("mask_function")].cell_contents, values)
    if function in _NAMED or code not in _COMBINED | _OVERLAYS:
        return _NAMED.get(function, "another")
    (value,) = (cell.cell_contents for cell in function.__closure__)
    if code in _OVERLAYS:
        values[_OVERLAYS[code]] = value
        return _OVERLAYS[code]
    return f"{_COMBINED[code]}({', '.join(sorted(_describe(part, values) for part in value))})"


def image_ranges(rule: MaskRule, firsts: Sequence[int], first_query: int) -> Tensor | None:
    """Return ``bidirectional_ranges`` of ``run``, on the CPU; None if no query sees a later key.

    Synchronises with the device of ``rule.groups``.

    Args:
        firsts: of each sequence, the position of its first key. first_query: a position; earlier images are
            left out.

    Raises NotImplementedError about images in several pieces, or of more tokens than a window that does not
    apply to them.
    """
    if rule.groups is None:
        return None
    groups = rule.groups.cpu()
    changes = torch.nn.functional.pad(groups[:, 1:] != groups[:, :-1], (1, 1), value=True)
    ranges: list[list[tuple[int, int]]] = []
    for i, first in enumerate(firsts):
        edges = changes[i].nonzero().flatten().tolist()  # where pieces begin, and the end
        pieces = [(start, stop - 1) for start, stop in pairwise(edges) if groups[i, start] >= 0]
        if len({int(groups[i, start]) for start, _ in pieces}) < len(pieces):
            raise NotImplementedError(f"block_sequence_ids has a block of sequence {i} in several pieces")
        longest = max((end - start + 1 for start, end in pieces), default=0)
        if rule.whole_images and rule.window is not None and longest > rule.window:
            raise NotImplementedError(
                f"block_sequence_ids has a block of {longest} tokens, but at most the sliding window of "
                f"{rule.window} is supported in layers whose blocks are seen beyond it"
            )
        ranges.append(
            [(start - first, end - first) for start, end in pieces if end > max(start, first_query)]
        )
    most = max(map(len, ranges), default=0)
    padded = [[*own, *[(0, 0)] * (most - len(own))] for own in ranges]
    return torch.tensor(padded, dtype=torch.int32) if most else None

"""One step's batch: its index tensors and its lengths, checked once and shared by all plans of the step."""

from typing import NamedTuple

import torch
from torch import Tensor

from attn_kernels.core.checks import MAX_TOKENS, check_index_tensors, check_int
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model

COUNTS = ("num_seqs", "num_query_tokens", "num_kv_tokens")  # those of both parts add up to the batch's


class Batch(NamedTuple):
    """What ``plan`` was given of a batch; tensors and lengths are those that it documents."""

    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    device: torch.device  # of these
    lengths: Lengths  # those by which configs are chosen
    parts: Parts | None = None
    for_capture: bool = False  # of a graph: the lengths are maxima
    max_page_id: int | None = None  # the largest in use; None if contents were not checked


def checked_batch(
    index: tuple[Tensor, Tensor, Tensor],
    model: Model,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    num_kv_tokens: int | None,
    *,
    parts: Parts | None,
    for_capture: bool,
    contents: bool | None,
) -> Batch:
    """Check what ``plan`` is given of a batch, and derive the lengths by which configs are chosen.

    Args:
        index: ``cu_seqlens_q``, ``seqused_k`` and ``block_table``.
        contents: as ``check`` of ``plan``.

    Raises:
        TypeError: a wrong type or dtype of an index tensor, a length or ``parts``.
        ValueError: a wrong shape or device; lengths that contradict each other, the block table or contents.
    """
    device = check_index_tensors(*index)
    num_seqs, blocks_per_seq = index[2].shape
    is_known, total = num_kv_tokens is not None, 0 if num_kv_tokens is None else num_kv_tokens
    lengths = Lengths(num_seqs, num_query_tokens, max_query_len, max_seq_len, total)
    _check_whole(lengths, blocks_per_seq, model)
    if parts is not None:
        bounds = lengths if is_known else lengths._replace(num_kv_tokens=num_seqs * max_seq_len)
        _check_parts(parts, bounds, () if for_capture else COUNTS if is_known else COUNTS[:-1])
    max_page_id = None
    if contents or (contents is None and not for_capture and device.type == "cpu"):
        max_page_id = _check_contents(index, lengths, None if for_capture else parts, model)
    if for_capture or not is_known:
        lengths = lengths.of_unknown_total(model.sliding_window)
    if for_capture and parts is not None:
        parts = Parts(*(part.of_unknown_total(model.sliding_window) for part in parts))
    return Batch(*index, device, lengths, parts, for_capture, max_page_id)


def _check_contents(
    index: tuple[Tensor, Tensor, Tensor], lengths: Lengths, parts: Parts | None, model: Model
) -> int:
    """Check the index tensors and return the largest page id in use, -1 if there is none.

    Reads the tensors, so it synchronises with a GPU.
    """
    starts, context_lens, table = (tensor.to("cpu", torch.int64) for tensor in index)
    query_lens = starts.diff()
    if starts[0] != 0:
        raise ValueError(f"cu_seqlens_q begins with {starts[0]}, but 0 is needed")
    for i in _places(query_lens < 0):
        raise ValueError(f"cu_seqlens_q decreases from {starts[i]} to {starts[i + 1]} at sequence {i}")
    spans = [("", 0, lengths.num_seqs, lengths)]
    if parts is not None:
        count = parts.decodes.num_seqs
        spans.append(("parts.decodes.", 0, count, parts.decodes))
        spans.append(("parts.prompts.", count, lengths.num_seqs, parts.prompts))
    for name, first, stop, most in spans:
        for tensor, field, lens in (
            ("cu_seqlens_q", "max_query_len", query_lens),
            ("seqused_k", "max_seq_len", context_lens),
        ):
            for i in _places(lens[first:stop] > getattr(most, field)):
                given = f"{tensor} gives sequence {first + i} a length of {lens[first + i]}"
                raise ValueError(f"{given}, but {name}{field} is {getattr(most, field)}")
        if (tokens := starts[stop] - starts[first]) != most.num_query_tokens:
            given = f"cu_seqlens_q gives sequences {first} to {stop - 1} {tokens} query tokens"
            raise ValueError(f"{given}, but {name}num_query_tokens is {most.num_query_tokens}")
    for i in _places(context_lens < query_lens * model.causal):
        raise ValueError(
            f"seqused_k is {context_lens[i]} for sequence {i}, but it has {query_lens[i]} query tokens"
        )
    blocks_used = (context_lens + model.block_size - 1) // model.block_size
    used = torch.arange(table.shape[1], device="cpu")[None, :] < blocks_used[:, None]
    for i, j in ((table < 0) & used).nonzero().tolist():
        raise ValueError(f"block_table holds page id {table[i, j]} at [{i}, {j}], but page ids start at 0")
    return int(table[used].max()) if used.any() else -1


def _places(wrong: Tensor) -> list[int]:
    places: list[int] = wrong.nonzero().flatten().tolist()
    return places


def _check_lengths(name: str, lengths: Lengths) -> None:
    """Check lengths against each other; ``name`` stands before those of a part."""
    if {*map(type, lengths)} != {int} or min(lengths) < 0:
        for field, value in zip(Lengths._fields, lengths, strict=True):
            check_int(name + field, value, 0)
    num_seqs, num_query_tokens, max_query_len, _, _ = lengths
    if num_query_tokens > num_seqs * max_query_len:
        raise ValueError(
            f"{name}num_query_tokens is {num_query_tokens}, but {num_seqs} sequences of at most "
            f"max_query_len {max_query_len} tokens hold no more than {num_seqs * max_query_len}"
        )


def _check_whole(lengths: Lengths, blocks_per_seq: int, model: Model) -> None:
    _check_lengths("", lengths)
    _, num_query_tokens, max_query_len, max_seq_len, _ = lengths
    room = blocks_per_seq * model.block_size
    if num_query_tokens and not blocks_per_seq:  # kernels look up the first page even of no keys
        raise ValueError("block_table has no columns, but at least one is needed")
    if max_seq_len > room:
        raise ValueError(
            f"max_seq_len is {max_seq_len}, but block_table holds {blocks_per_seq} blocks of "
            f"{model.block_size} tokens per sequence, so at most {room} is possible"
        )
    if (most := max(num_query_tokens, max_seq_len)) > MAX_TOKENS:
        name = "max_seq_len" if most == max_seq_len else "num_query_tokens"
        raise ValueError(f"{name} is {most}, but at most {MAX_TOKENS} is supported")
    if max_query_len > num_query_tokens:
        raise ValueError(f"max_query_len is {max_query_len}, but num_query_tokens is only {num_query_tokens}")
    if model.causal and max_query_len > max_seq_len:
        raise ValueError(f"max_query_len is {max_query_len}, but max_seq_len is only {max_seq_len}")


def _check_parts(parts: object, batch: Lengths, counts: tuple[str, ...]) -> None:
    """Check the lengths of parts against those of their batch.

    ``counts``: the fields that must add up; none for a graph, because no step need reach both parts' maxima.
    """
    if not isinstance(parts, Parts) or not all(isinstance(part, Lengths) for part in parts):
        raise TypeError(f"parts is {parts!r}, but an attn_kernels.Parts of two Lengths is needed")
    for name, part in zip(("parts.decodes.", "parts.prompts."), parts, strict=True):
        _check_lengths(name, part)
        for field, value, most in zip(Lengths._fields, part, batch, strict=True):
            if value > most:
                raise ValueError(f"{name}{field} is {value}, but {field} of the batch is only {most}")
    if parts.decodes.max_query_len > MAX_DRAFT:
        raise ValueError(
            f"parts.decodes.max_query_len is {parts.decodes.max_query_len}, but at most {MAX_DRAFT} is needed"
        )
    for field in counts:
        own, total = [getattr(part, field) for part in parts], getattr(batch, field)
        if sum(own) != total:
            raise ValueError(f"{field} of parts is {own[0]} and {own[1]}, but the batch has {total}")

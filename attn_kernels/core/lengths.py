"""Lengths of sequences as the host knows them, and the two parts of a mixed batch."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Self

from torch import Tensor

from attn_kernels.core.checks import check_int

MAX_DRAFT = 8  # query tokens of a decode, drafted tokens of speculative decoding included


class Lengths(NamedTuple):
    """The lengths of some sequences, or the maxima of each length."""

    num_seqs: int
    num_query_tokens: int  # of all these sequences together
    max_query_len: int
    max_seq_len: int  # the longest context, in tokens
    num_kv_tokens: int  # sum of their contexts

    @classmethod
    def of(cls, query_lens: Sequence[int], context_lens: Sequence[int]) -> Self:
        """Return the lengths of sequences, from the query tokens and keys of each.

        Raises ValueError if the arguments differ in length, or a length is negative.
        """
        if len(query_lens) != len(context_lens):
            raise ValueError(
                f"query_lens has {len(query_lens)} entries and context_lens {len(context_lens)}, "
                "but one of each is needed per sequence"
            )
        if (least := min(*query_lens, *context_lens, 0, 0)) < 0:
            raise ValueError(f"a sequence cannot have {least} tokens")
        return cls(
            len(query_lens),
            sum(query_lens),
            max(query_lens, default=0),
            max(context_lens, default=0),
            sum(context_lens),
        )

    def of_unknown_total(self, window: int | None) -> Self:
        """Return the lengths where only the longest context is known: the others count as half as long.

        ``window``: keys that a query sees; contexts count as no longer.
        """
        total = (self.num_seqs + 1) * min(self.max_seq_len, window or self.max_seq_len) // 2
        return self._replace(num_kv_tokens=max(total, self.num_query_tokens))

    def in_window(self, window: int) -> Self:
        """Return the lengths of a batch that takes about as long without a window as this one with it.

        A query sees ``window`` keys at most, its own included. So a longer prompt counts as pieces of
        ``window`` tokens, and each piece reads the keys before its first query again.
        """
        more = 0  # pieces beside the first of each sequence
        if self.max_query_len > window:
            more = max(0, self.num_query_tokens - self.num_seqs) // window
        num_seqs = self.num_seqs + more
        max_query_len = min(self.max_query_len, window)
        before = window - 1  # keys that a query sees before its own
        return type(self)(
            num_seqs,
            self.num_query_tokens,
            max_query_len,
            min(self.max_seq_len, max_query_len + before),
            min(self.num_kv_tokens + more * before, self.num_query_tokens + num_seqs * before),
        )


class Parts(NamedTuple):
    """The two parts of a mixed batch: its leading sequences, and all sequences after them."""

    decodes: Lengths  # of at most MAX_DRAFT query tokens each
    prompts: Lengths

    @classmethod
    def of(cls, query_lens: Sequence[int], context_lens: Sequence[int]) -> Self:
        """Divide a batch before its first sequence of more than MAX_DRAFT query tokens.

        Raises ValueError if the arguments differ in length.
        """
        count = next((i for i, length in enumerate(query_lens) if length > MAX_DRAFT), len(query_lens))
        prompts = Lengths.of(query_lens[count:], context_lens[count:])
        return cls(Lengths.of(query_lens[:count], context_lens[:count]), prompts)


def check_parts(parts: object, batch: Lengths, *, add_up: Sequence[str]) -> None:
    """Check the lengths of parts against those of their batch; host-only.

    Args:
        add_up: fields of Lengths that must add up to those of the batch; none if they are the maxima of a
            captured graph: one step need not reach those of both parts.

    Raises:
        TypeError: ``parts`` is not a Parts of two Lengths of plain ints.
        ValueError: the lengths contradict each other.
    """
    if not isinstance(parts, Parts) or not all(isinstance(part, Lengths) for part in parts):
        raise TypeError(f"parts is {parts!r}, but an attn_kernels.Parts of two Lengths is needed")
    for name, part in parts._asdict().items():
        _check_part(f"parts.{name}", part, batch)
    if parts.decodes.max_query_len > MAX_DRAFT:
        raise ValueError(
            f"parts.decodes.max_query_len is {parts.decodes.max_query_len}, but at most {MAX_DRAFT} is needed"
        )
    for field in add_up:
        counts = [getattr(part, field) for part in parts]
        if sum(counts) != getattr(batch, field):
            raise ValueError(
                f"{field} of parts is {counts[0]} and {counts[1]}, but the batch has {getattr(batch, field)}"
            )


def _check_part(name: str, part: Lengths, batch: Lengths) -> None:
    for field, value, most in zip(Lengths._fields, part, batch, strict=True):
        if type(value) is not int or value < 0:
            check_int(f"{name}.{field}", value, 0)
        if value > most:
            raise ValueError(f"{name}.{field} is {value}, but {field} of the batch is only {most}")
    if part.num_query_tokens > part.num_seqs * part.max_query_len:
        raise ValueError(
            f"{name}.num_query_tokens is {part.num_query_tokens}, but {part.num_seqs} sequences of at most "
            f"{part.max_query_len} tokens hold no more than {part.num_seqs * part.max_query_len}"
        )


def check_part_contents(cu_seqlens_q: Tensor, seqused_k: Tensor, parts: Parts) -> None:
    """Check the contents of the index tensors against the lengths of both parts.

    Reads the tensors, so it synchronises with a GPU. Raises ValueError about the first length that is wrong.
    """
    starts, count = cu_seqlens_q.tolist(), parts.decodes.num_seqs
    query_lens = [stop - start for start, stop in pairwise(starts)]
    for tensor, field, lens in (
        ("cu_seqlens_q", "max_query_len", query_lens),
        ("seqused_k", "max_seq_len", seqused_k.tolist()),
    ):
        for i, length in enumerate(lens):
            name = "decodes" if i < count else "prompts"
            most = getattr(getattr(parts, name), field)
            if length > most:
                raise ValueError(
                    f"{tensor} gives sequence {i} a length of {length}, but parts.{name}.{field} is {most}"
                )
    if starts[count] != parts.decodes.num_query_tokens:
        raise ValueError(
            f"cu_seqlens_q gives the first {count} sequences {starts[count]} query tokens, but "
            f"parts.decodes.num_query_tokens is {parts.decodes.num_query_tokens}"
        )

"""Lengths of sequences as the host knows them, and the two parts of a mixed batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

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

    def as_arguments(self) -> dict[str, Any]:
        """Return the lengths that ``plan`` takes by keyword: all but ``num_seqs``, which its tensors have."""
        arguments = self._asdict()
        del arguments["num_seqs"]
        return arguments

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

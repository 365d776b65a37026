"""Sequences of transformers' tensors that are packed in one row, have padding, or cannot be viewed as pages.

Their keys are copied into pages: a page holds keys of one sequence.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan

STARTS = ("cu_seq_lens_q", "cu_seq_lens_k")  # of packed sequences, int32 [sequences + 1]
# What transformers passes that decides nothing here: masks and sequences say what is seen.
IGNORED = frozenset(
    {
        *("position_ids", "cache_position", "use_cache", "sliding_window"),
        *("max_length_q", "max_length_k", "num_items_in_batch", "logits_to_keep"),
        *("output_hidden_states", "output_router_logits", "return_dict"),
    }
)


def check_arguments(others: Mapping[str, Any], passed: Collection[str]) -> None:
    """Raise NotImplementedError about an argument that is set and neither in ``passed`` nor IGNORED."""
    for name, value in others.items():
        if value is not None and value is not False and name not in IGNORED and name not in passed:
            raise NotImplementedError(f"{name} is given, but it is not supported")


class Planned(NamedTuple):  # what the layers of one model share
    plan: Plan
    rows: Tensor | None  # of all queries, those of the sequences; None if these are all
    slots: Tensor  # of all keys, those that fill the pages


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Where each sequence lies among the rows of all queries and of all keys: (first, number) each."""

    queries: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]
    end: Tensor | None = None  # of all keys, where only the device knows it; ``keys`` are then bounds
    planned: dict[Model, Planned] = field(default_factory=dict)

    @classmethod
    def between(cls, starts_q: list[int], starts_k: list[int]) -> Self:
        """Return the sequences between starts; the last entry is the end."""
        queries, keys = (
            tuple((start, end - start) for start, end in pairwise(starts)) for starts in (starts_q, starts_k)
        )
        return cls(queries, keys)

    @classmethod
    def of_indices(cls, indices: Tensor) -> Self:
        """Return the runs of equal numbers of each row; ``indices``: [rows, tokens]. Synchronises."""
        begins = torch.nn.functional.pad(indices.diff() != 0, (1, 0), value=True)
        starts = [*begins.flatten().nonzero().flatten().tolist(), indices.numel()]
        return cls.between(starts, starts)

    def attend(
        self, model: Model, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """Return [num_seqs, queries, num_query_heads, head_size]; queries of no sequence give zeros."""
        if model not in self.planned:
            self.planned[model] = self._plan(model, query, key)
        planned = self.planned[model]
        caches = []
        for tensor in (key, value):
            rows = tensor.transpose(1, 2).flatten(0, 1)[planned.slots]
            caches.append(rows.view(len(rows) // model.block_size, model.block_size, *rows.shape[1:]))
        queries = query.transpose(1, 2)
        rows = queries.flatten(0, 1)
        if planned.rows is None:
            return run(planned.plan, rows, *caches, **options).view(queries.shape)
        out = rows.new_zeros(rows.shape)
        out[planned.rows] = run(planned.plan, rows[planned.rows], *caches, **options)
        return out.view(queries.shape)

    def _plan(self, model: Model, query: Tensor, key: Tensor) -> Planned:
        device, page_size = query.device, model.block_size
        num_rows, key_rows = (tensor.shape[0] * tensor.shape[2] for tensor in (query, key))
        for most, what, spans in ((num_rows, "queries", self.queries), (key_rows, "keys", self.keys)):
            if any(count < 0 or first < 0 or first + count > most for first, count in spans):
                raise ValueError(f"sequences have {what} {spans} (first, number), but there are {most}")
        query_lens, key_lens = ([count for _, count in spans] for spans in (self.queries, self.keys))

        def index(values: Sequence[int]) -> Tensor:
            step = values[1] - values[0] if len(values) > 1 else 0
            if all(one + step == other for one, other in pairwise(values)):  # without waiting for a GPU
                return torch.arange(len(values), dtype=torch.int32, device=device) * step + values[0]
            return torch.tensor(values, dtype=torch.int32, device=device)

        lens, pages = index(key_lens), -(-max(1, *key_lens) // page_size)
        first = index([first for first, _ in self.keys])
        table, slots = pages_of_copies(first, lens, pages, sum(key_lens), page_size, key_rows)
        if self.end is not None:
            lens = self.end.to(device, torch.int32).reshape(1).expand(len(lens)).contiguous()
        starts = [0, *accumulate(query_lens)]
        made = plan(
            index(starts),
            lens,
            table,
            model,
            num_query_tokens=starts[-1],
            max_query_len=max(query_lens),
            max_seq_len=max(key_lens),
            num_kv_tokens=sum(key_lens) if self.end is None else None,
        )
        rows = None
        if [first for first, _ in self.queries] != starts[:-1] or starts[-1] != num_rows:
            rows = torch.cat([torch.arange(first, first + count) for first, count in self.queries]).to(device)
        return Planned(made, rows, slots)


def pages_of_copies(
    first: Tensor, lens: Tensor, pages: int, num_tokens: int, page_size: int, num_rows: int
) -> tuple[Tensor, Tensor]:
    """Give each sequence whole pages of its own; never synchronises with a GPU.

    ``first``, ``lens``: of each sequence, its first token among ``num_rows`` keys and its number of tokens.
    ``pages``: of the longest sequence. ``num_tokens``: at most in all sequences. Returns the block table, and
    for each slot of all pages the token to copy; the last pages may be unused.
    """
    ends = ((lens + page_size - 1) // page_size).cumsum(0)
    begins = ends - (lens + page_size - 1) // page_size
    table = begins[:, None] + torch.arange(pages, device=lens.device)
    count = num_tokens // page_size + len(lens)  # at least as many as all sequences need
    slots = torch.arange(count * page_size, device=lens.device)
    seqs = torch.searchsorted(ends, slots // page_size, right=True).clamp(max=len(lens) - 1)
    inside = torch.minimum(slots - begins[seqs] * page_size, (lens[seqs] - 1).clamp(min=0))
    tokens = (first[seqs] + inside).clamp(max=num_rows - 1)
    return table.clamp(max=count - 1).to(torch.int32), tokens


# By starts of queries, then of keys; with the versions of both.
_packed: MutableMapping[Tensor, MutableMapping[Tensor, tuple[Any, Sequences]]] = WeakTensorKeyDictionary()


def packed_sequences(others: Mapping[str, Any]) -> Sequences | None:
    """The sequences of ``cu_seq_lens_q`` and ``cu_seq_lens_k``; None without. Synchronises once per step.

    Raises NotImplementedError if only one of them is given.
    """
    starts_q, starts_k = map(others.get, STARTS)
    if starts_q is None and starts_k is None:
        return None
    if starts_q is None or starts_k is None:
        raise NotImplementedError("cu_seq_lens_q and cu_seq_lens_k are needed both, but only one is given")
    # A tensor may be filled anew for the next step; those of inference mode do not count how often.
    versions = [0 if starts.is_inference() else starts._version for starts in (starts_q, starts_k)]
    of_keys = _packed.setdefault(starts_q, WeakTensorKeyDictionary())
    if of_keys.get(starts_k, (None,))[0] != versions:
        of_keys[starts_k] = versions, Sequences.between(starts_q.tolist(), starts_k.tolist())
    return of_keys[starts_k][1]

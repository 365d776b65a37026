"""Continuous batching of transformers: tiny models against their copies in float32."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", minversion="5.17")


from transformers_models import OURS, TINY, WINDOW, Models, make

from attn_kernels.engines import transformers_paged as engine
from attn_kernels.engines import transformers_sequences

NEW = 6
CHUNKED = {"block_size": 16, "num_blocks": 60, "max_batch_tokens": 24, "max_requests_per_batch": 4}
WHOLE = {"block_size": 8, "num_blocks": 60, "max_batch_tokens": 200, "max_requests_per_batch": 8}


@pytest.mark.parametrize("name", TINY)
def test_generate_batch_returns_greedy_tokens(name: str) -> None:
    models = Models(make(name), (5, 41, 27, 1, WINDOW), NEW)
    sizes = WHOLE if name == "gemma2" else CHUNKED  # both, with and without windows
    assert models.wrong(models.generate_batch(**sizes)) == 0


def test_a_shared_prefix_and_few_blocks() -> None:
    models = Models(make("llama"), (33, 3, 9, 20), NEW)
    shared, *ends = models.prompts
    models.prompts = [shared + end for end in ends]
    few = CHUNKED | {"num_blocks": 8}  # requests wait for blocks, and blocks are used again
    found = models.generate_batch("paged|attn_kernels", **few)  # the name up to transformers 5.18
    assert models.wrong(found) == 0


def test_other_attention_is_left_alone() -> None:
    models = Models(make("llama"), (5, 21), NEW)
    assert models.wrong(models.generate_batch("sdpa", **WHOLE)) == 0
    models.generate_batch(**WHOLE)
    assert models.model.config._attn_implementation == OURS


def test_layers_of_one_group_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, group = [], engine._group
    monkeypatch.setattr(engine, "_group", lambda *args: steps.append(args[1]) or group(*args))
    Models(make("gemma2"), (5,), NEW).generate_batch(**WHOLE)
    assert steps == [0, 1] * NEW
    assert not engine._captured and len(engine._steps) == 0


class Cache(SimpleNamespace):
    """A cache of one group without a window, as the attention function sees it."""


@pytest.fixture
def cache() -> Iterator[Any]:
    pages, heads, size = 12, 2, 16
    tensors = [torch.full((pages * 4, heads, size), float("nan"), dtype=torch.float16) for _ in range(2)]
    yield Cache(
        layer_index_to_group_indices={0: (0, 0)},
        sliding_windows={0: 1},
        block_size=4,
        key_cache=[tensors[0]],
        value_cache=[tensors[1]],
    )


def test_a_step_that_is_padded_for_a_graph(cache: Any) -> None:
    """Padding tokens write to a block that no sequence has, and padding sequences are empty."""
    torch.manual_seed(0)
    keys, values = (torch.randn(9, 2, 16, dtype=torch.float16) for _ in range(2))
    blocks = [[3, 7], [5]]
    slots = [
        [block * 4 + i for block in some for i in range(4)][:n]
        for some, n in zip(blocks, (6, 3), strict=True)
    ]
    read = slots[0] + slots[1]
    write = [*slots[0][4:], slots[1][2]]  # two new tokens of the first sequence, and one of the second
    for store, source in ((cache.key_cache, keys), (cache.value_cache, values)):
        store[0][read] = source
        store[0][write] = float("nan")
    query = torch.randn(1, 4, 8, 16, dtype=torch.float16)
    new = [torch.full((1, 2, 8, 16), float("nan"), dtype=torch.float16) for _ in range(2)]
    for padded, source in zip(new, (keys, values), strict=True):
        padded[0, :, :3] = source[[4, 5, 8]].transpose(0, 1)
    trash = 11 * 4
    out, _ = engine.paged_attention(
        SimpleNamespace(layer_idx=0),
        query,
        *new,
        None,
        cache=cache,
        cu_seq_lens_q=torch.tensor([0, 2, 3, 3, 3], dtype=torch.int32),
        cu_seq_lens_k=torch.tensor([0, 6, 9, 9, 9], dtype=torch.int32),
        max_seqlen_q=8,
        max_seqlen_k=16,
        read_index=[torch.tensor(read + [trash] * 7)],
        write_index=[torch.tensor(write + [trash] * 5)],
    )
    assert out.shape == (1, 8, 4, 16) and not out[0, 3:].any()
    rows = query[0].transpose(0, 1)
    for rows_of, tokens in ((slice(0, 2), slice(0, 6)), (slice(2, 3), slice(6, 9))):
        expected = dense(rows[rows_of], keys[tokens], values[tokens])
        torch.testing.assert_close(out[0, rows_of].double(), expected, rtol=0, atol=2e-3)


def dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in float64 of the last tokens: [queries, heads, size]."""
    q, k, v = (tensor.double() for tensor in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    hidden = torch.arange(len(k)) > torch.arange(len(k) - len(q), len(k))[:, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def test_pages_of_copies_hold_each_sequence() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        lens = torch.randint(0, 40, (5,), generator=generator)
        lens[0] += 1
        first = lens.cumsum(0) - lens
        pages = -(-int(lens.max()) // 16)
        total = int(lens.sum()) + 7
        table, copied = transformers_sequences.pages_of_copies(first, lens, pages, total, 16, total)
        assert table.shape == (5, pages) and len(copied) % 16 == 0
        for i, length in enumerate(lens.tolist()):
            tokens = copied.view(-1, 16)[table[i].long()].flatten()[:length]
            assert tokens.tolist() == list(range(int(first[i]), int(first[i]) + length))


def test_what_is_refused(cache: Any) -> None:
    q = torch.zeros(1, 4, 3, 16, dtype=torch.float16)
    layer = SimpleNamespace(layer_idx=0)
    with pytest.raises(NotImplementedError, match="the cache of continuous batching is needed"):
        engine.paged_attention(layer, q, q[:, :2], q[:, :2], None)
    with pytest.raises(NotImplementedError, match=r"dropout is 0\.1"):
        engine.paged_attention(layer, q, q[:, :2], q[:, :2], None, dropout=0.1, cache=cache)
    with pytest.raises(NotImplementedError, match="position_bias is given"):
        engine.paged_attention(layer, q, q[:, :2], q[:, :2], None, cache=cache, position_bias=q)
    with pytest.raises(NotImplementedError, match="attention_mask is given"):
        engine.paged_attention(layer, q, q[:, :2], q[:, :2], q, cache=cache)

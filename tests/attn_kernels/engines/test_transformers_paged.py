"""Continuous batching of transformers: tiny models against their copies in float32."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers", minversion="5.17")


from transformers_models import OURS, TINY, WINDOW, Models, make

from attn_kernels.engines import transformers_paged as engine
from attn_kernels.testing.reference import paged_attention_reference

NEW = 6
CHUNKED = {"block_size": 16, "num_blocks": 60, "max_batch_tokens": 24, "max_requests_per_batch": 4}
WHOLE = {"block_size": 8, "num_blocks": 60, "max_batch_tokens": 200, "max_requests_per_batch": 8}


@pytest.mark.parametrize("name", TINY)
def test_generate_batch_returns_greedy_tokens(name):
    models = Models(make(name), (5, 41, 27, 1, WINDOW), NEW)
    sizes = WHOLE if name == "gemma2" else CHUNKED  # both, with and without windows
    assert models.wrong(models.generate_batch(**sizes)) == 0


def test_a_shared_prefix_and_few_blocks():
    models = Models(make("llama"), (33, 3, 9, 20), NEW)
    shared, *ends = models.prompts
    models.prompts = [shared + end for end in ends]
    few = CHUNKED | {"num_blocks": 8}  # requests wait for blocks, and blocks are used again
    found = models.generate_batch("paged|attn_kernels", **few)  # the name up to transformers 5.18
    assert models.wrong(found) == 0


def test_other_attention_is_left_alone():
    models = Models(make("llama"), (5, 21), NEW)
    assert models.wrong(models.generate_batch("sdpa", **WHOLE)) == 0
    models.generate_batch(**WHOLE)
    assert models.model.config._attn_implementation == OURS


def test_layers_of_one_group_share_a_plan(monkeypatch):
    steps, group = [], engine._group
    monkeypatch.setattr(engine, "_group", lambda *args: steps.append(args[1]) or group(*args))
    Models(make("gemma2"), (5,), NEW).generate_batch(**WHOLE)
    assert steps == [0, 1] * NEW
    assert not engine._captured and len(engine._steps) == 0


@pytest.fixture
def cache():
    """A cache of one group without a window, as the attention function sees it."""
    tensors = [torch.full((12 * 4, 2, 16), float("nan"), dtype=torch.float16) for _ in range(2)]
    return SimpleNamespace(
        layer_index_to_group_indices={0: (0, 0)},
        sliding_windows={0: 1},
        block_size=4,
        key_cache=[tensors[0]],
        value_cache=[tensors[1]],
    )


def test_a_step_that_is_padded_for_a_graph(cache):
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
    index = (torch.tensor([0, 2, 3]), torch.tensor([6, 3]), torch.tensor([range(6), [6, 7, 8, 0, 0, 0]]))
    one_a_page = (tensor.unsqueeze(1) for tensor in (keys, values))
    expected = paged_attention_reference(query[0, :, :3].transpose(0, 1), *one_a_page, *index)
    torch.testing.assert_close(out[0, :3].double(), expected, rtol=0, atol=2e-3)


def test_what_is_refused(cache):
    q, layer = torch.zeros(1, 4, 3, 16, dtype=torch.float16), SimpleNamespace(layer_idx=0)
    for mask, options, named in (
        (None, {}, "the cache of continuous batching is needed"),
        (None, {"cache": cache, "dropout": 0.1}, r"dropout is 0\.1"),
        (None, {"cache": cache, "position_bias": q}, "position_bias is given"),
        (q, {"cache": cache}, "attention_mask is given"),
    ):
        with pytest.raises(NotImplementedError, match=named):
            engine.paged_attention(layer, q, q[:, :2], q[:, :2], mask, **options)

"""Ranks that share the keys, eagerly and in graphs that are replayed for other lengths, against float64."""

from typing import Any

import pytest
import torch
from shared_keys import Ranks

from attn_kernels.measure.checking import TOLERANCE, Expected, check
from attn_kernels.testing.poisoned import make_batch

pytestmark = pytest.mark.gpu
FP8 = torch.float8_e4m3fn
STEPS = {
    "decodes": ([1] * 16, [5 + 500 * i for i in range(16)]),
    "drafts": ([4, 8, 5], [7000, 30, 5]),
    "mixed": ([1, 1, 4, 250, 600, 1], [4000, 17, 66, 4100, 600, 900]),
}


def batch_of(name, device, **options):
    heads = {"num_query_heads": 16, "num_kv_heads": 1, "head_size": 128}
    return make_batch(*STEPS[name], block_size=16, device=device, **heads, **options)


def assert_right(out, batch, **options):
    rows = torch.arange(len(batch.q), device=out.device)
    verdict = check(out, Expected(rows, batch.reference(**options), TOLERANCE[out.dtype]))
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(("ranks", "interleave"), [(2, 1), (4, 16)])
@pytest.mark.parametrize("kind", ["plain", "softcap", "sinks", "fp8"])
@pytest.mark.parametrize("name", STEPS)
def test_ranks_that_share_the_keys(name, kind, ranks, interleave, device):
    options: dict[str, Any] = {
        "plain": {},
        "softcap": {"softcap": 20.0},
        "sinks": {"sinks": torch.linspace(-2.0, 4.0, 16, device=device)},
        "fp8": {"k_scale": 0.25, "v_scale": 0.5},
    }[kind]
    batch = batch_of(name, device, cache_dtype=FP8 if kind == "fp8" else None)
    assert_right(Ranks(batch, ranks, interleave, **options).attend(), batch, **options)


@pytest.mark.parametrize("name", ["decodes", "drafts"])
def test_a_graph_finds_the_shares_of_the_lengths_at_its_replay(name, device):
    batch = batch_of(name, device)
    ranks = Ranks(batch, 2, 1, for_capture=True)
    ranks.attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ranks.attend()
    longest = torch.tensor(batch.context_lens, device=device)
    queries = torch.tensor(batch.query_lens, device=device)
    for share in (1.0, 0.6, 0.0):
        batch.seqused_k.copy_((longest * share).maximum(queries))
        ranks.take_new_keys()
        out.fill_(torch.nan)
        graph.replay()
        assert_right(out, batch)

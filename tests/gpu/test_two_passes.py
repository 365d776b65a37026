"""Ranks that share the keys, in graphs that are replayed for other lengths, against float64."""

import pytest
import torch
from shared_keys import Ranks

from attn_kernels.measure.checking import TOLERANCE, Expected, check
from attn_kernels.testing.poisoned import make_batch

pytestmark = pytest.mark.gpu
STEPS = {
    "decodes": ([1] * 16, [5 + 500 * i for i in range(16)]),
    "drafts": ([4, 8, 5], [7000, 30, 5]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_graph_finds_the_shares_of_the_lengths_at_its_replay(name, device):
    heads = {"num_query_heads": 16, "num_kv_heads": 1, "head_size": 128}
    batch = make_batch(*STEPS[name], block_size=16, device=device, **heads)
    ranks = Ranks(batch, 2, 1, for_capture=True)
    ranks.attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ranks.attend()
    longest = torch.tensor(batch.context_lens, device=device)
    queries = torch.tensor(batch.query_lens, device=device)
    rows = torch.arange(len(batch.q), device=device)
    for share in (1.0, 0.6, 0.0):
        batch.seqused_k.copy_((longest * share).maximum(queries))
        ranks.take_new_keys()
        out.fill_(torch.nan)
        graph.replay()
        verdict = check(out, Expected(rows, batch.reference(), TOLERANCE[out.dtype]))
        assert verdict.ok, str(verdict)

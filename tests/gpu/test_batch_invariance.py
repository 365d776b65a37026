"""With `batch_invariant`, a sequence has the same bits alone, in any batch and chunks, and in graphs.

`python -m pytest -m gpu tests/gpu/test_batch_invariance.py`
"""

import random
from dataclasses import dataclass, replace

import pytest
import torch
from batch_pieces import batch_of, differing, drawn, whole
from kernel_cases import FP8, scores, words_of

from attn_kernels import Parts, run
from attn_kernels.choose.choices import choices_for
from attn_kernels.core.model import Model
from attn_kernels.testing.poisoned import make_batch, relative_error, run_poisoned
from attn_kernels.warmup.dummy_launch import DummyLaunch

pytestmark = pytest.mark.gpu
SEQUENCES, DRAWINGS, LONGEST = 200, 10, 8192


@dataclass(frozen=True)
class Case:
    """Layers of a model, and the tile of a config in place of the choice."""

    heads: tuple[int, int, int]  # query heads, KV heads, head size
    words: str = ""  # of its options
    cache_dtype: torch.dtype | None = None
    tile: tuple[int, int] | None = None  # keys and warps

    @property
    def model(self):
        return Model(*self.heads, 16, torch.bfloat16, self.cache_dtype, batch_invariant=True)

    def config(self, device):
        (chosen,) = choices_for(self.model, device).possible()
        return (
            chosen if self.tile is None else chosen._replace(tile_size=self.tile[0], num_warps=self.tile[1])
        )

    def jobs(self):
        device = torch.device("cuda", torch.cuda.current_device())
        yield DummyLaunch(self.config(device), self.model, frozenset(words_of(self.words)))

    def options(self, device):
        return scores(self.heads[0], self.words, torch.bfloat16, device)


CASES = [
    Case((32, 8, 128)),
    Case((32, 8, 128), tile=(64, 4)),
    Case((28, 4, 128), "window=1500", tile=(128, 4)),
    Case((16, 2, 64), "softcap=30 sinks=half", tile=(64, 4)),
    Case((8, 4, 256), "window=1500 sinks=half"),
    Case((32, 8, 128), "scales=tensor", FP8, tile=(64, 4)),
]


def lengths(rng):
    """Query tokens and keys of decodes, drafts, chunks and whole prompts."""
    contexts = [round(2.0 ** rng.uniform(0, 13)) for _ in range(SEQUENCES - 1)]
    queries = [rng.choice((1, 1, 1, rng.randint(1, 8), context // 4, context)) for context in contexts]
    queries = [max(1, min(query, context)) for query, context in zip(queries, contexts, strict=True)]
    return [*queries, LONGEST], [*contexts, LONGEST]


def results(batch, case, rng, options):
    """The output of a batch, with its parts or without."""
    parts = rng.choice((None, Parts.of(batch.query_lens, batch.context_lens)))
    config = None if case.tile is None else case.config(batch.q.device)
    return run_poisoned(batch, batch.plan(model=case.model, parts=parts, config=config), **options)


def replayed(batch, case, options):
    """The output of a batch from a graph, captured for the longest contexts and for these query tokens."""
    out = torch.full_like(batch.q, torch.nan)
    table = batch.block_table.new_zeros(len(batch.query_lens), LONGEST // 16)
    table[:, : batch.block_table.shape[1]] = batch.block_table[:, : table.shape[1]]
    config = None if case.tile is None else case.config(batch.q.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan = replace(batch, block_table=table).plan(
            model=case.model, config=config, for_capture=True, max_seq_len=LONGEST, num_kv_tokens=None
        )
        run(plan, batch.q, batch.k_cache, batch.v_cache, out=out, **options)
    graph.replay()
    torch.cuda.synchronize()
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_do_not_depend_on_the_batch(case, device, compiled):
    rng = random.Random(0)
    heads = dict(zip(("num_query_heads", "num_kv_heads", "head_size"), case.heads, strict=True))
    batch = make_batch(*lengths(rng), **heads, block_size=16, cache_dtype=case.cache_dtype, device=device)
    options = case.options(device)
    alone = torch.cat([results(batch_of(batch, [piece]), case, rng, options) for piece in whole(batch)])
    short = [seq for seq, keys in enumerate(batch.context_lens) if 500 < keys < 2500][:3]
    for seq in short:  # the reference takes long
        own = batch_of(batch, [whole(batch)[seq]])
        out = results(own, case, rng, options)
        assert relative_error(out, own.reference(**options)) < 3e-2
    wrong = []
    for _ in range(DRAWINGS):
        for pieces in drawn(batch, rng, 64):
            decodes_first = sorted(pieces, key=lambda piece: piece.stop - piece.first > 8)
            part = batch_of(batch, decodes_first)
            wrong += differing(batch, decodes_first, results(part, case, rng, options), alone)
    assert not wrong, f"{len(wrong)} pieces differ, such as {wrong[:5]}"
    decodes = [piece for piece in whole(batch) if piece.stop == 1]
    for pieces in (decodes[:40], decodes[:1], whole(batch)[:20]):
        assert not differing(batch, pieces, replayed(batch_of(batch, pieces), case, options), alone)

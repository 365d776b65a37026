"""examples/anatomy: every step against float64 in Triton's interpreter, and the table of a measured run."""

from functools import partial
from importlib import import_module

import pytest
import torch
from kernel_cases import TOLERANCE

from attn_kernels.testing.poisoned import make_batch, relative_error
from examples.anatomy import STEPS, step8_tuned
from examples.anatomy.common import Batch

# Query tokens and keys of each sequence. A scheduler sorts decodes to the front; here one stands behind, too.
BATCHES = {
    "decode": ((1, 1, 1), (18, 1, 80)),
    "prompts": ((17, 3), (17, 40)),
    "mixed": ((1, 1, 17, 0, 1), (68, 2, 17, 5, 20)),
}
# Query heads a KV head, head size, page size.
LAYOUTS = {"decode": (4, 128, 16), "prompts": (1, 64, 1), "mixed": (7, 80, 48)}


def poisoned(name, group, head_size, block_size):
    """A batch whose output and unused pages hold NaN."""
    queries, keys = BATCHES[name]
    kv_heads = 1 if group == 7 else 2
    heads = {"num_query_heads": kv_heads * group, "num_kv_heads": kv_heads, "head_size": head_size}
    made = make_batch(queries, keys, **heads, block_size=block_size, dtype=torch.float16)
    index = (made.block_table, made.seqused_k, made.cu_seqlens_q)
    out = torch.full_like(made.q, torch.nan)
    return made, Batch(made.q, made.k_cache, made.v_cache, out, *index, queries, keys)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("step", STEPS)
def test_every_step_computes_attention(step, name):
    made, batch = poisoned(name, *LAYOUTS[name])
    assert import_module(f"examples.anatomy.{step}").attention(batch) is batch.out
    assert relative_error(batch.out, made.reference()) < TOLERANCE[torch.float16]


@pytest.mark.parametrize("name", ["decode", "mixed"])
def test_the_last_program_of_a_q_block_joins_its_segments_and_resets_its_counter(name):
    made, batch = poisoned(name, 4, 64, 16)
    config = {"BLOCK_M": 16, "TILE": 16, "SEGMENTS": 4, "num_warps": 4, "num_stages": 2}

    class Launches:
        def __getitem__(self, grid):
            return partial(step8_tuned.tuned_kernel.fn[grid], **config)

    for _ in range(2):
        batch.out.fill_(torch.nan)
        step8_tuned.attention(batch, Launches())
        assert relative_error(batch.out, made.reference()) < TOLERANCE[torch.float16]
        assert not step8_tuned.counters_of(batch.q.device).any()

"""The steps of examples/anatomy against float64, in Triton's interpreter."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from kernel_cases import TOLERANCE

from attn_kernels.testing.poisoned import make_batch, relative_error
from examples.anatomy import STEPS
from examples.anatomy.common import Batch

# Query tokens and keys of each sequence. A scheduler sorts decodes to the front, but a decode may stand behind.
BATCHES = {
    "decode": ((1, 1, 1), (37, 1, 140)),
    "prompts": ((20, 3), (20, 50)),
    "mixed": ((1, 1, 18, 0, 1), (70, 2, 18, 5, 30)),
}
# Query heads a KV head, head size, page size: each kind of batch has each of these values.
LAYOUTS = {
    "decode": [(1, 64, 16), (4, 128, 1), (7, 80, 48)],
    "prompts": [(1, 80, 1), (4, 64, 48), (7, 128, 16)],
    "mixed": [(1, 128, 48), (4, 80, 16), (7, 64, 1)],
}
CASES = [(name, *layout) for name in BATCHES for layout in LAYOUTS[name]]


def compute(step: str, name: str, group: int, head_size: int, block_size: int) -> float:
    """The relative error of a step whose output and unused pages held NaN."""
    queries, keys = BATCHES[name]
    heads = {"num_query_heads": 2 * group, "num_kv_heads": 2, "head_size": head_size}
    made = make_batch(queries, keys, **heads, block_size=block_size, dtype=torch.float16)
    index = (made.block_table, made.seqused_k, made.cu_seqlens_q)
    out = torch.full_like(made.q, torch.nan)
    batch = Batch(made.q, made.k_cache, made.v_cache, out, *index, queries, keys)
    result = import_module(f"examples.anatomy.{step}").attention(batch)
    assert result is out
    return relative_error(out, made.reference())


@pytest.mark.parametrize("case", CASES, ids="{0[0]} group {0[1]} head {0[2]} page {0[3]}".format)
@pytest.mark.parametrize("step", STEPS)
def test_every_step_computes_attention(step: str, case: tuple[str, int, int, int]) -> None:
    assert compute(step, *case) < TOLERANCE[torch.float16]

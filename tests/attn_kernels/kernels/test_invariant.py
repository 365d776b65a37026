"""The variant `invariant` gives a query the same bits in any batch; Triton's interpreter."""

import random

import pytest
import torch
from batch_pieces import batch_of, differing, drawn, whole
from kernel_cases import assert_close, random_batch, record_launches, scores
from triton.runtime import interpreter

from attn_kernels import Config
from attn_kernels.kernels import invariant
from attn_kernels.testing.poisoned import run_poisoned

CONFIG = Config("invariant", 64, 16)
LENS = ((21, 1, 5, 1), (53, 99, 37, 40))


@pytest.fixture(autouse=True)
def short_ranges(monkeypatch):
    monkeypatch.setattr(invariant, "SPLIT_KEYS", 32)


@pytest.fixture(autouse=True)
def products_as_on_gpus(monkeypatch):
    """NumPy's libraries sum a row's products in an order that depends on the row's place in the matrix."""

    def create_dot(self, a, b, acc, *_):
        total = acc.data.copy()
        left, right = (operand.data.astype(total.dtype) for operand in (a, b))
        for k in range(left.shape[1]):
            total += left[:, k, None] * right[k]
        return interpreter.TensorHandle(total, acc.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def one_by_one(batch, **options):
    """Each sequence in a batch of its own."""
    return torch.cat(
        [
            run_poisoned(alone, alone.plan(config=CONFIG), **options)
            for alone in (batch_of(batch, [piece]) for piece in whole(batch))
        ]
    )


CASES = {
    "plain": ({}, ""),
    "grouped heads": ({"ratio": 3, "kv_heads": 2}, "softcap"),
    "more heads than rows": ({"ratio": 80, "lens": ((2, 1), (35, 68))}, ""),
    "a window": ({}, "window=21"),
    "a window within a tile": ({"ratio": 2}, "window=3 sinks=half"),
    "fp8": ({"cache_dtype": torch.float8_e4m3fn}, "scales=tensor sinks=single"),
    "an odd head": ({"head_size": 33, "block_size": 5}, "alibi"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_query_has_the_same_bits_in_every_batch(case, monkeypatch):
    layout, words = case
    batch = random_batch(**{"lens": LENS, **layout})
    options = scores(batch.q.shape[1], words, batch.q.dtype)
    alone = one_by_one(batch, **options)
    assert_close(alone, batch.reference(**options))
    recorded = record_launches(monkeypatch)
    for seed, row_cost in enumerate((1e-3, 1e9)):  # ranges of a Q-Block in parallel, and one after another
        monkeypatch.setattr("attn_kernels.kernels.splits.ROW_COST", row_cost)
        for pieces in drawn(batch, random.Random(seed), 2):
            part = batch_of(batch, pieces)
            out = run_poisoned(part, part.plan(config=CONFIG), **options)
            assert differing(batch, pieces, out, alone) == []
    assert {launch.kernel for launch in recorded} == {"qblock_kernel", "reduce_kernel"}

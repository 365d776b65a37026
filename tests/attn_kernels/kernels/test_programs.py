"""The kernels that a variant launches, and that each part of a batch is computed once."""

from collections import Counter

import pytest
import torch
from kernel_cases import assert_close, check, make_config, random_batch, record_calls, record_launches

from attn_kernels import run
from attn_kernels.kernels import split


@pytest.mark.parametrize(
    "query_lens, kernels",
    [
        ((1, 1), ["decode_kernel"]),
        ((1, 0), ["decode_kernel"]),
        ((3, 3), ["prefill_kernel"]),
        ((3, 1, 0, 2), ["prefill_kernel", "decode_kernel"]),
    ],
)
def test_split_launches_only_needed_kernels(query_lens, kernels, monkeypatch):
    launches = record_launches(monkeypatch)
    computed = record_calls(monkeypatch, split, "attend_and_store", "seq", "kv_head", "head_in_group")
    batch = random_batch((query_lens, [length + 20 for length in query_lens]), 2, 2, 16)
    check(batch, make_config("split"))
    assert [launch.kernel for launch in launches] == kernels
    first_heads = {seq: (0,) if length == 1 else (0, 1) for seq, length in enumerate(query_lens) if length}
    expected = [
        (seq, kv_head, head) for seq in first_heads for kv_head in (0, 1) for head in first_heads[seq]
    ]
    assert Counter(computed) == Counter(expected)


def test_a_plan_serves_layers_of_different_features():
    """Layers use the plan's workspace one after the other, and none sees what another left there."""
    batch = random_batch(((2, 1), (40, 50)), ratio=2, head_size=16)
    plan = batch.plan(config=make_config("segmented"))
    for options in ({}, {"sliding_window": 3}, {"sinks": torch.ones(2)}, {"softcap": 2.0}):
        assert_close(run(plan, batch.q, batch.k_cache, batch.v_cache, **options), batch.reference(**options))

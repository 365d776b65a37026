"""``stream_k`` in a captured graph: launches bound once for fixed maxima are replayed for other batches."""

import random
from unittest.mock import Mock

import pytest
import torch
from captured_server import HEADS, Server, batch_of, random_lens
from kernel_cases import FP8, assert_close, make_config, scores
from triton.runtime import interpreter

from attn_kernels.kernels import stream_k


@pytest.mark.parametrize(
    "names, fp8", [("", False), ("window=37 sinks", False), ("softcap alibi scales=tensor", True)]
)
@pytest.mark.parametrize("programs_per_sm", [1, 5])
def test_replays_for_random_batches_under_the_maxima(names, fp8, programs_per_sm):
    rng = random.Random(f"{names}/{programs_per_sm}")
    options, cache_dtype = scores(HEADS, names), FP8 if fp8 else None
    server = Server(
        make_config("stream_k", programs_per_sm=programs_per_sm), cache_dtype=cache_dtype, **options
    )
    for seed in range(25):
        batch = batch_of(*random_lens(rng), seed, cache_dtype)
        out = server.replay(batch)
        if len(batch.q):
            assert_close(out, batch.reference(**options))


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_joins_are_bit_equal_whatever_the_order_of_programs(order, monkeypatch):
    batch = batch_of((1, 3, 0, 1), (200, 170, 9, 33))
    server = Server(make_config("stream_k", programs_per_sm=5))
    first = server.replay(batch)
    join = Mock(side_effect=stream_k.join_fragments)
    monkeypatch.setattr(stream_k, "join_fragments", join)
    programs = list(range(15))
    programs.reverse() if order == "reversed" else random.Random(0).shuffle(programs)
    builder = interpreter.interpreter_builder
    set_grid_idx = builder.set_grid_idx
    monkeypatch.setattr(builder, "set_grid_idx", lambda x, y, z: set_grid_idx(programs[x], y, z))
    again = server.replay(batch)
    assert join.call_count > 3
    assert again.equal(first)


def test_gpus_that_do_not_order_stores_before_arrivals_are_refused(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(ValueError, match="variant is 'stream_k', but AMD GPUs do not order"):
        batch_of((1,), (20,)).plan(config=make_config("stream_k"))

"""The log-sum-exp of each query against float64, and outputs over disjoint keys merged by it."""

import math
import random
from unittest.mock import patch

import pytest
import torch
from captured_server import HEADS, MAX_TOKENS, Server, batch_of, random_lens
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import FP8, TOLERANCE, make_config, random_batch, scores

from attn_kernels import merge_attention_states
from attn_kernels.kernels import splits
from attn_kernels.testing.poisoned import run_poisoned

# The interpreter also computes the rows of a tile that hold no query, and the infinite powers of a soft cap.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)

BF16 = torch.bfloat16
LSE_TOLERANCE = 1e-4
quick = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
any_scores = st.tuples(
    *(
        st.sampled_from(["", *words])
        for words in (
            ["window=1", "window=37"],
            ["softcap"],
            ["alibi"],
            ["sinks", "sinks=half"],
            ["scales", "scales=tensor"],
        )
    )
).map(" ".join)
sequences = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 2, 17]), st.sampled_from([0, 3, 40, 150])), min_size=1, max_size=4
)


def unwritten(batch):
    return torch.full((batch.q.shape[1], batch.q.shape[0]), math.nan)


def expected(batch, **options):
    """The reference's outputs and log-sum-exps, in float64."""
    lse = unwritten(batch).double()
    return batch.reference(lse=lse, **options), lse


def assert_lse(lse, reference):
    torch.testing.assert_close(lse.double(), reference, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)


@quick
@given(
    cost=st.sampled_from([0.001, 0.1, 3.0]),
    for_capture=st.booleans(),
    lens=sequences,
    ratio=st.sampled_from([1, 3, 17]),
    kv_heads=st.integers(1, 2),
    head_size=st.sampled_from([16, 33, 128]),
    block_m=st.sampled_from([16, 32]),
    dtype=st.sampled_from([torch.float16, BF16]),
    fp8=st.booleans(),
    names=any_scores,
    seed=st.integers(0, 99),
)
def test_any_batch(cost, for_capture, lens, ratio, kv_heads, head_size, block_m, dtype, fp8, names, seed):
    """In whole and in split contexts, with any option; the output is that without it, to the bit."""
    lens = [query for query, _ in lens], [query + cached for query, cached in lens]
    options = scores(ratio * kv_heads, names, dtype)
    cache_dtype = FP8 if fp8 else None
    batch = random_batch(lens, ratio, kv_heads, head_size, dtype=dtype, cache_dtype=cache_dtype, seed=seed)
    with patch.object(splits, "ROW_COST", cost):
        plan = batch.plan(config=make_config("qblock", block_m), for_capture=for_capture)
        lse = unwritten(batch)
        out = run_poisoned(batch, plan, lse=lse, **options)
        assert torch.equal(out, run_poisoned(batch, plan, **options))
    assert_lse(lse, expected(batch, **options)[1])


def test_both_parts_of_a_mixed_batch_write_the_same_tensor():
    batch = random_batch(((1, 2, 20, 9), (30, 200, 40, 9)), ratio=2, kv_heads=2)
    lse = unwritten(batch)
    run_poisoned(batch, batch.plan_in_parts(make_config(), make_config("qblock", 32)), lse=lse)
    assert_lse(lse, expected(batch)[1])


def test_replays_of_a_graph_write_the_rows_of_their_own_batch(many_splits):
    """Columns behind the batch's tokens stay as they are."""
    lse = torch.full((HEADS, MAX_TOKENS), math.nan)
    server = Server(make_config(), lse=lse)
    rng = random.Random(0)
    for seed in range(3):
        batch = batch_of(*random_lens(rng), seed)
        lse.fill_(math.nan)
        server.replay(batch)
        tokens = len(batch.q)
        assert_lse(lse[:, :tokens], expected(batch)[1])
        assert lse[:, tokens:].isnan().all()


@pytest.mark.parametrize("sink", [-200.0, 0.0, 200.0, -math.inf])
def test_sinks_are_part_of_the_sum_also_of_queries_without_keys(sink):
    batch = random_batch(((1, 1), (0, 40)), ratio=2, head_size=16)
    sinks, lse = torch.tensor([sink, 1.0]), unwritten(batch)
    out = run_poisoned(batch, batch.plan(config=make_config(), check=False), lse=lse, sinks=sinks)
    assert_lse(lse, expected(batch, sinks=sinks)[1])
    assert torch.equal(lse[:, 0], sinks) and not out[0].any()


def test_a_query_without_keys_has_zeros_and_minus_infinity():
    batch = random_batch(((1, 1, 1), (0, 40, 0)), ratio=2, head_size=16)
    lse = unwritten(batch)
    out = run_poisoned(batch, batch.plan(config=make_config(), check=False), lse=lse)
    assert not out[::2].any() and (lse[:, ::2] == -math.inf).all()
    assert_lse(lse, expected(batch)[1])


def states(tokens, heads, size, seed, dtype=torch.float16):
    generator = torch.Generator().manual_seed(seed)
    out = torch.randn(tokens, heads, size, generator=generator).to(dtype)
    return out, torch.randn(heads, tokens, generator=generator) * 5


def merged_reference(out_a, lse_a, out_b, lse_b):
    lses = torch.stack([lse_a, lse_b]).double()
    lse = lses.logsumexp(0)
    weights = (lses - lse).exp().nan_to_num(0.0).mT[..., None]
    outs = torch.stack([out_a, out_b]).double()
    return torch.where(weights > 0, weights * outs, 0.0).sum(0), lse


@quick
@given(
    tokens=st.sampled_from([1, 3, 17]),
    heads=st.sampled_from([1, 6]),
    size=st.sampled_from([1, 16, 80]),
    dtype=st.sampled_from([torch.float16, BF16]),
    empties=st.lists(st.sampled_from([None, -math.inf, math.inf, 1000.0, -1000.0]), max_size=12),
    gap=st.sampled_from([0, 3, 16]),
    into=st.sampled_from(["a", "b", "new"]),
)
def test_merged_states_are_those_of_all_keys(tokens, heads, size, dtype, empties, gap, into):
    """Of any strides, into an input or a new tensor; what a query without keys has as output is not read."""
    a, b = states(tokens, heads, size, 1, dtype), states(tokens, heads, size, 2, dtype)
    for place, value in enumerate(empties):
        if value is not None:
            (a, b)[place % 2][1][place // 2 % heads, place // 2 % tokens] = value
    for out, lse in (a, b):
        out[lse.isinf().mT] = math.nan
    seen = [lse.where(lse < math.inf, -math.inf) for _, lse in (a, b)]
    values, logarithms = merged_reference(a[0], seen[0], b[0], seen[1])
    room = torch.full((tokens, heads + 1, size + gap), math.nan, dtype=dtype)
    wide = room[:, :heads, :size].copy_(a[0])
    target = {"a": (wide, a[1]), "b": b, "new": (None, None)}[into]
    out, lse = merge_attention_states(wide, a[1], *b, out=target[0], lse=target[1])
    if into != "new":
        assert out is target[0] and lse is target[1]
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), values, rtol=tolerance, atol=tolerance)
    assert_lse(lse, logarithms)
    assert room[:, heads:].isnan().all() and room[..., size:].isnan().all()


@pytest.mark.parametrize(
    "name, change, error",
    [
        ("out_a", lambda x: x[0], ValueError),
        ("out_a", lambda x: x.float(), TypeError),
        ("out_a", lambda x: x.tolist(), TypeError),
        ("out_b", lambda x: x[1:], ValueError),
        ("out_b", lambda x: x.bfloat16(), TypeError),
        ("out_b", lambda x: x.to("meta"), ValueError),
        ("out", lambda x: x[:1].expand(x.shape), ValueError),
        ("out", lambda x: x.mT.contiguous().mT, ValueError),
        ("lse_a", lambda x: x.T, ValueError),
        ("lse_b", lambda x: x.double(), TypeError),
        ("lse", lambda x: x[:1].expand(x.shape), ValueError),
        ("lse", lambda x: x.T.contiguous().T, ValueError),
        ("lse", lambda x: 5, TypeError),
    ],
)
def test_mistakes_in_what_is_merged(name, change, error):
    tensors = dict(
        zip(("out_a", "lse_a", "out_b", "lse_b"), (*states(4, 2, 16, 1), *states(4, 2, 16, 2)), strict=True)
    )
    tensors |= dict(zip(("out", "lse"), states(4, 2, 16, 3), strict=True))
    tensors[name] = change(tensors[name])
    with pytest.raises(error, match=rf"\A{name}\b.*\Z"):
        merge_attention_states(**tensors)

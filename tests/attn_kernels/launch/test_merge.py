"""Outputs over disjoint keys merged by their log-sum-exps, against float64."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import TOLERANCE

from attn_kernels import merge_attention_states


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


@settings(max_examples=15)
@given(
    tokens=st.sampled_from([1, 3, 17]),
    heads=st.sampled_from([1, 6]),
    size=st.sampled_from([1, 16, 80]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
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
    torch.testing.assert_close(lse.double(), logarithms, rtol=1e-4, atol=1e-4)
    assert room[:, heads:].isnan().all() and room[..., size:].isnan().all()

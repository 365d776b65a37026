"""Rows that see no key, and the largest windows and lengths, in every kernel that computes or joins them."""

import pytest
import torch
from kernel_cases import assert_close, make_config, random_batch
from launch_recorder import far

from attn_kernels.engines.store import Store
from attn_kernels.testing.poisoned import run_poisoned

# The interpreter also computes the rows of a tile that hold no query.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")

WIDEST = 2**31 - 1
SINKS = {"sinks": torch.tensor([-torch.inf])}
CONFIGS = [make_config("qblock", 32), make_config(), make_config("invariant", 32)]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("options", [{}, {"sliding_window": 20}, {"sliding_window": WIDEST}, SINKS], ids=str)
def test_more_queries_than_keys(config, options, processors, overflow_checks):
    """Queries before the first key see none: zeros, and a log-sum-exp of -inf or of the sink."""
    processors(132)
    batch = random_batch(((40, 3), (30, 0)), ratio=1, head_size=16)
    plan = batch.plan(config=config, check=False, max_seq_len=40)
    lse, expected_lse = torch.full((1, 43), torch.nan), torch.empty(1, 43).double()
    expected = batch.reference(lse=expected_lse, **options)
    assert_close(run_poisoned(batch, plan, lse=lse, **options), expected)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-3, atol=1e-3)
    assert_close(run_poisoned(batch, plan, **options), expected)
    assert plan.num_splits > 1 or config.variant == "invariant"


def test_new_keys_and_heads_far_apart(overflow_checks):
    """A cache whose heads lie one behind the other."""
    keys = torch.randn(3, 18, 16).half()
    cache = far(torch.full((2, 16, 18, 16), torch.nan).half(), 2, 2**27)
    assert cache.stride(2) * 17 > 2**31
    assert Store(cache, cache)(keys, keys, torch.tensor([3, 17, 20]))
    assert torch.equal(torch.stack([cache[0, 3], cache[1, 1], cache[1, 4]]), keys)

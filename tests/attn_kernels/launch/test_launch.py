"""What of a config and a batch reaches the kernel, and the call in FlashAttention's form."""

import pytest
import torch
from kernel_cases import make_config, record_launches, set_choices

import attn_kernels
from attn_kernels import Config, Lengths
from attn_kernels.kernels import qblock
from attn_kernels.kernels.arguments import compile_options
from attn_kernels.testing.poisoned import make_batch, relative_error

HEADS = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 32, "block_size": 16, "dtype": torch.float16}


@pytest.fixture
def launches(monkeypatch):
    """Every launch's grid, arguments by name and options; the kernels run all the same."""
    return record_launches(monkeypatch)


def test_contexts_of_unknown_length_count_as_half_the_longest(monkeypatch):
    seen = []
    set_choices(monkeypatch, lambda lengths: seen.append(lengths) or make_config())
    make_batch((3, 1), (20, 50), **HEADS).plan(num_kv_tokens=None)
    assert seen == [Lengths(2, 4, 3, 50, 50 + 25)]


def test_every_parameter_reaches_the_kernel(launches):
    batch = make_batch((3, 1), (20, 50), **HEADS)
    config = Config("qblock", 32, 64, num_warps=2, num_stages=3)
    config = config._replace(bypass_l1=1, max_registers=168)
    out = attn_kernels.run(batch.plan(config=config), batch.q, batch.k_cache, batch.v_cache)
    assert relative_error(out, batch.reference()) < 2e-3
    (launch,) = launches
    const = launch.arguments["const"]
    assert (const.block_m, const.tile_size, const.num_stages, const.bypass_l1) == (32, 64, 3, True)
    assert launch.options == {"num_warps": 2, "num_stages": 3, "enable_fp_fusion": True, "maxnreg": 168}


def test_options_of_each_vendor():
    config = Config("qblock", 16, 16, max_registers=96, waves_per_eu=2, matrix_size=16)
    common = {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": True}
    assert compile_options(config, "nvidia") == common | {"maxnreg": 96}
    assert compile_options(config, "amd") == common | {"waves_per_eu": 2, "matrix_instr_nonkdim": 16}
    assert compile_options(config._replace(max_registers=0), "nvidia") == common


def test_nothing_is_launched_without_query_tokens(launches):
    batch = make_batch((0, 0), (3, 0), **HEADS)
    plan = batch.plan(config=Config("qblock", 16, 16))
    assert attn_kernels.run(plan, batch.q, batch.k_cache, batch.v_cache).shape == (0, 8, 32)
    assert launches == []


def test_heads_run_together_while_their_keys_fit_the_cache():
    assert [qblock.heads_per_group(8, size, False) for size in (2**20, 4 * 2**20, 2**30)] == [8, 4, 1]
    assert qblock.heads_per_group(8, 2**30, True) == 8  # one block of queries
    assert qblock.heads_per_group(7, 4 * 2**20, False) == 1


@pytest.mark.parametrize(
    "window_size, causal, options",
    [
        ((-1, -1), True, {}),
        ((-1, -1), False, {}),
        ((4, 4), False, {"sliding_window": 5}),
        ((4, -1), False, {"sliding_window": 5, "keys_after": 1000}),
        ((-1, 3), False, {"keys_after": 3}),
        ((2, 9), False, {"sliding_window": 3, "keys_after": 9}),
        ((5, 0), False, {"sliding_window": 6, "keys_after": 0}),
    ],
)
def test_flash_attn_varlen_func(window_size, causal, options):
    """Without causality also of a sequence with more queries than keys."""
    queries, contexts = lens = ((3, 1, 0, 7), (20, 50, 3, 7)) if causal else ((9, 20), (30, 14))
    batch, options = make_batch(*lens, **HEADS), options | {"softmax_scale": 0.3, "causal": causal}
    arguments = (batch.q, batch.k_cache, batch.v_cache, max(queries), batch.cu_seqlens_q, max(contexts))
    given = {"seqused_k": batch.seqused_k, "block_table": batch.block_table, "window_size": window_size}
    given |= {"softmax_scale": 0.3, "causal": causal, "out": (out := torch.full_like(batch.q, torch.nan))}
    result, lse = attn_kernels.flash_attn_varlen_func(*arguments, **given, return_softmax_lse=True)
    expected_lse = torch.empty(lse.shape).double()
    assert result is out and relative_error(out, batch.reference(**options, lse=expected_lse)) < 2e-3
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-3, atol=1e-3)
    assert torch.equal(attn_kernels.flash_attn_varlen_func(*arguments, **given), out)


def test_every_public_name_can_be_imported():
    """When it is first used."""
    for name in attn_kernels.__all__:
        assert getattr(attn_kernels, name).__name__ == name
    assert sorted(attn_kernels.__all__) == attn_kernels.__all__

"""Every mistake gets one sentence that names the argument, what was got and what is needed."""

import pytest
import torch
from kernel_cases import FP8

import attn_kernels
from attn_kernels import Config, Model
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.testing.poisoned import make_batch

CONFIG = Config("qblock", 16, 16)


@pytest.fixture
def batch():
    return make_batch(
        (3, 1), (20, 5), num_query_heads=4, num_kv_heads=2, head_size=32, block_size=16, dtype=torch.float16
    )


def plan(batch, **changes):
    """``attn_kernels.plan`` with some arguments replaced, index tensors among them."""
    tensors = [
        changes.pop(name, getattr(batch, name)) for name in ("cu_seqlens_q", "seqused_k", "block_table")
    ]
    constants = {
        "num_query_heads": 4,
        "num_kv_heads": 2,
        "head_size": 32,
        "block_size": 16,
        "dtype": torch.float16,
        "cache_dtype": None,
    }
    model = Model(**{name: changes.pop(name, value) for name, value in constants.items()})
    arguments = {
        "model": model,
        "num_query_tokens": 4,
        "max_query_len": 3,
        "max_seq_len": 20,
        "config": CONFIG,
    }
    return attn_kernels.plan(*tensors, **(arguments | changes))


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    "changes, error, match",
    [
        (
            {"cu_seqlens_q": [0, 3, 4]},
            TypeError,
            "cu_seqlens_q is a list, but an int32 torch.Tensor is needed",
        ),
        ({"cu_seqlens_q": torch.tensor([0, 3, 4])}, TypeError, "cu_seqlens_q has dtype torch.int64"),
        (
            {"cu_seqlens_q": int32(0, 3, 4)[None]},
            ValueError,
            r"cu_seqlens_q has shape \(1, 3\), but \(any,\)",
        ),
        ({"cu_seqlens_q": int32()}, ValueError, "cu_seqlens_q is empty"),
        ({"cu_seqlens_q": int32(0, 9, 3, 9, 4, 9)[::2]}, ValueError, "cu_seqlens_q has stride 2"),
        ({"seqused_k": torch.ones(2)}, TypeError, "seqused_k has dtype torch.float32"),
        ({"seqused_k": int32(20, 5, 5)}, ValueError, r"seqused_k has shape \(3,\), but \(2,\) is needed"),
        (
            {"seqused_k": int32(20, 5).to("meta")},
            ValueError,
            "seqused_k is on meta, but cu_seqlens_q is on cpu",
        ),
        ({"block_table": int32(0, 1)}, ValueError, r"block_table has shape \(2,\), but \(2, any\) is needed"),
        ({"block_table": int32(0, 1)[None]}, ValueError, r"block_table has shape \(1, 2\)"),
        ({"block_table": torch.zeros(2, 2)}, TypeError, "block_table has dtype torch.float32"),
        ({"block_table": torch.zeros(2, 2, dtype=torch.int32).T}, ValueError, "block_table has stride 2"),
        ({"num_query_tokens": -1}, ValueError, "num_query_tokens is -1, but at least 0 is needed"),
        (
            {"max_query_len": torch.tensor(3)},
            TypeError,
            "max_query_len is a Tensor, but a plain int is needed",
        ),
        ({"max_query_len": 5}, ValueError, "max_query_len is 5, but num_query_tokens is only 4"),
        ({"max_query_len": 1}, ValueError, "num_query_tokens is 4, but 2 sequences of at most"),
        ({"max_seq_len": 49}, ValueError, "max_seq_len is 49, but block_table holds 3 blocks of 16 tokens"),
        ({"max_seq_len": 2}, ValueError, "max_query_len is 3, but max_seq_len is only 2"),
        ({"num_kv_tokens": -1}, ValueError, "num_kv_tokens is -1"),
        ({"num_query_heads": 5}, ValueError, r"num_query_heads is 5, but a multiple of num_kv_heads \(2\)"),
        ({"num_kv_heads": 0}, ValueError, "num_kv_heads is 0, but at least 1 is needed"),
        ({"head_size": 0}, ValueError, "head_size is 0, but at least 1 is needed"),
        ({"head_size": 257}, ValueError, "head_size is 257, but at most 256 is supported"),
        ({"block_size": 0}, ValueError, "block_size is 0, but at least 1 is needed"),
        (
            {"cache_dtype": torch.int8},
            TypeError,
            "cache_dtype is torch.int8, but torch.float16 or torch.float8",
        ),
        ({"model": (4, 2, 32)}, TypeError, "model is a tuple, but an attn_kernels.Model is needed"),
        ({"dtype": "float16"}, TypeError, "dtype is 'float16', but torch.float16 or torch.bfloat16"),
        ({"cache_dtype": "fp8"}, TypeError, "cache_dtype is 'fp8', but torch.float16 or torch.float8_e4m3fn"),
        ({"dtype": torch.float32}, TypeError, "dtype is torch.float32, but torch.float16 or torch.bfloat16"),
        (
            {"config": CONFIG._replace(variant="magic")},
            ValueError,
            "config.variant is 'magic', but the variants are",
        ),
        ({"config": "qblock_M64_T32_W4_S2"}, TypeError, "an object with variant, block_m and tile_size"),
        ({"workspace": 5}, TypeError, "workspace is a int, but an attn_kernels.Workspace is needed"),
        ({"config": CONFIG._replace(block_m=48)}, ValueError, "config.block_m is 48, but a power of two"),
        ({"config": CONFIG._replace(block_m=8)}, ValueError, "config.block_m is 8, but a power of two"),
        ({"config": CONFIG._replace(tile_size=0)}, ValueError, "config.tile_size is 0, but a power of two"),
        ({"config": CONFIG._replace(num_warps=3)}, ValueError, "config.num_warps is 3, but a power of two"),
        ({"config": CONFIG._replace(num_stages=0)}, ValueError, "config.num_stages is 0, but at least 1"),
        (
            {"config": CONFIG._replace(num_segments=4)},
            ValueError,
            "config.num_segments is 4, but qblock has no such parameter",
        ),
        (
            {"config": CONFIG._replace(variant="naive")},
            ValueError,
            "config.block_m is 16, but 1 is needed by",
        ),
        ({"device_key": "nvidia_h100"}, ValueError, "device_key is 'nvidia_h100', but config was given too"),
    ],
)
def test_plan_arguments(batch, changes, error, match):
    with pytest.raises(error, match=match):
        plan(batch, **changes)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"cu_seqlens_q": int32(1, 3, 4)}, "cu_seqlens_q begins with 1, but 0 is needed"),
        ({"cu_seqlens_q": int32(0, 5, 4)}, "cu_seqlens_q decreases from 5 to 4 at sequence 1"),
        ({"cu_seqlens_q": int32(0, 3, 5)}, "cu_seqlens_q ends with 5, but num_query_tokens is 4"),
        (
            {"cu_seqlens_q": int32(0, 4, 4)},
            "cu_seqlens_q gives sequence 0 4 query tokens, but max_query_len is 3",
        ),
        ({"seqused_k": int32(20, 0)}, "seqused_k is 0 for sequence 1, but it has 1 query tokens"),
        ({"seqused_k": int32(21, 5)}, "seqused_k is 21 for sequence 0, but max_seq_len is 20"),
        ({"block_table": int32(0, -7, 0, 0).view(2, 2)}, r"block_table holds page id -7 at \[0, 1\]"),
    ],
)
def test_contents_of_index_tensors(batch, changes, match):
    with pytest.raises(ValueError, match=match):
        plan(batch, **changes)
    assert plan(batch, **changes, check=False).max_page_id is None


def test_contents_are_checked_wherever_torch_makes_tensors(batch):
    """A server has the GPU as torch's default device."""
    expected = plan(batch).max_page_id
    with torch.device("meta"):
        assert plan(batch).max_page_id == expected


def test_page_ids_outside_the_cache_are_refused_at_launch(batch):
    pages = len(batch.k_cache)
    table = batch.block_table.clone()
    table[1, 0] = pages
    with pytest.raises(
        ValueError, match=f"block_table uses page id {pages}, but k_cache holds only {pages} pages"
    ):
        attn_kernels.run(plan(batch, block_table=table), batch.q, batch.k_cache, batch.v_cache)


@pytest.mark.parametrize(
    "name, change, error, match",
    [
        ("q", lambda q: q[1:], ValueError, r"q has shape \(3, 4, 32\), but \(4, 4, 32\) is needed"),
        (
            "q",
            lambda q: q.float(),
            TypeError,
            "q has dtype torch.float32, but torch.float16 is needed",
        ),
        ("q", lambda q: q.to("meta"), ValueError, "q is on meta, but the plan was made for cpu"),
        (
            "q",
            lambda q: q.mT.contiguous().mT,
            ValueError,
            "q has stride 4 in its last dimension, but 1 is needed",
        ),
        (
            "k_cache",
            lambda k: k[:, :8],
            ValueError,
            r"k_cache has shape \(5, 8, 2, 32\), but \(5, 16, 2, 32\)",
        ),
        ("k_cache", lambda k: k[:, :, :1], ValueError, r"k_cache has shape \(5, 16, 1, 32\)"),
        ("k_cache", lambda k: k[0], ValueError, r"k_cache has shape \(16, 2, 32\)"),
        ("k_cache", lambda k: k.bfloat16(), TypeError, "k_cache has dtype torch.bfloat16"),
        ("v_cache", lambda v: v[1:], ValueError, r"v_cache has shape \(4, 16, 2, 32\), but \(5, 16, 2, 32\)"),
        ("v_cache", lambda v: v.to("meta"), ValueError, "v_cache is on meta"),
        ("v_cache", lambda v: v.mT.contiguous().mT, ValueError, "v_cache has stride 2 in its last dimension"),
        (
            "out",
            lambda out: out[:, :2],
            ValueError,
            r"out has shape \(4, 2, 32\), but \(4, 4, 32\) is needed",
        ),
        (
            "out",
            lambda out: out.float(),
            TypeError,
            "out has dtype torch.float32, but torch.float16 is needed",
        ),
        ("out", lambda out: out.to("meta"), ValueError, "out is on meta, but the plan was made for cpu"),
        (
            "k_cache",
            lambda k: k.to(FP8),
            TypeError,
            "v_cache has dtype torch.float16, but torch.float8_e4m3fn is needed",
        ),
        (
            "v_cache",
            lambda v: v.to(FP8),
            TypeError,
            "v_cache has dtype torch.float8_e4m3fn, but torch.float16 is needed",
        ),
        (
            "k_cache",
            lambda k: k.to(torch.float8_e5m2),
            TypeError,
            "k_cache has dtype torch.float8_e5m2, but torch.float16 is needed",
        ),
        ("out", lambda out: out.mT.contiguous().mT, ValueError, "out has stride 4 in its last dimension"),
        ("out", lambda out: out[:1].expand(out.shape), ValueError, "out has strides .*, but elements of its"),
    ],
)
def test_run_arguments(batch, name, change, error, match):
    tensors = {
        "q": batch.q,
        "k_cache": batch.k_cache,
        "v_cache": batch.v_cache,
        "out": torch.empty_like(batch.q),
    }
    tensors[name] = change(tensors[name])
    with pytest.raises(error, match=match):
        attn_kernels.run(plan(batch), **tensors)


def test_strides_that_overflow_inside_a_tile(batch):
    far = torch.empty_strided((4, 4, 32), (2**28, 32, 1), dtype=torch.float16)  # reserved, never touched
    with pytest.raises(
        ValueError, match=r"q has strides .*, which reach past 2\^31 elements inside one tile"
    ):
        attn_kernels.run(plan(batch), far, batch.k_cache, batch.v_cache)


NOT_POSITIVE = "but a positive finite number is needed"


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"softmax_scale": 0.0}, ValueError, f"softmax_scale is 0.0, {NOT_POSITIVE}"),
        ({"softmax_scale": -1.0}, ValueError, f"softmax_scale is -1.0, {NOT_POSITIVE}"),
        ({"softmax_scale": float("nan")}, ValueError, f"softmax_scale is nan, {NOT_POSITIVE}"),
        ({"softmax_scale": float("inf")}, ValueError, f"softmax_scale is inf, {NOT_POSITIVE}"),
        ({"softmax_scale": "1"}, TypeError, "softmax_scale is a str, but a number is needed"),
        ({"softmax_scale": torch.ones(1)}, TypeError, "softmax_scale is a Tensor, but a number is needed"),
        ({"sliding_window": 0}, ValueError, "sliding_window is 0, but at least 1 is needed"),
        ({"sliding_window": -1}, ValueError, "sliding_window is -1, but at least 1 is needed"),
        ({"sliding_window": 1.5}, TypeError, "sliding_window is a float, but a plain int is needed"),
        ({"sliding_window": (4, 0)}, TypeError, "sliding_window is a tuple, but a plain int is needed"),
        ({"softcap": -1.0}, ValueError, f"softcap is -1.0, {NOT_POSITIVE}"),
        ({"softcap": float("nan")}, ValueError, f"softcap is nan, {NOT_POSITIVE}"),
        ({"softcap": float("inf")}, ValueError, f"softcap is inf, {NOT_POSITIVE}"),
        ({"softcap": None}, TypeError, "softcap is a NoneType, but a number is needed"),
        ({"alibi_slopes": torch.ones(2)}, ValueError, "alibi_slopes has shape (2,), but (4,) is needed"),
        ({"alibi_slopes": torch.ones(4, 1)}, ValueError, "alibi_slopes has shape (4, 1), but (4,) is needed"),
        (
            {"alibi_slopes": torch.ones(4).half()},
            TypeError,
            "alibi_slopes has dtype torch.float16, but torch.float32 is needed",
        ),
        (
            {"alibi_slopes": torch.ones(4, device="meta")},
            ValueError,
            "alibi_slopes is on meta, but the plan was made for cpu",
        ),
        ({"alibi_slopes": torch.ones(8)[::2]}, ValueError, "alibi_slopes has stride 2, but 1 is needed"),
        ({"sinks": torch.ones(3)}, ValueError, "sinks has shape (3,), but (4,) is needed"),
        (
            {"sinks": torch.ones(4).bfloat16()},
            TypeError,
            "sinks has dtype torch.bfloat16, but torch.float32 or torch.float16 is needed",
        ),
        (
            {"sinks": torch.ones(4, device="meta")},
            ValueError,
            "sinks is on meta, but the plan was made for cpu",
        ),
        ({"sinks": torch.ones(8)[::2]}, ValueError, "sinks has stride 2, but 1 is needed"),
        ({"k_scale": 0.0}, ValueError, f"k_scale is 0.0, {NOT_POSITIVE}"),
        ({"v_scale": -2.0}, ValueError, f"v_scale is -2.0, {NOT_POSITIVE}"),
        ({"k_scale": None}, TypeError, "k_scale is a NoneType, but a number is needed"),
        ({"k_scale": torch.ones(2)}, ValueError, "k_scale has shape (2,), but one element is needed"),
        ({"v_scale": torch.ones(0)}, ValueError, "v_scale has shape (0,), but one element is needed"),
        (
            {"v_scale": torch.ones(1).double()},
            TypeError,
            "v_scale has dtype torch.float64, but torch.float32 is needed",
        ),
        (
            {"k_scale": torch.ones(1, device="meta")},
            ValueError,
            "k_scale is on meta, but the plan was made for cpu",
        ),
    ],
)
def test_scores_and_scales(batch, options, error, message):
    with pytest.raises(error) as caught:
        attn_kernels.run(plan(batch), batch.q, batch.k_cache, batch.v_cache, **options)
    assert str(caught.value) == message


def varlen(batch, **changes):
    arguments = {"q": batch.q, "k": batch.k_cache, "v": batch.v_cache, "max_seqlen_q": 3, "max_seqlen_k": 20}
    arguments |= {name: getattr(batch, name) for name in ("cu_seqlens_q", "seqused_k", "block_table")}
    return attn_kernels.flash_attn_varlen_func(**(arguments | changes))


def test_varlen_arguments(batch):
    with pytest.raises(
        NotImplementedError, match="causal is False, but only causal attention is implemented"
    ):
        varlen(batch, causal=False)
    with pytest.raises(
        ValueError, match=r"q has shape \(4, 32\), but \(num_query_tokens, num_query_heads, head_size\)"
    ):
        varlen(batch, q=batch.q[:, 0])
    with pytest.raises(
        ValueError, match=r"k has shape .*, but \(num_blocks, block_size, num_kv_heads, head_size\)"
    ):
        varlen(batch, k=batch.k_cache.flatten(0, 1))


def test_varlen_computes_no_gradient(batch):
    q = batch.q.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="q requires a gradient"):
        varlen(batch, q=q)
    with torch.no_grad():
        varlen(batch, q=q)


@pytest.mark.parametrize(
    "changes, error, match",
    [
        ({"window_size": 5}, ValueError, "window_size is 5, but a tuple of two integers is needed"),
        ({"window_size": ("a", 0)}, ValueError, r"window_size is \('a', 0\), but a tuple of two integers"),
        ({"window_size": (3.5, 0)}, ValueError, r"window_size is \(3.5, 0\), but a tuple of two integers"),
        ({"q": [1]}, TypeError, "q is a list, but a torch.Tensor is needed"),
        ({"k": None}, TypeError, "k is a NoneType, but a torch.Tensor is needed"),
        ({"window_size": (-2, -1)}, ValueError, r"window_size is \(-2, -1\), but"),
        ({"window_size": (3, 2)}, NotImplementedError, "causal attention sees no later keys"),
        ({"k_descale": torch.ones(2, 2)}, ValueError, r"k_descale has shape \(2, 2\), but one element"),
        ({"v_descale": torch.ones(2)}, ValueError, r"v_descale has shape \(2,\), but one element"),
    ],
)
def test_varlen_windows_and_scales(batch, changes, error, match):
    with pytest.raises(error, match=match):
        varlen(batch, **changes)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "out", "alibi_slopes", "sinks"])
def test_what_is_no_tensor(batch, name):
    arguments = {"q": batch.q, "k_cache": batch.k_cache, "v_cache": batch.v_cache, name: [1.0]}
    with pytest.raises(TypeError, match=f"^{name} is a list, but a torch.Tensor is needed$"):
        attn_kernels.run(plan(batch), **arguments)


@pytest.mark.parametrize("wrong", [None, 5])
def test_what_is_no_plan(batch, wrong):
    with pytest.raises(TypeError, match=f"^plan is a {type(wrong).__name__}, but what attn_kernels.plan ret"):
        attn_kernels.run(wrong, batch.q, batch.k_cache, batch.v_cache)


@pytest.mark.parametrize("wrong, error", [([], ValueError), ("m", TypeError), ([5], TypeError)])
def test_what_is_no_model(wrong, error):
    with pytest.raises(error, match=r"^models "):
        attn_kernels.Workspace.for_maxima("cpu", wrong, max_query_tokens=1, max_num_seqs=1, configs=[CONFIG])
    with pytest.raises(error, match=r"^models "):
        attn_kernels.compile_ahead("cpu", wrong)


def test_a_refused_config_is_not_remembered(batch):
    with pytest.raises(TypeError, match=r"^config.block_m is 16.0, but a plain int is needed$"):
        plan(batch, config=CONFIG._replace(block_m=16.0))
    out = attn_kernels.run(plan(batch), batch.q, batch.k_cache, batch.v_cache)
    assert not out.isnan().any()


def test_heads_far_apart_are_no_reason_to_refuse(batch):
    """Queries [heads, tokens, size], transposed: a tile reaches over few heads."""
    far = torch.empty_strided((4, 4, 32), (32, 2**24, 1), dtype=torch.float16)  # reserved, hardly touched
    far.copy_(batch.q)
    out = attn_kernels.run(plan(batch), far, batch.k_cache, batch.v_cache)
    assert torch.equal(out, attn_kernels.run(plan(batch), batch.q, batch.k_cache, batch.v_cache))


def test_the_cpu_needs_the_interpreter(batch, monkeypatch):
    monkeypatch.setattr("attn_kernels.launch.direct.JITFunction", type(VARIANTS["qblock"].kernels[0]))
    with pytest.raises(ValueError, match="q is on cpu, but a GPU is needed"):
        attn_kernels.run(plan(batch), batch.q, batch.k_cache, batch.v_cache)

"""Every mistake is refused in one line that names the argument."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FP8

import attn_kernels
from attn_kernels import Config, Model
from attn_kernels.choose.choices import checked
from attn_kernels.core.layer_checks import check_apart
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.testing.poisoned import make_batch

CONFIG = Config("qblock", 16, 16)
MODEL = Model(4, 2, 32, 16, torch.float16)


@pytest.fixture
def batch():
    return make_batch(
        (3, 1), (20, 5), num_query_heads=4, num_kv_heads=2, head_size=32, block_size=16, dtype=torch.float16
    )


@pytest.fixture
def refused():
    """A context manager: an error of this type, whose one line begins with a name."""

    def expecting(error, name):
        return pytest.raises(error, match=rf"\A{name}\b.*\Z")

    return expecting


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
        "causal": True,
    }
    model = Model(**{name: changes.pop(name, value) for name, value in constants.items()})
    lengths = {"num_query_tokens": 4, "max_query_len": 3, "max_seq_len": 20}
    return attn_kernels.plan(*tensors, **({"model": model, "config": CONFIG} | lengths | changes))


def run(batch, **changes):
    arguments = {"q": batch.q, "k_cache": batch.k_cache, "v_cache": batch.v_cache}
    return attn_kernels.run(plan(batch), **(arguments | changes))


def varlen(batch, **changes):
    arguments = {"q": batch.q, "k": batch.k_cache, "v": batch.v_cache, "max_seqlen_q": 3, "max_seqlen_k": 20}
    arguments |= {name: getattr(batch, name) for name in ("cu_seqlens_q", "seqused_k", "block_table")}
    return attn_kernels.flash_attn_varlen_func(**(arguments | changes))


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("cu_seqlens_q", [0, 3, 4], TypeError),
        ("cu_seqlens_q", torch.tensor([0, 3, 4]), TypeError),
        ("cu_seqlens_q", int32(0, 3, 4)[None], ValueError),
        ("cu_seqlens_q", int32(), ValueError),
        ("cu_seqlens_q", int32(0, 9, 3, 9, 4, 9)[::2], ValueError),
        ("cu_seqlens_q", int32(0, 3, 4).to("meta"), ValueError),
        ("seqused_k", torch.ones(2), TypeError),
        ("seqused_k", int32(20, 5, 5), ValueError),
        ("seqused_k", int32(20, 5).to("meta"), ValueError),
        ("block_table", int32(0, 1), ValueError),
        ("block_table", int32(0, 1)[None], ValueError),
        ("block_table", torch.zeros(2, 2), TypeError),
        ("block_table", torch.zeros(2, 2, dtype=torch.int32).T, ValueError),
        ("num_query_tokens", -1, ValueError),
        ("max_query_len", torch.tensor(3), TypeError),
        ("max_query_len", 5, ValueError),
        ("max_seq_len", 49, ValueError),
        ("max_seq_len", 2**30, ValueError),
        ("num_query_tokens", 2**30, ValueError),
        ("num_kv_tokens", -1, ValueError),
        ("num_kv_tokens", False, TypeError),
        ("num_kv_tokens", torch.tensor(25, device="meta"), TypeError),  # without reading it
        ("num_query_heads", 5, ValueError),
        ("num_kv_heads", 0, ValueError),
        ("head_size", 0, ValueError),
        ("head_size", 513, ValueError),
        ("block_size", 0, ValueError),
        ("cache_dtype", torch.int8, TypeError),
        ("cache_dtype", "fp8", TypeError),
        ("model", (4, 2, 32), TypeError),
        ("dtype", "float16", TypeError),
        ("dtype", torch.float32, TypeError),
        ("causal", 1, TypeError),
        ("config", "qblock_M64_T32_W4_S2", TypeError),
        ("config", Config("qblock", 48, 16), ValueError),
        ("workspace", 5, TypeError),
        ("device_key", "nvidia_h100", ValueError),  # beside a config
    ],
)
def test_arguments_of_plan(batch, name, value, error, refused):
    with refused(error, name):
        plan(batch, **{name: value})


@pytest.mark.parametrize("name, value", [("max_query_len", 1), ("max_seq_len", 2)])
def test_lengths_that_contradict_each_other(batch, name, value):
    """More tokens than the sequences hold; a query that is longer than its context."""
    with pytest.raises(ValueError, match=name):
        plan(batch, **{name: value})


def test_a_float_in_a_config_never_reaches_a_kernel(batch, refused):
    """Not even where it equals the integer of a config that was planned before."""
    floats = CONFIG._replace(block_m=16.0)
    checked.cache_clear()
    with refused(TypeError, "config.block_m"):
        plan(batch, config=floats)
    plan(batch)
    assert type(plan(batch, config=floats).config.block_m) is int


@pytest.mark.parametrize(
    "name, value",
    [
        ("cu_seqlens_q", int32(1, 3, 4)),
        ("cu_seqlens_q", int32(0, 5, 4)),
        ("cu_seqlens_q", int32(0, 3, 5)),
        ("cu_seqlens_q", int32(0, 4, 4)),
        ("seqused_k", int32(20, 0)),
        ("seqused_k", int32(21, 5)),
        ("block_table", int32(0, -7, 0, 0).view(2, 2)),
    ],
)
def test_contents_of_index_tensors(batch, name, value, refused):
    with refused(ValueError, name):
        plan(batch, **{name: value})
    assert plan(batch, **{name: value}, check=False).batch.max_page_id is None


def test_contents_are_checked_wherever_torch_makes_tensors(batch):
    """A server has the GPU as torch's default device."""
    expected = plan(batch).batch.max_page_id
    with torch.device("meta"):
        assert plan(batch).batch.max_page_id == expected


def test_page_ids_outside_the_cache_are_refused_at_launch(batch, refused):
    table = batch.block_table.clone()
    table[1, 0] = len(batch.k_cache)
    with refused(ValueError, "block_table"):
        attn_kernels.run(plan(batch, block_table=table), batch.q, batch.k_cache, batch.v_cache)


@pytest.mark.parametrize(
    "name, change, error",
    [
        ("q", lambda q: q[1:], ValueError),
        ("q", lambda q: q.float(), TypeError),
        ("q", lambda q: q.to("meta"), ValueError),
        ("q", lambda q: q.mT.contiguous().mT, ValueError),
        ("k_cache", lambda k: k[:, :8], ValueError),
        ("k_cache", lambda k: k[:, :, :1], ValueError),
        ("k_cache", lambda k: k[0], ValueError),
        ("k_cache", lambda k: k.bfloat16(), TypeError),
        ("k_cache", lambda k: k.to(torch.float8_e5m2), TypeError),
        ("v_cache", lambda v: v[1:], ValueError),
        ("v_cache", lambda v: v.to("meta"), ValueError),
        ("v_cache", lambda v: v.mT.contiguous().mT, ValueError),
        ("v_cache", lambda v: v.to(FP8), TypeError),
        ("out", lambda out: out[:, :2], ValueError),
        ("out", lambda out: out.float(), TypeError),
        ("out", lambda out: out.to("meta"), ValueError),
        ("out", lambda out: out.mT.contiguous().mT, ValueError),
        ("out", lambda out: out[:1].expand(out.shape), ValueError),  # rows that share memory
        # Strides that overflow inside a tile; the memory is reserved, and never touched.
        ("q", lambda q: torch.empty_strided((4, 4, 32), (2**28, 32, 1), dtype=q.dtype), ValueError),
    ],
)
def test_tensors_of_run(batch, name, change, error, refused):
    tensor = torch.empty_like(batch.q) if name == "out" else getattr(batch, name)
    with refused(error, name):
        run(batch, **{name: change(tensor)})


def test_caches_of_two_dtypes(batch, refused):
    with refused(TypeError, "v_cache"):
        run(batch, k_cache=batch.k_cache.to(FP8))


@pytest.mark.parametrize(
    "name, value, error",
    [
        *(("softmax_scale", value, ValueError) for value in (0.0, -1.0, float("nan"), float("inf"))),
        ("softmax_scale", "1", TypeError),
        ("softmax_scale", torch.ones(1), TypeError),
        ("sliding_window", 0, ValueError),
        ("sliding_window", 1.5, TypeError),
        ("sliding_window", (4, 0), TypeError),
        ("causal", 0, TypeError),
        ("causal", None, TypeError),
        ("keys_after", 1, ValueError),  # in causal attention
        ("keys_after", -1, ValueError),
        ("keys_after", 1.0, TypeError),
        ("softcap", -1.0, ValueError),
        ("softcap", float("nan"), ValueError),
        ("softcap", None, TypeError),
        ("alibi_slopes", torch.ones(2), ValueError),
        ("lse", torch.ones(4), ValueError),
        ("lse", torch.ones(4, 5), ValueError),
        ("lse", torch.ones(4, 4).double(), TypeError),
        ("lse", torch.ones(4, 4).tolist(), TypeError),
        ("lse", torch.ones(4, 4, device="meta"), ValueError),
        ("lse", torch.ones(4, 8)[:, :4], ValueError),
        ("lse", torch.ones(1, 4).expand(4, 4), ValueError),
        ("alibi_slopes", torch.ones(4).half(), TypeError),
        ("alibi_slopes", torch.ones(4, device="meta"), ValueError),
        ("alibi_slopes", torch.ones(8)[::2], ValueError),
        ("sinks", torch.ones(3), ValueError),
        ("sinks", torch.ones(4).bfloat16(), TypeError),
        ("sinks", torch.ones(8)[::2], ValueError),
        ("k_scale", 0.0, ValueError),
        ("k_scale", None, TypeError),
        ("k_scale", torch.ones(2), ValueError),
        ("k_scale", torch.ones(1, device="meta"), ValueError),
        ("v_scale", torch.ones(0), ValueError),
        ("v_scale", torch.ones(1).double(), TypeError),
        *(
            ("bidirectional_ranges", value, error)
            for value, error in [
                ([[(0, 3)]], TypeError),
                ([], TypeError),
                (torch.zeros(2, 1, 2), TypeError),
                (torch.zeros(2, 2).int(), ValueError),
                (torch.zeros(2, 1, 3).int(), ValueError),
                (torch.zeros(3, 1, 2).int(), ValueError),
                (torch.zeros(2, 4, 2).int()[:, ::2], ValueError),
                (torch.zeros(2, 1, 2, device="meta").int(), ValueError),
            ]
        ),
        *((name, [1.0], TypeError) for name in ("q", "k_cache", "v_cache", "out", "alibi_slopes", "sinks")),
    ],
)
def test_options_of_run(batch, name, value, error, refused):
    with refused(error, name):
        run(batch, **{name: value})


@pytest.mark.parametrize("wrong", [None, 5])
def test_something_else_in_place_of_a_plan(batch, wrong, refused):
    with refused(TypeError, "plan"):
        attn_kernels.run(wrong, batch.q, batch.k_cache, batch.v_cache)


@pytest.mark.parametrize("wrong, error", [([], ValueError), ("m", TypeError), ([5], TypeError)])
def test_something_else_in_place_of_models(wrong, error, refused):
    with refused(error, "models"):
        attn_kernels.Workspace.for_maxima("cpu", wrong, max_query_tokens=1, max_num_seqs=1, configs=[CONFIG])
    with refused(error, "models"):
        attn_kernels.compile_ahead("cpu", wrong)


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("causal", None, TypeError),
        ("window_size", 5, ValueError),
        ("window_size", (3.5, 0), ValueError),
        ("window_size", (-2, -1), ValueError),
        ("window_size", (3, 2), ValueError),
        ("window_size", (3, -2), ValueError),
        ("q", [1], TypeError),
        ("q", torch.zeros(4, 32), ValueError),
        ("k", None, TypeError),
        ("k", torch.zeros(80, 2, 32), ValueError),
        ("k_descale", torch.ones(2, 2), ValueError),
        ("v_descale", torch.ones(2), ValueError),
    ],
)
def test_arguments_of_varlen(batch, name, value, error, refused):
    with refused(error, name):
        varlen(batch, **{name: value})


@pytest.mark.parametrize(
    "name", ["q", "k_cache", "v_cache", "out", "sinks", "alibi_slopes", "k_scale", "lse"]
)
def test_no_gradient_is_computed(batch, name, refused):
    given = {"sinks": torch.zeros(4), "alibi_slopes": torch.zeros(4), "k_scale": torch.ones(1)}
    given |= {"out": torch.empty_like(batch.q), "lse": torch.empty(4, 4)}
    tensor = given.get(name, getattr(batch, name, None)).clone().requires_grad_()
    with refused(NotImplementedError, name):
        run(batch, **{name: tensor})
    with torch.no_grad():
        run(batch, **{name: tensor})


def test_devices_of_no_kernel(batch, refused):
    with refused(ValueError, "device"):
        attn_kernels.compile_ahead("meta", MODEL)
    with refused(ValueError, "device"):
        attn_kernels.Workspace.for_maxima("meta", MODEL, max_query_tokens=1, max_num_seqs=1)
    out, lse = torch.empty(4, 2, 16, device="meta").half(), torch.empty(2, 4, device="meta")
    with refused(ValueError, "out_a"):
        attn_kernels.merge_attention_states(out, lse, out, lse)


def test_gradients_and_memory_of_merged_states(refused):
    memory, sums = torch.zeros(5, 2, 16).half(), torch.zeros(2, 5)
    states = memory[:4], sums[:, :4], torch.zeros(4, 2, 16).half(), torch.zeros(2, 4)
    for name, place in (("out_b", 2), ("lse_a", 1)):
        needing = [state.clone().requires_grad_(number == place) for number, state in enumerate(states)]
        with refused(NotImplementedError, name):
            attn_kernels.merge_attention_states(*needing)
    with refused(ValueError, "out"):
        attn_kernels.merge_attention_states(*states, out=memory[1:])
    with refused(ValueError, "lse"):
        attn_kernels.merge_attention_states(*states, lse=sums[:, 1:])
    attn_kernels.merge_attention_states(*states, out=memory[:4], lse=sums[:, :4])


def test_outputs_that_overlap_other_tensors(batch, refused):
    """In the cache of launches, too: the second call has the first one's signature."""
    memory = torch.zeros(9, 4, 32).half()
    step, caches = plan(batch), (batch.k_cache, batch.v_cache)
    q = memory[:4].copy_(batch.q)
    expected = attn_kernels.run(step, q, *caches, out=memory[4:8]).clone()
    for out in (q, memory[3:7]):
        with refused(ValueError, "out"):
            attn_kernels.run(step, q, *caches, out=out)
    with refused(ValueError, "out"):
        attn_kernels.run(step, q, *caches, out=caches[0].view(-1, 4, 32)[:4])
    with refused(ValueError, "lse"):
        attn_kernels.run(step, q, *caches, lse=memory.view(-1)[:32].view(torch.float32).view(4, 4))
    fused = torch.zeros(4, 8, 32).half()  # queries and outputs side by side
    fused[:, :4] = batch.q
    assert torch.equal(attn_kernels.run(step, fused[:, :4], *caches, out=fused[:, 4:]), expected)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_tensors_that_may_overlap(data):
    """Those that share an element never pass."""
    memory = torch.arange(300, dtype=torch.int16)

    def draw(strides):
        start = data.draw(st.integers(0, 40))
        shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
        return memory.as_strided(shape, strides, start)

    strides = st.tuples(st.sampled_from([1, 8, 12, 20]), st.sampled_from([1, 3, 4, 20]), st.just(1))
    first, second = (draw(data.draw(strides)) for _ in range(2))
    overlap = set(first.flatten().tolist()) & set(second.flatten().tolist())
    refused = pytest.raises(ValueError) if overlap else suppress(ValueError)
    with refused:
        check_apart("first", first, "second", second)


def test_heads_far_apart_are_no_reason_to_refuse(batch):
    """Queries [heads, tokens, size], transposed: a tile reaches over few heads."""
    far = torch.empty_strided((4, 4, 32), (32, 2**24, 1), dtype=torch.float16)  # reserved, hardly touched
    far.copy_(batch.q)
    assert torch.equal(run(batch, q=far), run(batch))


def test_the_cpu_needs_the_interpreter(batch, monkeypatch, refused):
    monkeypatch.setattr("attn_kernels.launch.direct.JITFunction", type(VARIANTS["qblock"].kernels[0]))
    with refused(ValueError, "q"):
        run(batch)

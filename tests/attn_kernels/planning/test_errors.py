"""Every mistake is refused in one line that names the argument."""

from contextlib import suppress
from types import FunctionType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FP8, random_batch
from launch_recorder import layer_of

import attn_kernels
from attn_kernels import Config, Lengths, Model, Parts
from attn_kernels.choose.choices import checked
from attn_kernels.choose.mixed import SEPARATE, SINGLE
from attn_kernels.core.layer_checks import check_apart
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.testing.poisoned import make_batch

CONFIG = Config("qblock", 16, 16)
MODEL = {"num_query_heads": 4, "num_kv_heads": 2, "head_size": 32, "block_size": 16, "dtype": torch.float16}
MAXIMA = {"max_query_tokens": 9, "max_num_seqs": 4}
PARTS = Parts(Lengths(1, 3, 3, 20, 20), Lengths(1, 9, 9, 12, 12))  # of sequences (3, 9) in (20, 12) keys
POD = Config("pod", 128, 64, num_stages=3)


@pytest.fixture
def batch():
    return make_batch((3, 1), (20, 5), **MODEL)


def refused(error, name):
    """A context of an error of this type, whose one line begins with a name."""
    return pytest.raises(error, match=rf"\A{name}\b.*\Z")


def plan(batch, **changes):
    """``attn_kernels.plan`` with some arguments replaced, index tensors and those of the model among them."""
    index = ("cu_seqlens_q", "seqused_k", "block_table")
    tensors = [changes.pop(name, getattr(batch, name)) for name in index]
    constants = MODEL | {"cache_dtype": None, "causal": True, "sliding_window": None}
    constants |= {"batch_invariant": False, "fp8_queries": False}
    model = Model(**{name: changes.pop(name, value) for name, value in constants.items()})
    lengths = {"num_query_tokens": 4, "max_query_len": 3, "max_seq_len": 20}
    return attn_kernels.plan(*tensors, **({"model": model, "config": CONFIG} | lengths | changes))


def plan_in_parts(batch, **changes):
    """Parts are checked even where a config makes them useless."""
    batch = random_batch(((3, 9), (20, 12)), kv_heads=2)
    return batch.plan(**({"parts": PARTS, "config": CONFIG, "check": False} | changes))


def varlen(batch, **changes):
    arguments = {"q": batch.q, "k": batch.k_cache, "v": batch.v_cache, "max_seqlen_q": 3, "max_seqlen_k": 20}
    arguments |= {name: getattr(batch, name) for name in ("cu_seqlens_q", "seqused_k", "block_table")}
    return attn_kernels.flash_attn_varlen_func(**(arguments | changes))


def merge(batch, **changes):
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name in ("_a", "_b", ""):
        tensors[f"out{name}"] = torch.randn(4, 2, 16, generator=generator).half()
        tensors[f"lse{name}"] = torch.randn(2, 4, generator=generator)
    given = {
        n: change(tensors[n]) if isinstance(change, FunctionType) else change for n, change in changes.items()
    }
    return attn_kernels.merge_attention_states(**(tensors | given))


def workspace(batch, device="cpu", models=None, **changes):
    models = Model(**MODEL) if models is None else models
    return attn_kernels.Workspace.for_maxima(device, models, **(MAXIMA | changes))


def ahead(batch, device="cpu", models=None, config=CONFIG, **how):
    models = Model(**MODEL) if models is None else models
    return attn_kernels.compile_ahead(device, models, configs=[config], **how)


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def part(name, **lengths):
    return PARTS._replace(**{name: getattr(PARTS, name)._replace(**lengths)})


MISTAKES = [
    (plan, TypeError, "cu_seqlens_q", [[0, 3, 4], torch.tensor([0, 3, 4])]),
    (plan, ValueError, "cu_seqlens_q", [int32(0, 3, 4)[None], int32(), int32(0, 3, 4).to("meta")]),
    (plan, ValueError, "cu_seqlens_q", [int32(0, 9, 3, 9, 4, 9)[::2]]),
    (plan, TypeError, "seqused_k", [torch.ones(2)]),
    (plan, ValueError, "seqused_k", [int32(20, 5, 5), int32(20, 5).to("meta")]),
    (plan, TypeError, "block_table", [torch.zeros(2, 2)]),
    (plan, ValueError, "block_table", [int32(0, 1), int32(0, 1)[None], torch.zeros(2, 2).int().T]),
    (plan, ValueError, "num_query_tokens", [-1, 2**30]),
    (plan, TypeError, "max_query_len", [torch.tensor(3)]),
    (plan, ValueError, "max_query_len", [5]),
    (plan, ValueError, "max_seq_len", [49, 2**30]),
    (plan, TypeError, "num_kv_tokens", [False, torch.tensor(25, device="meta")]),  # without reading it
    (plan, ValueError, "num_kv_tokens", [-1]),
    (plan, ValueError, "num_query_heads", [5]),
    (plan, ValueError, "num_kv_heads", [0]),
    (plan, ValueError, "head_size", [0, 513]),
    (plan, ValueError, "block_size", [0]),
    (plan, TypeError, "cache_dtype", [torch.int8, "fp8"]),
    (plan, TypeError, "dtype", ["float16", torch.float32]),
    (plan, TypeError, "causal", [1]),
    (plan, TypeError, "batch_invariant", ["false", 0]),
    (plan, TypeError, "fp8_queries", [None]),
    (plan, TypeError, "sliding_window", [8.0, True]),
    (plan, ValueError, "sliding_window", [0, -1]),
    (plan, TypeError, "model", [(4, 2, 32)]),
    (plan, TypeError, "config", ["qblock_M64_T32_W4_S2"]),
    (
        plan,
        ValueError,
        "config",
        [Config("qblock", 48, 16), POD, SEPARATE, SINGLE],
    ),  # of parts, or impossible
    (plan, TypeError, "workspace", [5]),
    (plan, ValueError, "device_key", ["nvidia_h100"]),  # beside a config
    (plan_in_parts, TypeError, "parts", [tuple(PARTS), Parts(tuple(PARTS.decodes), PARTS.prompts)]),
    (varlen, TypeError, "causal", [None]),
    (varlen, ValueError, "window_size", [5, (3.5, 0), (-2, -1), (3, 2), (3, -2)]),
    (varlen, TypeError, "q", [[1]]),
    (varlen, ValueError, "q", [torch.zeros(4, 32)]),
    (varlen, TypeError, "k", [None]),
    (varlen, ValueError, "k", [torch.zeros(80, 2, 32)]),
    (varlen, ValueError, "k_descale", [torch.ones(2, 2)]),
    (varlen, ValueError, "v_descale", [torch.ones(2)]),
    (merge, TypeError, "out_a", [lambda x: x.float(), lambda x: x.tolist()]),
    (merge, ValueError, "out_a", [lambda x: x[0], lambda x: x.to("meta")]),
    (merge, TypeError, "out_b", [lambda x: x.bfloat16()]),
    (merge, ValueError, "out_b", [lambda x: x[1:], lambda x: x.to("meta")]),
    (merge, ValueError, "out", [lambda x: x[:1].expand(x.shape), lambda x: x.mT.contiguous().mT]),
    (merge, ValueError, "lse_a", [lambda x: x.T]),
    (merge, TypeError, "lse_b", [lambda x: x.double()]),
    (merge, TypeError, "lse", [5]),
    (merge, ValueError, "lse", [lambda x: x[:1].expand(x.shape), lambda x: x.T.contiguous().T]),
    (merge, NotImplementedError, "out_b", [lambda x: x.clone().requires_grad_()]),
    (merge, NotImplementedError, "lse_a", [lambda x: x.clone().requires_grad_()]),
    (workspace, ValueError, "device", ["meta"]),
    (workspace, ValueError, "models", [[]]),
    (workspace, TypeError, "models", ["m", [5]]),
    (workspace, ValueError, "max_query_tokens", [0]),
    (workspace, TypeError, "max_num_seqs", [True]),
    (workspace, ValueError, "device_key", ["h100"]),
    (ahead, ValueError, "device", ["meta"]),
    (ahead, ValueError, "models", [[]]),
    (ahead, TypeError, "models", ["m", [5], [(32, 8)]]),
    (ahead, TypeError, "features", [["window"]]),
    (ahead, ValueError, "features", [[("windows",)]]),
    (ahead, ValueError, "device_key", ["h100"]),
    (ahead, ValueError, "workers", [-1]),
    (ahead, TypeError, "workers", [4.0]),
    (ahead, ValueError, "config", [Config("qblock", 17, 16)]),
]


@pytest.mark.parametrize("door, error, name, values", MISTAKES)
def test_mistakes(door, error, name, values, batch):
    for value in values:
        with refused(error, name):
            door(batch, **{name: value})


@pytest.mark.parametrize(
    "door, changes, name",
    [
        (plan, {"max_query_len": 1}, "num_query_tokens"),  # more tokens than the sequences hold
        (plan, {"max_seq_len": 2}, "max_query_len"),  # a query that is longer than its context
        (plan_in_parts, {"parts": part("prompts", max_seq_len=-1)}, "parts.prompts.max_seq_len"),
        (plan_in_parts, {"parts": part("decodes", num_seqs=2)}, "num_seqs of parts"),
        (plan_in_parts, {"parts": part("prompts", num_query_tokens=8)}, "num_query_tokens of parts"),
        (plan_in_parts, {"parts": part("prompts", num_kv_tokens=1)}, "num_kv_tokens of parts"),
        (plan_in_parts, {"parts": part("decodes", max_seq_len=21)}, "parts.decodes.max_seq_len"),
        (plan_in_parts, {"parts": part("prompts", max_query_len=10)}, "parts.prompts.max_query_len"),
        (plan_in_parts, {"parts": part("decodes", max_query_len=9)}, "parts.decodes.max_query_len"),
        (plan_in_parts, {"parts": part("decodes", max_query_len=1)}, "parts.decodes.num_query_tokens"),
    ],
)
def test_lengths_that_contradict_each_other(door, changes, name, batch):
    with refused(ValueError, name):
        door(batch, **changes)


def test_lengths_are_plain_integers_and_as_many_as_each_other(batch):
    with refused(TypeError, "parts.decodes.num_seqs"):
        plan_in_parts(batch, parts=part("decodes", num_seqs=1.0))
    with pytest.raises(ValueError, match="query_lens"):
        Lengths.of([1, 2], [3])


def test_a_float_in_a_config_never_reaches_a_kernel(batch):
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
        *(("cu_seqlens_q", int32(*starts)) for starts in ((1, 3, 4), (0, 5, 4), (0, 3, 5), (0, 4, 4))),
        ("seqused_k", int32(20, 0)),
        ("seqused_k", int32(21, 5)),
        ("block_table", int32(0, -7, 0, 0).view(2, 2)),
    ],
)
def test_contents_of_index_tensors(batch, name, value):
    with refused(ValueError, name):
        plan(batch, **{name: value})
    assert plan(batch, **{name: value}, check=False).batch.max_page_id is None


@pytest.mark.parametrize("check", [None, True])
def test_no_sequence_has_fewer_than_no_keys(batch, check):
    with refused(ValueError, "seqused_k"):
        plan(batch, seqused_k=int32(20, -1), causal=False, check=check)


def test_kernels_look_up_a_page_of_sequences_without_keys(batch):
    none = {"seqused_k": int32(0, 0), "max_seq_len": 0, "causal": False}
    with refused(ValueError, "block_table"):
        plan(batch, **none, block_table=batch.block_table[:, :0])
    made = plan(batch, **none, block_table=batch.block_table[:, :1])
    assert not attn_kernels.run(made, batch.q, batch.k_cache, batch.v_cache, causal=False).any()


def test_contents_are_checked_wherever_torch_makes_tensors(batch):
    """A server has the GPU as torch's default device."""
    expected = plan(batch).batch.max_page_id
    with torch.device("meta"):
        assert plan(batch).batch.max_page_id == expected


def test_page_ids_outside_the_cache_are_refused_at_launch(batch):
    table = batch.block_table.clone()
    table[1, 0] = len(batch.k_cache)
    with refused(ValueError, "block_table"):
        attn_kernels.run(plan(batch, block_table=table), batch.q, batch.k_cache, batch.v_cache)


def strided(tensor):
    return tensor.mT.contiguous().mT


VECTORS = {
    "alibi_slopes": torch.ones(4),
    "sinks": torch.ones(4),
    "k_scale": torch.ones(1),
    "lse": torch.ones(4, 4),
    "bidirectional_ranges": torch.zeros(2, 1, 2).int(),
}
MISTAKES_OF_LAYERS = [
    (TypeError, "plan", [None, 5]),
    (TypeError, "q", [lambda q: q.float(), [1.0]]),
    (ValueError, "q", [lambda q: q[1:], lambda q: q.to("meta"), strided]),
    # Strides that overflow inside a tile; the memory is reserved, and never touched.
    (ValueError, "q", [lambda q: torch.empty_strided((4, 4, 32), (2**28, 32, 1), dtype=q.dtype)]),
    (TypeError, "k_cache", [lambda k: k.bfloat16(), lambda k: k.to(torch.float8_e5m2), [1.0]]),
    (ValueError, "k_cache", [lambda k: k[:, :8], lambda k: k[:, :, :1], lambda k: k[0]]),
    (TypeError, "v_cache", [lambda v: v.to(FP8), [1.0]]),
    (ValueError, "v_cache", [lambda v: v[1:], lambda v: v.to("meta"), strided]),
    (TypeError, "out", [lambda out: out.float(), [1.0]]),
    (ValueError, "out", [lambda out: out[:, :2], lambda out: out.to("meta"), strided]),
    # Rows that share memory, whole or in part.
    (ValueError, "out", [lambda out: out[:1].expand(out.shape)]),
    (ValueError, "out", [lambda out: out.as_strided(out.shape, (100, 32, 1))]),
    (ValueError, "out", [lambda out: out.as_strided(out.shape, (128, 31, 1))]),
    (TypeError, "softmax_scale", ["1", torch.ones(1), True]),
    # In float32 the first is 0, which times a hidden score of -inf is NaN.
    (ValueError, "softmax_scale", [1e-46, 0.0, -1.0, float("nan"), float("inf"), 3e38]),
    (TypeError, "sliding_window", [1.5, (4, 0), [1], True]),
    (ValueError, "sliding_window", [0]),
    (TypeError, "causal", [0, None]),
    (TypeError, "keys_after", [1.0]),
    (ValueError, "keys_after", [1, -1]),  # in causal attention, and fewer than none
    (TypeError, "softcap", [None]),
    (ValueError, "softcap", [1e-40, -1.0, float("nan")]),
    (TypeError, "alibi_slopes", [torch.ones(4).half(), [1.0]]),
    (ValueError, "alibi_slopes", [torch.ones(2), torch.ones(4, device="meta"), torch.ones(8)[::2]]),
    (TypeError, "sinks", [torch.ones(4).bfloat16(), [1.0]]),
    (ValueError, "sinks", [torch.ones(3), torch.ones(8)[::2]]),
    (TypeError, "k_scale", [None]),
    (ValueError, "k_scale", [0.0, torch.ones(2), torch.ones(1, device="meta")]),
    (TypeError, "v_scale", [torch.ones(1).double()]),
    (ValueError, "v_scale", [torch.ones(0)]),
    (TypeError, "lse", [torch.ones(4, 4).double(), torch.ones(4, 4).tolist()]),
    (ValueError, "lse", [torch.ones(4), torch.ones(4, 5), torch.ones(4, 4, device="meta")]),
    (ValueError, "lse", [torch.ones(4, 8)[:, :4], torch.ones(1, 4).expand(4, 4)]),
    (TypeError, "bidirectional_ranges", [[[(0, 3)]], [], torch.zeros(2, 1, 2)]),
    (ValueError, "bidirectional_ranges", [torch.zeros(2, 2).int(), torch.zeros(2, 1, 3).int()]),
    (ValueError, "bidirectional_ranges", [torch.zeros(3, 1, 2).int(), torch.zeros(2, 4, 2).int()[:, ::2]]),
    (ValueError, "bidirectional_ranges", [torch.zeros(2, 1, 2, device="meta").int()]),
]


@pytest.mark.parametrize("error, name, changes", MISTAKES_OF_LAYERS)
@pytest.mark.parametrize("warm", [False, True], ids=["at first", "after other layers"])
def test_mistakes_of_layers(error, name, changes, warm, batch, recorder):
    """Also where other layers with the same options have been launched directly, twice."""
    layer = layer_of(batch, plan=plan(batch))
    if warm:
        for options in ({}, {"sliding_window": 1}, *({name: value} for name, value in VECTORS.items())):
            for _ in range(2):
                attn_kernels.run(**layer, **options)
        assert recorder.direct
    for change in changes:
        recorder.clear()
        with refused(error, name):
            wrong = change(layer[name]) if isinstance(change, FunctionType) else change
            attn_kernels.run(**(layer | {name: wrong}))
        assert not recorder.launches


@pytest.mark.parametrize(
    "name", ["q", "k_cache", "v_cache", "out", "sinks", "alibi_slopes", "k_scale", "lse"]
)
def test_no_gradient_is_computed(batch, name):
    layer = layer_of(batch, plan=plan(batch))
    layer |= {name: (layer | VECTORS)[name].clone().requires_grad_()}
    with refused(NotImplementedError, name):
        attn_kernels.run(**layer)
    with torch.no_grad():
        attn_kernels.run(**layer)


def test_memory_of_merged_states():
    memory, sums = torch.zeros(5, 2, 16).half(), torch.zeros(2, 5)
    states = memory[:4], sums[:, :4], torch.zeros(4, 2, 16).half(), torch.zeros(2, 4)
    with refused(ValueError, "out"):
        attn_kernels.merge_attention_states(*states, out=memory[1:])
    with refused(ValueError, "lse"):
        attn_kernels.merge_attention_states(*states, lse=sums[:, 1:])
    attn_kernels.merge_attention_states(*states, out=memory[:4], lse=sums[:, :4])
    out, lse = torch.empty(4, 2, 16, device="meta").half(), torch.empty(2, 4, device="meta")
    with refused(ValueError, "out_a"):  # of a device of no kernel
        attn_kernels.merge_attention_states(out, lse, out, lse)


def test_outputs_that_overlap_other_tensors(batch):
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


@settings(max_examples=300)
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
    out, expected = (attn_kernels.run(plan(batch), q, batch.k_cache, batch.v_cache) for q in (far, batch.q))
    assert torch.equal(out, expected)


def test_layers_are_checked_against_the_whole_of_a_batch_in_parts():
    batch = random_batch(((3, 9), (20, 12)), kv_heads=2)
    step = batch.plan(parts=PARTS, config=SEPARATE)
    for name in ("q", "out"):
        layer = layer_of(batch, plan=step)
        with refused(ValueError, name):
            attn_kernels.run(**(layer | {name: layer[name][:3]}))


def test_the_cpu_needs_the_interpreter(batch, monkeypatch):
    monkeypatch.setattr("attn_kernels.launch.direct.JITFunction", type(VARIANTS["qblock"].kernels[0]))
    with refused(ValueError, "q"):
        attn_kernels.run(plan(batch), batch.q, batch.k_cache, batch.v_cache)

"""Batches launch only kernels that ``compile_ahead`` compiled.

Keys are those that Triton's dispatch computes, for the choices of committed modules.
"""

import random
from itertools import product

import pytest
import torch
from kernel_cases import FP8, record_launches
from launch_recorder import shifted
from server_steps import MOST_TOKENS, Step, steps
from specialisation_key import key

import attn_kernels
from attn_kernels import Config, Model, Parts
from attn_kernels.choose import choices
from attn_kernels.choose.choices import choices_for
from attn_kernels.kernels import qblock
from attn_kernels.launch import direct
from attn_kernels.warmup.compile_ahead import compile_ahead
from attn_kernels.warmup.dummy_launch import LARGE

BF16 = torch.bfloat16
LAYOUTS = ((8, 2, 64), (14, 2, 128), (4, 2, 256), (34, 1, 64))  # the last is beyond the trees' guards
PAGES = (16, 32)
MODELS = [Model(*heads, page, BF16, cache) for heads, page, cache in product(LAYOUTS, PAGES, (None, FP8))]
KINDS = ((), ("window", "softcap", "sinks", "lse"))
BATCHES = 400
VENDORS = {"nvidia_h100": "nvidia", "amd_mi300x": "amd"}


@pytest.fixture
def launches(monkeypatch):
    """Every launch, none of them executed. The heads of long contexts run one after the other."""
    monkeypatch.setattr(qblock, "L2_BYTES", 2**16)
    return record_launches(monkeypatch, execute=False)


@pytest.fixture
def as_vendor(monkeypatch):
    """A function that makes launches those of a vendor's GPU. What was bound before was another's."""

    def become(vendor):
        monkeypatch.setattr(torch.version, "hip", "7.0" if vendor == "amd" else None)
        direct.forget()

    yield become
    direct.forget()


def keys(launches, vendor):
    return {key(launch, vendor) for launch in launches}


@pytest.fixture(scope="module")
def memory():
    """As large as any step's queries."""
    return torch.zeros(MOST_TOKENS * 18 * 128, dtype=BF16)


def layer(step, memory, chance):
    """Queries and caches in the layouts of servers.

    Queries are alone or beside keys and values. Caches are in one tensor, side by side, one behind the other,
    or have slots behind heads.
    """
    model, dtype = step.model, step.model.cache_dtype or BF16
    width = model.num_query_heads + 2 * model.num_kv_heads * chance.randrange(2)
    tokens, size = sum(step.query_lens), model.head_size
    q = memory[: tokens * width * size].view(tokens, width, size)[:, : model.num_query_heads]
    shape = (4, 2, model.block_size, model.num_kv_heads, size)
    caches = chance.choice(
        (
            lambda: torch.zeros(shape, dtype=dtype).unbind(1),
            lambda: torch.zeros(shape, dtype=dtype).transpose(0, 1).contiguous().unbind(),
            lambda: torch.zeros(shape, dtype=dtype).transpose(2, 3).contiguous().transpose(2, 3).unbind(1),
        )
    )()
    return q, *caches


@pytest.mark.parametrize("device_key", VENDORS)
def test_random_batches_launch_only_what_was_compiled(device_key, launches, as_vendor, memory):
    vendor = VENDORS[device_key]
    as_vendor(vendor)
    done = compile_ahead("cpu", MODELS, features=KINDS, device_key=device_key)
    assert not done.failures
    ready = keys(launches, vendor)
    launches.clear()
    chance, chosen, met = random.Random(1), set(), set()
    for step in steps(BATCHES, MODELS):
        plan = step.plan(device_key=device_key)
        q, k_cache, v_cache = layer(step, memory, chance)
        number = chance.choice((0.5, 1, 2.0, 16, 100))
        options = chance.choice(
            (
                {"softmax_scale": number, "k_scale": number, "v_scale": number},
                {
                    "sliding_window": chance.choice((1, 2, 16, 1000)),
                    "softcap": number,
                    "sinks": torch.zeros(step.model.num_query_heads, dtype=BF16),
                },
            )
        )
        if "sinks" in options:
            options["lse"] = lse = torch.zeros(step.model.num_query_heads, len(q))
            attn_kernels.merge_attention_states(q, lse, q, lse)
        attn_kernels.run(plan, q, k_cache, v_cache, **options)
        chosen.add((plan.config, step.model.num_query_heads))
        met |= keys(launches, vendor)
        launches.clear()
    assert met <= ready, sorted(met - ready, key=str)[:1]
    # Nor is much compiled for nothing: nearly all that the tree can return was met.
    compiled = {
        (config, model.num_query_heads)
        for model in MODELS
        for config in choices_for(model, torch.device("cpu"), device_key).possible()
    }
    assert compiled >= chosen
    assert len(chosen) >= 0.8 * len(compiled)


@pytest.fixture
def hopper(new_process, monkeypatch):
    monkeypatch.setattr(choices, "describe_device", lambda device: ("NVIDIA H100", "sm_90", "nvidia"))


PLAIN = [Model(*heads, 16, BF16) for heads in LAYOUTS]


@pytest.mark.parametrize("device_key", [None, "nvidia_h200"])
def test_graphs_launch_only_what_was_compiled(device_key, hopper, monkeypatch, memory):
    """Including kernels that look at the batch for all layers."""
    launches = record_launches(monkeypatch, execute=False, once_a_plan=True)
    direct.forget()
    done = compile_ahead("cpu", PLAIN, device_key=device_key, for_capture=True)
    assert not done.failures
    ready = keys(launches, "nvidia")
    launches.clear()
    chance = random.Random(2)
    for num_seqs in (1, 2, 4, 16, 17, 33, 64, 132, 133, 256):
        for model in PLAIN:
            context = chance.choice((100, 10_000))
            step = Step((1,) * num_seqs, (context,) * num_seqs, model)
            plan = step.plan(device_key=device_key, for_capture=True)
            attn_kernels.run(plan, *layer(step, memory, chance))
            mixed = Step((*step.query_lens, 700, 9), (*step.context_lens, 900, 4000), model)
            parts = Parts.of(mixed.query_lens, mixed.context_lens)
            plan = mixed.plan(device_key=device_key, for_capture=chance.random() < 0.5, parts=parts)
            attn_kernels.run(plan, *layer(mixed, memory, chance))
    met = keys(launches, "nvidia")
    assert met <= ready, sorted(met - ready, key=str)[:1]
    expected = {"qblock_kernel", "split_keys_kernel", "reduce_kernel", "divide_kernel"}
    assert expected <= {name for name, *_ in met}


MODEL = Model(8, 2, 64, 16, BF16)
DECODE = Step((1, 1), (40, 50), MODEL)
CONFIG = Config("qblock", 16, 32)


@pytest.fixture
def compiled(launches, as_vendor):
    """A function that compiles ahead and returns keys; on AMD, where they depend on more than elsewhere."""
    as_vendor("amd")

    def compile_kinds(features, configs=(CONFIG,)):
        done = compile_ahead("cpu", [MODEL], configs=configs, device_key="default", features=features)
        assert not done.failures
        found = keys(launches, "amd")
        launches.clear()
        return found

    return compile_kinds


def run_decode(q=None, caches=None, config=CONFIG, **options):
    q = torch.zeros(2, MODEL.num_query_heads, MODEL.head_size, dtype=BF16) if q is None else q
    k_cache, v_cache = caches or (cache(), cache())
    attn_kernels.run(DECODE.plan(config=config), q, k_cache, v_cache, **options)


def cache(pages=4):
    return torch.zeros(pages, MODEL.block_size, MODEL.num_kv_heads, MODEL.head_size, dtype=BF16)


def large_cache():
    """In an untouched tensor of over 2 GiB."""
    page = cache(1).numel()
    pages = LARGE // (BF16.itemsize * page) + 1
    return torch.empty(pages * page, dtype=BF16).view(pages, *cache(1).shape[1:])


def large_out():
    """Likewise."""
    return torch.empty(LARGE // BF16.itemsize + 1, dtype=BF16)[: 2 * 8 * 64].view(2, 8, 64)


def per_head(dtype):
    return torch.zeros(MODEL.num_query_heads, dtype=dtype)


INCLUDED = {
    "numbers": ((), lambda: {"softmax_scale": 1, "k_scale": 3, "v_scale": 0.1}),
    "caches of over 2 GiB": ((), lambda: {"caches": (large_cache(), large_cache())}),
    "sinks in float32": (("float32_sinks",), lambda: {"sinks": per_head(torch.float32)}),
    "sinks in the type of q": (("sinks",), lambda: {"sinks": per_head(BF16)}),
    "tensors as scales": (("scales",), lambda: {"k_scale": torch.ones(1), "v_scale": shifted(torch.ones(1))}),
    "slopes at an odd address": (("alibi",), lambda: {"alibi_slopes": shifted(per_head(torch.float32))}),
    "ranges of any number": (
        ("ranges",),
        lambda: {"bidirectional_ranges": shifted(torch.zeros(2, 9, 2).int())},
    ),
    "any window": (("window", "softcap"), lambda: {"sliding_window": 2**30, "softcap": 50.0}),
}


@pytest.mark.parametrize("name", INCLUDED)
def test_what_is_compiled(name, compiled, launches):
    features, options = INCLUDED[name]
    ready = compiled([features])
    run_decode(**options())
    assert keys(launches, "amd") <= ready


EXCLUDED = {
    "a window": lambda: {"sliding_window": 3},
    "ranges": lambda: {"bidirectional_ranges": torch.zeros(2, 1, 2).int()},
    "one tensor as scale": lambda: {"k_scale": torch.ones(1)},
    "queries at an odd address": lambda: {"q": shifted(torch.zeros(2, 8, 64, dtype=BF16))},
    "a cache at an odd address": lambda: {"caches": (shifted(cache()), shifted(cache()))},
    "rows apart by no 16 bytes": lambda: {"q": torch.zeros(2, 8, 65, dtype=BF16)[..., :64]},
    "keys strided unlike values": lambda: {"caches": (cache(), cache(8)[::2])},
    "an output of over 2 GiB": lambda: {"out": large_out()},
    "another config": lambda: {"config": CONFIG._replace(num_warps=8)},
}


@pytest.mark.parametrize("name", EXCLUDED)
def test_what_is_left_out(name, compiled, launches):
    """As documented; and the tests above can fail."""
    ready = compiled([(), ("scales",)])
    run_decode(**EXCLUDED[name]())
    assert launches and not keys(launches, "amd") & ready

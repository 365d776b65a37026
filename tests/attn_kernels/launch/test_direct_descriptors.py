"""Direct launches of the Hopper kernel, whose tensor descriptors Triton's launcher unpacks at each launch."""

import gc
import weakref

import pytest
import torch
from kernel_cases import strided
from launch_recorder import batch_of, check_direct, layer_of, run, shifted

from attn_kernels import Config, Parts
from attn_kernels.kernels import hopper, hopper_launch
from attn_kernels.launch import direct

CONFIGS = [
    Config("qblock", 128, 64, num_warps=8, num_stages=2, tma=1),
    Config("stream_k", 16, 64, num_stages=2, tma=1),
    Config("pod", 128, 64, num_stages=2),
]
LENS = ((3, 1, 12), (20, 50, 30))  # two decodes and a prompt
CHANGES = {
    "plain": lambda batch: {},
    "other caches": lambda batch: caches(batch, torch.clone),
    "keys and values swapped": lambda batch: {"k_cache": batch.v_cache, "v_cache": batch.k_cache},
    "more pages": lambda batch: caches(batch, lambda cache: torch.cat([cache, cache])),
    "wider slots": lambda batch: caches(batch, lambda cache: strided(cache, 2, 2)),
    "heads first": lambda batch: caches(
        batch, lambda cache: cache.transpose(1, 2).contiguous().transpose(1, 2)
    ),
    "wider rows of q": lambda batch: {"q": strided(batch.q, 1, 8)},
    "lse": lambda batch: {"lse": torch.empty(batch.q.shape[1], batch.q.shape[0])},
}


def caches(batch, change):
    return {"k_cache": change(batch.k_cache), "v_cache": change(batch.v_cache)}


@pytest.fixture
def hopper_recorder(recorder, monkeypatch):
    monkeypatch.setattr(hopper_launch, "hopper_for", lambda device: hopper)
    monkeypatch.setattr(direct, "_prepare", lambda kernel, device: None)  # the interpreter takes no Gluon
    return recorder


def plan_of(config, lens=LENS):
    """A batch whose KV heads are as many as an interpreted device has multiprocessors, and its plan."""
    batch = batch_of(lens, kv_heads=3, head_size=64)
    parts = Parts.of(*lens) if config.variant == "pod" else None
    return batch, batch.plan(config=config, check=False, parts=parts)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_descriptors_are_of_the_layer_s_caches(config, hopper_recorder):
    """Whatever changes from layer to layer, in any order, and with a new plan for each of two batches."""
    for lens in (LENS, ((1, 1, 1, 12), (9, 400, 70, 20))):
        batch, plan = plan_of(config, lens)
        layers = [layer_of(batch, **change(batch)) for change in CHANGES.values()]
        for layer in layers:
            run(plan, layer)
        for layer in layers[::-1]:
            check_direct(hopper_recorder, plan, layer)
            check_direct(hopper_recorder, plan, layer)
            assert {launch.kernel for launch in hopper_recorder.direct} == {"hopper_kernel"}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_plan_computes_its_schedule_once(config, hopper_recorder):
    before = len(hopper_recorder.launches)
    batch, plan = plan_of(config)
    once = [launch.kernel for _, launch in hopper_recorder.launches[before:]]
    assert once == [*(["divide_kernel"] if config.variant == "pod" else []), "schedule_kernel"]
    hopper_recorder.clear()
    for _ in range(3):
        run(plan, layer_of(batch))
    assert [launch.kernel for _, launch in hopper_recorder.launches] == 3 * ["hopper_kernel"]


def test_a_layer_off_alignment_launches_the_parts(hopper_recorder):
    """Once a plan, they begin; other layers keep the one launch."""
    batch, plan = plan_of(CONFIGS[-1])
    layer = layer_of(batch)
    run(plan, layer)
    hopper_recorder.clear()
    for _ in range(2):
        run(plan, layer | {"q": shifted(batch.q)})
    kernels = [launch.kernel for _, launch in hopper_recorder.launches]
    assert "hopper_kernel" not in kernels and len(kernels) >= 4
    check_direct(hopper_recorder, plan, layer)
    assert [launch.kernel for launch in hopper_recorder.direct] == ["hopper_kernel"]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_cache_that_moves_in_place_has_another_descriptor(config, hopper_recorder):
    batch, plan = plan_of(config)
    layer = layer_of(batch, k_cache=batch.k_cache.clone())
    for _ in range(3):
        run(plan, layer)
    layer["k_cache"].set_(layer["k_cache"].clone())
    check_direct(hopper_recorder, plan, layer)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_no_cache_is_kept_alive(config, hopper_recorder):
    batch, plan = plan_of(config)
    layer = layer_of(batch, **caches(batch, torch.clone))
    for _ in range(3):
        run(plan, layer)
    hopper_recorder.clear()
    alive = [weakref.ref(layer[name]) for name in ("k_cache", "v_cache")]
    del layer
    gc.collect()
    assert [cache() for cache in alive] == [None, None]

"""Direct launches of the Hopper kernel, whose tensor descriptors Triton's launcher unpacks at each launch."""

import gc
import weakref

import pytest
import torch
from kernel_cases import strided
from launch_recorder import LENS, batch_of, check_direct, layer_of, run

from attn_kernels import Config
from attn_kernels.kernels import hopper, qblock
from attn_kernels.launch import direct

CONFIG = Config("qblock", 128, 64, num_warps=8, num_stages=2, descriptors=1)
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
}


def caches(batch, change):
    return {"k_cache": change(batch.k_cache), "v_cache": change(batch.v_cache)}


@pytest.fixture
def hopper_recorder(recorder, monkeypatch):
    monkeypatch.setattr(qblock, "hopper_kernel", lambda device: hopper)
    monkeypatch.setattr(direct, "_prepare", lambda kernel, device: None)  # the interpreter takes no Gluon
    return recorder


def test_descriptors_are_of_the_layer_s_caches(hopper_recorder):
    """Whatever changes from layer to layer, in any order, and with a new plan for each of two batches."""
    for lens in (LENS, ((1, 1, 1, 1), (9, 400, 70, 20))):
        batch = batch_of(lens, head_size=64)
        plan = batch.plan(config=CONFIG, check=False)
        layers = [layer_of(batch, **change(batch)) for change in CHANGES.values()]
        for layer in layers:
            run(plan, layer)
        for layer in layers[::-1]:
            check_direct(hopper_recorder, plan, layer)
            check_direct(hopper_recorder, plan, layer)
            assert {launch.kernel for launch in hopper_recorder.direct} == {"hopper_kernel"}


def test_a_cache_that_moves_in_place_has_another_descriptor(hopper_recorder):
    batch = batch_of(head_size=64)
    plan = batch.plan(config=CONFIG, check=False)
    layer = layer_of(batch, k_cache=batch.k_cache.clone())
    for _ in range(3):
        run(plan, layer)
    layer["k_cache"].set_(layer["k_cache"].clone())
    check_direct(hopper_recorder, plan, layer)


def test_no_cache_is_kept_alive(hopper_recorder):
    batch = batch_of(head_size=64)
    plan = batch.plan(config=CONFIG, check=False)
    layer = layer_of(batch, **caches(batch, torch.clone))
    for _ in range(3):
        run(plan, layer)
    hopper_recorder.clear()
    alive = [weakref.ref(layer[name]) for name in ("k_cache", "v_cache")]
    del layer
    gc.collect()
    assert [cache() for cache in alive] == [None, None]

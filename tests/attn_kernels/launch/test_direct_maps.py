"""Tensor maps of directly launched kernels: Triton's own unpacking of descriptors, and a stand-in for the
driver that notes what each map was made of."""

from types import SimpleNamespace

import pytest
import torch
import triton
from kernel_cases import strided
from launch_recorder import Launcher, Recorder, as_triton_would, layer_of, recording, run
from torch import Tensor
from triton.backends.nvidia import driver as nvidia

from attn_kernels import Config
from attn_kernels.kernels import hopper, qblock
from attn_kernels.launch import binding, ready
from attn_kernels.testing.poisoned import make_batch

CONFIG = Config("qblock", 128, 64, num_warps=8, num_stages=2, descriptors=1)
NESTED = not hasattr(nvidia, "_BASE_ARGS_FORMAT_LEN")  # how this version of Triton hands arguments over
BOX = [16, 64]
SIGNATURE = dict.fromkeys(range(28), "i32") | dict.fromkeys((2, 3), "tensordesc<fp16[16, 64]>")
META = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": BOX, "fp4_padded": False}


class PyCUtensorMap:
    """Named as Triton's type is."""

    made = 0

    def __init__(self, address, swizzle, element_size, element_type, box, shape, strides, padding):
        PyCUtensorMap.made += 1
        self.facts = (address, list(shape), list(strides))

    def __eq__(self, other):
        return self.facts == other.facts

    __hash__ = None


class MapLauncher(Launcher):
    """With Triton's Python function that unpacks descriptors around the C function."""

    def __init__(self, launch, nested):
        super().__init__(nvidia.wrap_handle_tensordesc(launch, SIGNATURE, [META, META]), nested)


class MapRecorder(Recorder):
    def key(self, launch):
        """The compile-time arguments."""
        names = [name for name in launch.arguments if name.isupper()]
        return launch.kernel, tuple(launch.arguments[name] for name in names)


def unpacked(arguments):
    """What the C function takes for the arguments of the Python function."""
    found = []
    for value in arguments:
        if hasattr(value, "block_shape"):
            facts = (value.base.data_ptr(), 3, 2, 6, BOX, value.shape, value.strides, 0)
            found += [PyCUtensorMap(*facts), *value.shape, *value.strides]
        else:
            found.append(value.data_ptr() if isinstance(value, Tensor) else value)
    return found


@pytest.fixture
def recorder(monkeypatch):
    utils = SimpleNamespace(fill_tma_descriptor=PyCUtensorMap, fill_tma_descriptor_tiled=PyCUtensorMap)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(utils=utils))
    monkeypatch.setattr(qblock, "hopper_kernel", lambda device: hopper)
    monkeypatch.setattr(binding, "_prepare", lambda kernel, device: None)  # the interpreter takes no Gluon
    with recording(monkeypatch, MapRecorder(NESTED, MapLauncher)) as found:
        yield found


def batch_of(lens=((3, 1, 0), (20, 50, 7))):
    heads = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 64, "block_size": 16}
    return make_batch(*lens, **heads, dtype=torch.float16)


def check_direct(recorder, plan, layer):
    (expected,) = as_triton_would(recorder, plan, layer)
    recorder.clear()
    run(plan, layer)
    assert not recorder.public
    (found,) = recorder.direct
    assert (found.key, found.grid) == (expected.key, expected.grid)
    assert found.key[0] == "hopper_kernel"
    assert list(found.arguments) == unpacked(expected.arguments.values())


def caches(batch, change):
    return {"k_cache": change(batch.k_cache), "v_cache": change(batch.v_cache)}


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


def test_maps_are_of_the_layer_s_caches(recorder):
    """Whatever changes from layer to layer, in any order, and with a new plan for each of two batches."""
    for lens in (((3, 1, 0), (20, 50, 7)), ((1, 1, 1, 1), (9, 400, 70, 20))):
        batch = batch_of(lens)
        plan = batch.plan(config=CONFIG, check=False)
        layers = [layer_of(batch, **change(batch)) for change in CHANGES.values()]
        for layer in layers:
            run(plan, layer)
        for layer in layers[::-1]:
            check_direct(recorder, plan, layer)
            check_direct(recorder, plan, layer)


def test_a_map_is_made_once_a_cache(recorder):
    batch = batch_of()
    layers = [layer_of(batch, **caches(batch, torch.clone)) for _ in range(3)]
    for _ in range(3):
        plan = batch.plan(config=CONFIG, check=False)
        for layer in layers:
            run(plan, layer)
    before = PyCUtensorMap.made
    plan = batch.plan(config=CONFIG, check=False)
    for layer in layers:
        run(plan, layer)
    assert PyCUtensorMap.made == before
    run(plan, layer_of(batch, **caches(batch, torch.clone)))
    assert PyCUtensorMap.made > before


def test_few_maps_are_kept(recorder, monkeypatch):
    monkeypatch.setattr(ready, "MOST_MAPS", 2)
    batch = batch_of()
    plan = batch.plan(config=CONFIG, check=False)
    layers = [layer_of(batch, **caches(batch, torch.clone)) for _ in range(5)]
    for _ in range(2):
        for layer in layers:
            run(plan, layer)
    for layer in layers:
        check_direct(recorder, plan, layer)
    (known,) = plan.ready.values()
    for maps in known.launches[0].form.maps:
        assert len(maps.known) <= 2


@pytest.mark.parametrize("change", ["address", "pages"])
def test_a_cache_that_moves_in_place_has_another_map(change, recorder):
    batch = batch_of()
    plan = batch.plan(config=CONFIG, check=False)
    layer = layer_of(batch, k_cache=batch.k_cache.clone())
    for _ in range(3):
        run(plan, layer)
    pages = 1 if change == "address" else 2
    moved = torch.cat([layer["k_cache"]] * pages)
    layer["k_cache"].set_(moved)
    if change == "pages":
        layer["v_cache"] = torch.cat([batch.v_cache] * 2)
        run(plan, layer)  # binds what has as many pages
    check_direct(recorder, plan, layer)


def test_another_type_in_a_map_s_place_is_left_to_triton(recorder, monkeypatch):
    utils = SimpleNamespace(fill_tma_descriptor=lambda *facts: facts)
    utils.fill_tma_descriptor_tiled = utils.fill_tma_descriptor
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(utils=utils))
    batch = batch_of()
    plan = batch.plan(config=CONFIG, check=False)
    for _ in range(3):
        run(plan, layer_of(batch))
    assert len(recorder.public) == 3
    assert not recorder.direct

"""Direct launches are what Triton's own dispatch would launch: the same kernel, grid and arguments."""

import contextlib
import dataclasses
import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import triton
from kernel_cases import FP8, NAMES, make_config, shifted, strided
from kernel_cases import scores as score_options
from launch_recorder import TARGETS, as_numbers, batch_of, check_direct, far, hooked, layer_of, run
from triton import knobs

from attn_kernels import Config, Parts, Workspace
from attn_kernels.choose.choices import choices_for
from attn_kernels.kernels import hopper as hopper_module
from attn_kernels.kernels import hopper_launch
from attn_kernels.launch import direct

HOPPER = (
    Config("qblock", 128, 64, num_warps=8, num_stages=2, tma=1),
    Config("stream_k", 16, 64, num_stages=2, tma=1),
    Config("pod", 128, 64, num_stages=2),
)


@pytest.fixture
def hopper(recorder, monkeypatch):
    """Launches of the Hopper kernel, whose tensor descriptors Triton's launcher unpacks at each launch."""
    monkeypatch.setattr(hopper_launch, "hopper_for", lambda device: hopper_module)
    monkeypatch.setattr(direct, "_prepare", lambda kernel, device: None)  # the interpreter takes no Gluon
    return recorder


def plan_of(config, lens=((3, 1, 12), (20, 50, 30)), **options):
    """A batch and its plan; decodes and a prompt on as many KV heads as there are multiprocessors."""
    batch = batch_of(lens, **({"kv_heads": 3, "head_size": 64} if config in HOPPER else {}), **options)
    parts = Parts.of(*lens) if config.variant == "pod" else None
    return batch, batch.plan(config=config, check=False, parts=parts)


def lse_of(batch):
    return torch.empty(batch.q.shape[1::-1])


def ranges_for(batch):
    return torch.zeros(len(batch.query_lens), 2, 2).int()


def scores(batch, words):
    return score_options(batch.q.shape[1], words)


def caches(batch, change):
    return {"k_cache": change(batch.k_cache), "v_cache": change(batch.v_cache)}


CHANGES = {
    "other tensors": lambda batch: {"q": batch.q.clone(), **caches(batch, torch.clone)},
    "keys and values swapped": lambda batch: {"k_cache": batch.v_cache, "v_cache": batch.k_cache},
    "more pages": lambda batch: caches(batch, lambda cache: torch.cat([cache, cache])),
    "heads first": lambda batch: caches(batch, lambda c: c.transpose(1, 2).contiguous().transpose(1, 2)),
    "wider rows of q": lambda batch: {"q": strided(batch.q, 1, 8)},
    "odd rows of q": lambda batch: {"q": strided(batch.q, 2, 1)},
    "wider rows of out": lambda batch: {"out": strided(batch.q, 1, 8)},
    "wider slots": lambda batch: caches(batch, lambda cache: strided(cache, 2, 2)),
    "wider slots of keys": lambda batch: {"k_cache": strided(batch.k_cache, 2, 1)},
    "q off": lambda batch: {"q": shifted(batch.q)},
    "out off": lambda batch: {"out": shifted(batch.q)},
    "keys off": lambda batch: {"k_cache": shifted(batch.k_cache)},
    "values off": lambda batch: {"v_cache": shifted(batch.v_cache)},
    "q and out off": lambda batch: {"q": shifted(batch.q), "out": shifted(batch.q)},
    "pages 2^31 apart": lambda batch: {
        "k_cache": far(batch.k_cache[:2], 0, 2**31 + 1),
        "v_cache": batch.v_cache[:2],
    },
    "fp8": lambda batch: caches(batch, lambda cache: cache.to(FP8)),
    "sinks off": lambda batch: {"sinks": shifted(torch.ones(batch.q.shape[1]))},
    "lse": lambda batch: {"lse": lse_of(batch)},
    "lse off": lambda batch: {"lse": shifted(lse_of(batch))},
    "ranges": lambda batch: {"bidirectional_ranges": ranges_for(batch)},
    "ranges off": lambda batch: {"bidirectional_ranges": shifted(ranges_for(batch))},
    "all": lambda batch: scores(batch, "window=5 softcap alibi sinks scales=tensor") | {"lse": lse_of(batch)},
    "softmax scale": lambda batch: {"softmax_scale": 0.3},
}
for words in ("window=5", "softcap", "alibi", "sinks", "sinks=half", "scales", "scales=tensor"):
    CHANGES[words] = partial(scores, words=words)


DESCRIBED = ("other tensors", "keys and values swapped", "more pages", "heads first", "wider slots", "lse")


@pytest.mark.parametrize("config", [*map(make_config, NAMES), *HOPPER], ids=str)
@pytest.mark.usefixtures("whole_and_split")
def test_a_direct_launch_is_what_triton_would_launch(config, hopper):
    """Whatever changes from layer to layer, in any order, and with a new plan for each of three batches."""
    names = CHANGES if config.variant != "pod" else DESCRIBED  # the pod has no other kernel
    for lens in (((3, 1, 12), (20, 50, 30)), ((1, 1, 1, 12), (9, 400, 70, 20)), ((3, 1, 12), (20, 50, 30))):
        batch, plan = plan_of(config, lens)
        layers = [layer_of(batch)]
        layers += [layer_of(batch, **CHANGES[name](batch)) for name in names]
        for layer in layers:
            run(plan, layer)
        for layer in layers[::-1]:
            check_direct(hopper, plan, layer)
        assert {launch.kernel for launch in hopper.direct} == {"hopper_kernel"} or config not in HOPPER


@pytest.mark.parametrize("config", HOPPER, ids=str)
def test_a_plan_computes_its_schedule_once(config, hopper):
    before = len(hopper.launches)
    batch, plan = plan_of(config)
    once = [launch.kernel for _, launch in hopper.launches[before:]]
    assert once == [*(["divide_kernel"] if config.variant == "pod" else []), "schedule_kernel"]
    hopper.clear()
    for _ in range(3):
        run(plan, layer_of(batch))
    assert [launch.kernel for _, launch in hopper.launches] == 3 * ["hopper_kernel"]


def test_a_layer_off_alignment_launches_the_parts(hopper):
    """Once a plan, they begin; other layers keep the one launch."""
    batch, plan = plan_of(HOPPER[-1])
    layer = layer_of(batch)
    run(plan, layer)
    hopper.clear()
    for _ in range(2):
        run(plan, layer | {"q": shifted(batch.q)})
    kernels = [launch.kernel for _, launch in hopper.launches]
    assert "hopper_kernel" not in kernels and len(kernels) >= 4
    check_direct(hopper, plan, layer)
    assert [launch.kernel for launch in hopper.direct] == ["hopper_kernel"]


@pytest.mark.parametrize("config", HOPPER, ids=str)
def test_descriptors_follow_caches_that_move_and_keep_none_alive(config, hopper):
    batch, plan = plan_of(config)
    layer = layer_of(batch, **caches(batch, torch.clone))
    for _ in range(3):
        run(plan, layer)
    layer["k_cache"].set_(layer["k_cache"].clone())
    check_direct(hopper, plan, layer)
    hopper.clear()
    alive = [weakref.ref(layer[name]) for name in ("k_cache", "v_cache")]
    del layer
    gc.collect()
    assert [cache() for cache in alive] == [None, None]


@pytest.mark.parametrize("decodes, prompts", list(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)))
def test_the_launches_of_both_parts_are_direct(decodes, prompts, recorder):
    """And stand together in the cache of the whole plan: one look-up a layer."""
    configs = make_config(decodes), make_config(prompts, 32)
    for lens in (((1, 2, 20), (30, 40, 50)), ((8, 1, 1, 9, 30), (9, 400, 70, 20, 30))):
        batch = batch_of(lens)
        plan = batch.plan_in_parts(*configs)
        layers = [
            layer_of(batch, **CHANGES[name](batch)) for name in ("other tensors", "q off", "all", "fp8")
        ]
        for layer in layers:
            run(plan, layer)
        for layer in layers:
            check_direct(recorder, plan, layer)
            assert len(recorder.direct) > 1
    assert len(plan.launches) == len(layers)


def test_what_a_plan_launches_once_is_direct(many_splits, recorder):
    """What divides its batch, and what finds its splits."""
    batch = batch_of(((1, 2, 20), (30, 40, 50)))
    plans = [batch.plan_in_parts(make_config("qblock"), make_config("qblock", 32)) for _ in range(2)]
    (first,), (second,) = recorder.public, recorder.direct
    assert first.kernel == second.kernel == "divide_kernel"
    for launch, plan in zip((first, second), plans, strict=True):
        pointers = [part.cu_seqlens_q.data_ptr() for part in (*plan.parts, plan)]
        assert as_numbers(launch).arguments == [*pointers, 3, 2, 3, 2]
    recorder.clear()
    plan = [batch.plan(config=make_config(), for_capture=True) for _ in range(3)][-1]
    launches = [*recorder.public, *recorder.direct]
    assert [launch.grid for launch in (second, *launches)] == 4 * [(1, 1, 1)] and len(recorder.public) == 1
    pointers = (plan.workspace[-1].data_ptr(), batch.cu_seqlens_q.data_ptr(), batch.seqused_k.data_ptr())
    assert launches[-1].arguments[:3] == pointers


@pytest.mark.parametrize("variant", NAMES)
def test_a_new_plan_launches_directly_at_once(variant, recorder):
    """Another plan of the same config and model has compiled the kernels."""
    first, second = batch_of(), batch_of(((3, 2, 0, 7), (20, 50, 7, 9)))
    plan = first.plan(config=make_config(variant), check=False)
    for _ in range(2):
        run(plan, layer_of(first))
        run(plan, layer_of(first, lse=lse_of(first)))
        run(plan, layer_of(first, bidirectional_ranges=ranges_for(first)))
    recorder.clear()
    plan = second.plan(config=make_config(variant), check=False)
    layer = layer_of(second, k_cache=first.k_cache, v_cache=first.v_cache)
    rows = {"lse": lse_of(second), "bidirectional_ranges": ranges_for(second)}  # as many as the batch has
    for one in (layer, *(layer | {name: value} for name, value in rows.items())):
        run(plan, one)
        assert recorder.public == []
        assert recorder.direct
        check_direct(recorder, plan, one)
        recorder.clear()


def test_a_table_wider_than_32_bits_goes_through_triton(recorder):
    """Its stride is another type of argument, which the compiled kernel does not take."""
    batch = batch_of()
    wide = torch.empty_strided(batch.block_table.shape, (2**31, 1), dtype=torch.int32)
    plans = [
        dataclasses.replace(batch, block_table=table).plan(config=make_config("qblock"), check=False)
        for table in (wide, batch.block_table)
    ]
    for _ in range(3):
        recorder.clear()
        run(plans[0], layer_of(batch))
        assert 2**31 in as_numbers(recorder.public[0]).arguments
        assert not recorder.direct
        run(plans[1], layer_of(batch))
    check_direct(recorder, plans[1], layer_of(batch))


def replace_data(tensor, other):
    tensor.data = other


IN_PLACE = {
    "other memory": lambda layer: layer["k_cache"].set_(layer["k_cache"].clone()),
    "wider rows": lambda layer: layer["q"].set_(strided(layer["q"], 1, 8)),
    "wider slots": lambda layer: layer["v_cache"].set_(strided(layer["v_cache"], 2, 1)),
    "off": lambda layer: layer["out"].set_(shifted(layer["out"])),
    "swapped": lambda layer: layer["out"].transpose_(0, 1),
    "fewer pages": lambda layer: layer["v_cache"].resize_(1, *layer["v_cache"].shape[1:]),
    "fewer tokens": lambda layer: layer["q"].resize_(3, *layer["q"].shape[1:]),
    "column": lambda layer: layer["q"].set_(layer["q"].mT.contiguous().mT),
    "dtype": lambda layer: replace_data(layer["q"], layer["q"].bfloat16()),
    "dtype of the same memory": lambda layer: replace_data(
        layer["k_cache"], layer["k_cache"].view(torch.bfloat16)
    ),
    "slope": lambda layer: layer["alibi_slopes"].resize_(7),
    "sinks' dtype": lambda layer: replace_data(layer["sinks"], layer["sinks"].half()),
    "scale": lambda layer: layer["k_scale"].set_(torch.ones(2)),
    "lse": lambda layer: layer["lse"].resize_(8, 3),
}


@pytest.mark.parametrize("change", IN_PLACE)
def test_a_tensor_that_changes_in_place_is_read_again(change, many_splits, recorder):
    """It is launched as Triton would launch it now, or refused as a new tensor would be."""
    batch = batch_of()
    plan = batch.plan(config=make_config())
    layer = layer_of(
        batch,
        q=batch.q.clone(),
        k_cache=batch.k_cache.clone(),
        v_cache=batch.v_cache.clone(),
        alibi_slopes=torch.ones(8),
        sinks=torch.ones(8),
        k_scale=torch.ones(1),
        lse=lse_of(batch),
    )
    for _ in range(3):
        run(plan, layer)
    IN_PLACE[change](layer)
    recorder.clear()
    try:
        run(plan, layer)
    except (TypeError, ValueError) as error:
        assert not recorder.launches
        direct.forget()
        with pytest.raises(type(error)) as afresh:
            run(batch.plan(config=make_config()), layer)
        assert str(afresh.value) == str(error)
    else:
        check_direct(recorder, plan, layer)


def test_a_smaller_cache_lacks_pages_for_another_plan(recorder):
    """Page ids are checked anew where another plan has launched the signature."""
    batch = batch_of()
    pages = batch.plan(config=make_config("qblock")).batch.max_page_id
    few = layer_of(batch, k_cache=batch.k_cache[:pages], v_cache=batch.v_cache[:pages])
    careless = batch.plan(config=make_config("qblock"), check=False)
    for _ in range(2):
        run(careless, few)
    with pytest.raises(ValueError, match="block_table"):
        run(batch.plan(config=make_config("qblock")), few)


def test_layers_of_another_batch_are_refused(recorder):
    """Even after a plan for that batch has launched them directly."""
    first, second = batch_of(), batch_of(((3, 2), (20, 50)))
    plans = [batch.plan(config=make_config("qblock"), check=False) for batch in (first, second)]
    for batch, plan in zip((first, second), plans, strict=True):
        for _ in range(3):
            run(plan, layer_of(batch))
    recorder.clear()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^q "):
            run(first.plan(config=make_config("qblock"), check=False), layer_of(second))
        with pytest.raises(ValueError, match=r"^q "):
            run(plans[0], layer_of(second))
    assert not recorder.direct


def test_unaligned_partial_results_go_through_triton(many_splits, recorder):
    """A kernel is compiled for the alignment of their addresses."""
    batch, config = batch_of(), make_config()
    workspace = Workspace.for_maxima("cpu", batch.model, max_query_tokens=4, max_num_seqs=3)
    partials, *others = workspace._partials
    off = dataclasses.replace(workspace, _partials=(shifted(partials), *others))
    for _ in range(3):
        for room in (workspace, off):
            plan = batch.plan(config=config, check=False, workspace=room)
            recorder.clear()
            run(plan, layer_of(batch))
            assert len(recorder.public) == 2 or room is workspace
    check_direct(recorder, batch.plan(config=config, check=False, workspace=workspace), layer_of(batch))


def test_hooks_hear_of_every_launch(recorder):
    batch, heard = batch_of(), []
    plan = batch.plan(config=make_config("qblock"))
    for _ in range(3):
        run(plan, layer_of(batch))
        with hooked(heard.append):
            run(plan, layer_of(batch))
    assert len(heard) == 3
    assert len(recorder.direct) == 2


@pytest.mark.parametrize("reason", ["environment", "amd", "launch_enter_hook", "launch_exit_hook"])
def test_where_triton_makes_every_launch(reason, recorder, monkeypatch):
    """A function may stand in a chain of hooks' place, and so may None."""
    batch = batch_of()
    if reason == "amd":
        monkeypatch.setattr(torch.version, "hip", "7.0")
        monkeypatch.setattr(triton.runtime.driver.active, "get_current_target", lambda: TARGETS["amd"])
    elif reason == "environment":
        monkeypatch.setenv(direct.VARIABLE, "public")
    else:
        monkeypatch.setattr(knobs.runtime, reason, None)
        plan = batch.plan(config=make_config("qblock"))
        for _ in range(2):
            run(plan, layer_of(batch))
        assert len(recorder.direct) == 1
        recorder.clear()
        monkeypatch.setattr(knobs.runtime, reason, print)
    plan = batch.plan(config=make_config("qblock"))
    for _ in range(3):
        run(plan, layer_of(batch))
    assert (len(recorder.public), len(recorder.direct)) == (3, 0)


def test_the_environment_says_what_it_may(recorder, monkeypatch):
    monkeypatch.setenv(direct.VARIABLE, "fast")
    batch = batch_of()
    with pytest.raises(ValueError, match="ATTN_KERNELS_LAUNCH"):
        run(batch.plan(config=make_config("qblock")), layer_of(batch))


def test_outputs_that_overlap_are_refused_in_direct_launches_too(recorder):
    batch = batch_of()
    plan, layer = batch.plan(config=make_config()), layer_of(batch)
    for _ in range(2):
        run(plan, layer)
    recorder.clear()
    with pytest.raises(ValueError, match="out overlaps q"):
        run(plan, layer | {"out": layer["q"]})
    assert not recorder.launches
    run(plan, layer)
    assert len(recorder.direct) == 1


# From several threads, in forked children and on several devices


def test_threads_share_compiled_kernels_and_nothing_else(many_splits, recorder, monkeypatch):
    """Each launch of many threads has one thread's addresses and its stream."""
    streams = threading.local()
    monkeypatch.setattr(direct, "current_stream", lambda device: streams.mine)
    config, seen = make_config(), {}
    batches = [batch_of() for _ in range(4)]
    together = threading.Barrier(4)

    def work(number):
        streams.mine = number
        batch = batches[number]
        together.wait()
        for _ in range(50):
            plan = batch.plan(config=config, check=False)
            layer = layer_of(batch)
            for _ in range(3):
                run(plan, layer)
            seen.setdefault(number, []).append((plan, layer))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(recorder.direct) + len(recorder.public) == 4 * 50 * 3 * 2
    # Each thread binds the two kernels at most once, and launches what each bound at most once by Triton.
    assert len(recorder.public) <= 4 * 4 * 2
    main = [launch for launch in recorder.direct if launch.kernel == "qblock_kernel"]
    for launch in main:
        q, k = launch.arguments[1:3]
        batch = batches[launch.stream]
        assert (q, k) == (batch.q.data_ptr(), batch.k_cache.data_ptr())
    outs = {(number, layer["out"].data_ptr()) for number, found in seen.items() for _, layer in found}
    assert {(launch.stream, launch.arguments[0]) for launch in recorder.direct} <= outs


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_drops_compiled_kernels(recorder):
    """It launches no kernel of its parent, not even by a plan of its parent."""
    batch = batch_of()
    plan = batch.plan(config=make_config("qblock"))
    for _ in range(2):
        run(plan, layer_of(batch))
    recorder.clear()
    child = os.fork()
    if child == 0:
        for _ in range(2):
            run(plan, layer_of(batch))
        os._exit(10 * len(recorder.public) + len(recorder.direct))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 11, "the first launch through Triton, the second directly"
    run(plan, layer_of(batch))
    assert (len(recorder.public), len(recorder.direct)) == (0, 1), "the parent goes on"


def test_devices_have_launches_of_their_own():
    config, model = make_config("qblock"), batch_of().model
    found = [choices_for(model, torch.device("cuda", i)).launch_cache(config, False) for i in (0, 1, 0)]
    assert found[0] is found[2] is not found[1]


def test_another_current_device_is_left_as_it_was(recorder, monkeypatch):
    current, visited = [1], []

    @contextlib.contextmanager
    def device(index):
        visited.append(index)
        current.append(index)
        yield
        current.pop()

    monkeypatch.setattr(direct, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    batch = batch_of()
    plan = batch.plan(config=make_config("qblock"))
    for _ in range(2):
        run(plan, layer_of(batch))
    check_direct(recorder, plan, layer_of(batch))
    assert set(visited) == {None}, "the index of the CPU's device"
    assert current == [1]

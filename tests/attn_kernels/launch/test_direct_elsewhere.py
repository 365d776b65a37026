"""Direct launches from several threads, in forked children and on several devices."""

import contextlib
import os
import threading

import pytest
import torch
from kernel_cases import make_config
from launch_recorder import batch_of, check_direct, layer_of, run

from attn_kernels.choose.choices import choices_for
from attn_kernels.launch import direct


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

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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

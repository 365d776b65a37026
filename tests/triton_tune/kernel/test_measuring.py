"""How many calls are made ready to time a launch with cold caches, and what compiles a kernel elsewhere."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_tune.bench.timing import BYTES_PER_US
from triton_tune.kernel import measuring
from triton_tune.kernel.autotuned import Launch
from triton_tune.kernel.batches import without_memory
from triton_tune.kernel.measuring import CompileJob, KernelFile, Sets, loaded
from triton_tune.kernel.workload import file_of, workload_on

CPU = torch.device("cpu")
FILE = Path(__file__).parents[2] / "helpers" / "scaled_kernel.py"
CACHE, MEMORY = 1 << 24, 1 << 30


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "cache_bytes", lambda device: CACHE)
    monkeypatch.setattr(measuring, "memory_bytes", lambda device: MEMORY)


def sets_of(size: int) -> Sets:
    """Launches whose tensors have so many bytes."""
    return Sets(lambda seed, config: (Launch((torch.empty(size, dtype=torch.int8), seed), {}, (1,)),))


def us_to_read(size: int) -> float:
    return 1.0001 * size / BYTES_PER_US + measuring.IDLE_US


@pytest.mark.parametrize(("size", "read", "first", "then", "warm"), [
    (CACHE, CACHE, 3, 3, False),  # all of it, once
    (8 * CACHE, 8 * CACHE, 1, 1, False),
    (2 * CACHE, CACHE // 2, 2, 6, False),  # a quarter, as of experts' weights
    (CACHE, 1 << 40, 3, 3, False),  # computes for longer than it reads
    (8 * CACHE, CACHE // 8, 1, 4, True),  # half of the memory is too little for 24
    (1 << 10, 1 << 10, 32, 32, False),
])  # fmt: skip
def test_a_launch_that_reads_little_of_its_tensors_gets_more_of_them(
    size: int, read: int, first: int, then: int, warm: bool
) -> None:
    sets = sets_of(size)
    assert sets.grow(None, CPU) and len(sets.launches) == first and not sets.warm
    assert sets.grow(None, CPU, us_to_read(read)) is (then > first)
    assert len(sets.launches) == then and sets.warm is warm
    assert not sets.grow(None, CPU, us_to_read(read))
    assert [launch.args[1] for (launch,) in sets.launches] == [*range(then)]  # by their seeds


def test_sets_are_made_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAKING_S", 0)
    sets = sets_of(1 << 10)
    assert sets.grow(None, CPU) and len(sets.launches) == 1


def test_a_launch_goes_to_other_processes_without_the_memory_of_its_tensors() -> None:
    x = torch.zeros(64, 32, dtype=torch.float16)
    sent = without_memory(
        Launch((x.T, TensorDescriptor.from_tensor(x, [16, 16])), {"n": 3}, lambda meta: (1,))
    )
    assert sent is not None and len(sent) < 2000
    tensor, descriptor = pickle.loads(sent).args
    assert tensor.is_meta and descriptor.base.is_meta and pickle.loads(sent).kwargs == {"n": 3}
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((32, 64), (1, 32), torch.float16)
    assert descriptor.block_shape == [16, 16]


@pytest.mark.parametrize("argument", [torch.zeros(8)[1:], lambda: None])
def test_what_cannot_be_sent_is_made_again(argument: Any) -> None:
    """An address that is no multiple of 16 would compile another kernel."""
    assert without_memory(Launch((argument,), {}, (1,))) is None


def test_processes_that_compile_make_no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    file = KernelFile(FILE, "scaled")
    workload = workload_on(file_of(FILE, "scaled"), CPU)
    made: list[object] = []
    monkeypatch.setattr(measuring, "make", lambda *given: made.append(given))
    for shape in workload.scenarios.values():
        CompileJob(shape, next(iter(loaded(file).kernel.configs)), CPU).run(CPU)
    assert not made

"""Arguments, launches and comparisons of a kernel under tuning, and how launches are timed and compiled."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._pytree import tree_map
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_tune.bench.timing import BYTES_PER_US
from triton_tune.kernel import measuring
from triton_tune.kernel.autotuned import AutotunedKernel, Launch
from triton_tune.kernel.batches import disagreement, first_launch, make, on_copies, result_of, without_memory
from triton_tune.kernel.measuring import Sets
from triton_tune.kernel.tuning import load_tunings

CPU = torch.device("cpu")
FILE = Path(__file__).parents[2] / "helpers" / "scaled_kernel.py"


@pytest.fixture(scope="module")
def scaled():
    tuning = load_tunings(FILE)["scaled"]
    return AutotunedKernel(tuning.kernel), tuning


ONES = torch.ones(4)


@pytest.mark.parametrize(("result", "expected", "same"), [
    (ONES, ONES, True),
    (ONES * 1.001, ONES, True),
    (ONES * 1.01, ONES, False),
    (ONES.half() * 1.005, ONES, True),
    (ONES[:3], ONES, False),
    (torch.tensor([1.0, torch.nan]), torch.ones(2), False),
    (torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, -torch.inf]), True),
    (torch.tensor([1.0, torch.inf]), torch.tensor([1.0, -torch.inf]), False),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
    (torch.tensor([2]), torch.tensor([2.9]), False),
    (torch.full((4,), torch.nan), torch.full((4,), torch.nan), True),
    (torch.tensor([torch.finfo(torch.float32).max]), torch.tensor([torch.inf]), False),
    ((ONES, ONES), [ONES, ONES], True),
    ((ONES,), [ONES, ONES], False),
    (None, None, False),  # nothing was compared
    (torch.zeros(3), torch.zeros(3), True),
    (torch.full((3,), 1e-9), torch.zeros(3), False),
    (torch.ones(0), torch.ones(0), True),
])  # fmt: skip
def test_results_are_compared_with_the_references_magnitude(result, expected, same):
    assert (disagreement(result, expected, None) is None) is same


@pytest.mark.parametrize(("result", "place"), [
    ((ONES, ONES * 2), "output[1]"), ({"y": ONES, "sums": ONES * 2}, "output['sums']"), (ONES * 2, "error"),
])  # fmt: skip
def test_of_several_outputs_the_one_that_disagrees_is_named(result, place):
    expected = tree_map(torch.ones_like, result)
    assert str(disagreement(result, expected, None)).startswith(place)
    assert disagreement(ONES * 1.09, ONES, 0.1) is None is not disagreement(ONES * 1.0001, ONES, 0.0)


def test_arguments_repeat_are_copied_and_memory_is_poisoned(scaled):
    kernel, tuning = scaled
    shape = {"size": 40, "flag": True, "dtype": torch.float32}
    one, same, other = (make(tuning, shape, CPU, seed) for seed in (0, 0, 1))
    assert torch.equal(one.args[0], same.args[0]) and not torch.equal(one.args[0], other.args[0])
    on_copies(one, lambda x, flag: x.zero_())
    assert torch.equal(one.args[0], same.args[0])
    for made in (1, (1,), {"x": 1}):
        identity = replace(tuning, call=lambda x: x, arguments=lambda made=made: made)
        assert on_copies(make(identity, {}, CPU)) == 1
    call = make(tuning, tuning.shapes[-1], CPU)
    partial = kernel.configs["B16_M3_W1_S1"].config
    assert result_of(kernel, call, partial).isnan().sum() == 16
    assert not torch.are_deterministic_algorithms_enabled()
    assert "run" not in vars(tuning.kernel)  # the kernel is as it was


def test_pruning_parts_what_may_not_run_from_what_is_slow(scaled):
    kernel, tuning = scaled
    launch = first_launch(kernel, make(tuning, tuning.shapes[0], CPU))  # of seven values
    kept, excluded = kernel.pruned(launch)
    assert excluded == {"B32_M0_W1_S1", "B64_M0_W1_S1"} and set(kept) == set(kernel.configs) - excluded
    kernel.tuner.perf_model, kernel.tuner.configs_top_k = lambda MODE, **others: -MODE, 2
    try:
        kept, excluded = kernel.pruned(launch)
    finally:
        kernel.tuner.perf_model = None
    assert kept == ("B16_M3_W1_S1", "B16_M1_W1_S1") and len(excluded) == 2


def launch_of(*values):
    return Launch(values, {}, (1,))


def test_specialisation_is_as_fine_as_tritons(scaled):
    kernel, _ = scaled
    x = torch.zeros(64)
    sizes = ((32, True), (48, True), (1, True), (7, True), (2**40, True), (32, False))
    values = [(x, x, *size) for size in sizes] + [(x.half(), x, 32, True), (x[1:], x, 32, True)]
    values += [((x, 32), x, 32, True), ((x.half(), 32), x, 32, True), ((x, 33), x, 32, True)]
    keys = [kernel.specialisation(launch_of(*each)) for each in values]
    assert keys[0] == keys[1] and len(set(keys)) == len(keys) - 1


def test_parameters_of_configs_are_integers():
    def kernel(x_ptr, B, EVEN):
        pass

    configs = [
        triton.Config({"B": 16, "EVEN": True}, num_ctas=2),
        triton.Config({"B": 16, "EVEN": False}, maxnreg=128),
        triton.Config({"B": 16, "EVEN": True}, num_ctas=2),
    ]
    found = AutotunedKernel(triton.autotune(configs=configs, key=[])(triton.jit(kernel))).configs
    first, second = found.values()
    own = {"B": 16, "EVEN": 1, "num_warps": 4, "num_stages": 3}
    assert dict(first.parameters) == own | {"num_ctas": 2, "maxnreg": 0}
    assert second.parameters["maxnreg"] == 128 and second.parameters["num_ctas"] == 1


@triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 64)], key=["N"])
@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0})
@triton.jit
def with_computed_constant(x_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)


def test_shapes_share_a_compiled_kernel_only_with_the_same_computed_constants():
    kernel = AutotunedKernel(with_computed_constant)
    even, as_even, partly = (kernel.specialisation(Launch((ONES, n), {}, (1,))) for n in (64, 128, 80))
    assert even == as_even != partly  # the last is no multiple of the larger block


CACHE, MEMORY = 1 << 24, 1 << 30


@pytest.fixture(autouse=True)
def device(monkeypatch):
    monkeypatch.setattr(measuring, "cache_bytes", lambda device: CACHE)
    monkeypatch.setattr(measuring, "memory_bytes", lambda device: MEMORY)


def sets_of(size):
    """Launches whose tensors have so many bytes."""
    return Sets(lambda seed, config: (Launch((torch.empty(size, dtype=torch.int8), seed), {}, (1,)),))


def us_to_read(size):
    return 1.0001 * size / BYTES_PER_US + measuring.IDLE_US


@pytest.mark.parametrize(("size", "read", "first", "then", "warm"), [
    (CACHE, CACHE, 3, 3, False),  # all of it, once
    (8 * CACHE, 8 * CACHE, 1, 1, False),
    (2 * CACHE, CACHE // 2, 2, 6, False),  # a quarter, as of experts' weights
    (CACHE, 1 << 40, 3, 3, False),  # computes for longer than it reads
    (8 * CACHE, CACHE // 8, 1, 4, True),  # half of the memory is too little for 24
    (1 << 10, 1 << 10, 32, 32, False),
])  # fmt: skip
def test_a_launch_that_reads_little_of_its_tensors_gets_more_of_them_for_a_limited_time(
    monkeypatch, size, read, first, then, warm
):
    sets = sets_of(size)
    assert sets.grow(None, CPU) and len(sets.launches) == first and not sets.warm
    assert sets.grow(None, CPU, us_to_read(read)) is (then > first)
    assert len(sets.launches) == then and sets.warm is warm
    assert not sets.grow(None, CPU, us_to_read(read))
    assert [launch.args[1] for (launch,) in sets.launches] == [*range(then)]  # by their seeds
    monkeypatch.setattr(measuring, "MAKING_S", 0)
    sets = sets_of(size)
    assert sets.grow(None, CPU) and len(sets.launches) == 1


@pytest.mark.parametrize("given", [
    lambda x: (TensorDescriptor(x, [len(x)], [1], [16]),),
    lambda x: ((x, 3), 1.0),
])  # fmt: skip
def test_tensors_of_descriptors_and_tuples_are_counted(given):
    """Else a launch of large ones gets so many of them that the memory is full."""
    sets = Sets(
        lambda seed, config: (Launch(given(torch.empty(2 * CACHE, dtype=torch.int8)), {"n": seed}, (1,)),)
    )
    assert sets.grow(None, CPU) and len(sets.launches) == 2


def test_a_launch_goes_to_other_processes_without_the_memory_of_its_tensors():
    x = torch.zeros(64, 32, dtype=torch.float16)
    sent = without_memory(
        Launch((x.T, TensorDescriptor.from_tensor(x, [16, 16])), {"n": 3}, lambda meta: (1,))
    )
    assert sent is not None and len(sent) < 2000
    tensor, descriptor = pickle.loads(sent).args
    assert tensor.is_meta and descriptor.base.is_meta and pickle.loads(sent).kwargs == {"n": 3}
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((32, 64), (1, 32), torch.float16)
    assert descriptor.block_shape == [16, 16]
    # What cannot be sent is made again; an address that is no multiple of 16 would compile another kernel.
    assert without_memory(launch_of(torch.zeros(8)[1:])) is without_memory(launch_of(lambda: None)) is None

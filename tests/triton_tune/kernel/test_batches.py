"""Arguments, launches and comparisons of a kernel under tuning."""

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._pytree import tree_map
from triton.runtime.jit import JITFunction

from triton_tune.core.errors import TuningError
from triton_tune.kernel.autotuned import AutotunedKernel, Launch
from triton_tune.kernel.batches import Arguments, disagreement, first_launch, make, result_of
from triton_tune.kernel.tuning import Tuning, load_tunings

CPU = torch.device("cpu")
FILE = Path(__file__).parents[2] / "helpers" / "scaled_kernel.py"


@pytest.fixture(scope="module")
def scaled() -> tuple[AutotunedKernel, Tuning]:
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
def test_results_are_compared_with_the_references_magnitude(result: Any, expected: Any, same: bool) -> None:
    assert (disagreement(result, expected, None) is None) is same


@pytest.mark.parametrize(("result", "place"), [
    ((ONES, ONES * 2), "output[1]"), ({"y": ONES, "sums": ONES * 2}, "output['sums']"), (ONES * 2, "error"),
])  # fmt: skip
def test_of_several_outputs_the_one_that_disagrees_is_named(result: Any, place: str) -> None:
    expected = tree_map(torch.ones_like, result)
    assert str(disagreement(result, expected, None)).startswith(place)


def test_a_tolerance_is_the_users() -> None:
    assert disagreement(ONES * 1.09, ONES, 0.1) is None is not disagreement(ONES * 1.0001, ONES, 0.0)


def test_arguments_repeat_with_their_seed_and_are_copied(scaled: tuple[AutotunedKernel, Tuning]) -> None:
    shape = {"size": 40, "flag": True, "dtype": torch.float32}
    one, same, other = (make(scaled[1], shape, CPU, seed) for seed in (0, 0, 1))
    assert torch.equal(one.args[0], same.args[0]) and not torch.equal(one.args[0], other.args[0])
    one.pass_to(lambda x, flag: x.zero_())
    assert torch.equal(one.args[0], same.args[0])
    assert Arguments({"x": 1}).pass_to(lambda x: x) == 1 == Arguments(1).pass_to(lambda x: x)


def test_unwritten_memory_is_poisoned(scaled: tuple[AutotunedKernel, Tuning]) -> None:
    kernel, tuning = scaled
    arguments = make(tuning, tuning.shapes[-1], CPU)
    partial = kernel.configs["B16_M3_W1_S1"].config
    assert result_of(kernel, tuning, arguments, partial).isnan().sum() == 16
    assert not torch.are_deterministic_algorithms_enabled()
    assert "run" not in vars(tuning.kernel)  # the kernel is as it was


def test_pruning_parts_what_may_not_run_from_what_is_not_timed(
    scaled: tuple[AutotunedKernel, Tuning],
) -> None:
    kernel, tuning = scaled
    launch = first_launch(kernel, tuning, make(tuning, tuning.shapes[0], CPU))  # of seven values
    assert launch is not None
    kept, excluded = kernel.pruned(launch)
    assert excluded == {"B32_M0_W1_S1", "B64_M0_W1_S1"} and set(kept) == set(kernel.configs) - excluded
    kernel.tuner.perf_model, kernel.tuner.configs_top_k = lambda MODE, **others: -MODE, 2
    try:
        kept, excluded = kernel.pruned(launch)
    finally:
        kernel.tuner.perf_model = None
    assert kept == ("B16_M3_W1_S1", "B16_M1_W1_S1") and len(excluded) == 2


def launch_of(*values: Any) -> Launch:
    return Launch(values, {}, (1,))


def test_specialisation_is_as_fine_as_tritons(scaled: tuple[AutotunedKernel, Tuning]) -> None:
    kernel, _ = scaled
    x = torch.zeros(64)
    keys = [
        kernel.specialisation(launch_of(*values))
        for values in (
            (x, x, 32, True),
            (x, x, 48, True),
            (x, x, 1, True),
            (x, x, 7, True),
            (x, x, 2**40, True),
            (x, x, 32, False),
            (x.half(), x, 32, True),
            (x[1:], x, 32, True),
        )
    ]
    assert keys[0] == keys[1] and len(set(keys)) == len(keys) - 1


def test_arguments_that_triton_does_not_specialise_compile_once() -> None:
    def kernel(x_ptr, M, N, B):
        pass

    jitted = JITFunction(kernel, do_not_specialize=["M"])
    tuned = AutotunedKernel(triton.autotune(configs=[triton.Config({"B": 1})], key=["M"])(jitted))
    x = torch.zeros(64)
    first, other_m, long_m, other_n = (
        tuned.specialisation(Launch((x, m, n), {}, (1,)))
        for m, n in ((1, 16), (33, 16), (1 << 31, 16), (1, 1))
    )
    assert first == other_m and len({first, long_m, other_n}) == 3


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([triton.Config({"B": "fast"})], "B is 'fast', but tables hold integers"),
        ([triton.Config({"B": 1}), triton.Config({"C": 1})], "lacks C, which other configs have"),
        ([triton.Config({"B": 1}, ir_override="x.ttgir")], "ir_override is no launch parameter"),
    ],
)
def test_configs_that_no_table_holds(configs: list[triton.Config], message: str) -> None:
    def kernel(x_ptr, B, C):
        pass

    with pytest.raises(TuningError, match=message):
        AutotunedKernel(triton.autotune(configs=configs, key=[])(triton.jit(kernel)))


def test_parameters_of_configs_are_integers() -> None:
    def kernel(x_ptr, B, EVEN):
        pass

    configs = [
        triton.Config({"B": 16, "EVEN": True}, num_ctas=2),
        triton.Config({"B": 16, "EVEN": False}, maxnreg=128),
        triton.Config({"B": 16, "EVEN": True}, num_ctas=2),
    ]
    found = AutotunedKernel(triton.autotune(configs=configs, key=[])(triton.jit(kernel))).configs
    first, second = found.values()
    assert dict(first.parameters) == {
        "B": 16,
        "EVEN": 1,
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 2,
        "maxnreg": 0,
    }
    assert second.parameters["maxnreg"] == 128 and second.parameters["num_ctas"] == 1


@triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 64)], key=["N"])
@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0})
@triton.jit
def with_computed_constant(x_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)


def test_shapes_share_a_compiled_kernel_only_with_the_same_computed_constants() -> None:
    kernel = AutotunedKernel(with_computed_constant)
    even, as_even, partly = (kernel.specialisation(Launch((ONES, n), {}, (1,))) for n in (64, 128, 80))
    assert even == as_even != partly  # the last is no multiple of the larger block

"""Measuring in Triton's interpreter: what is timed, and what a config fails of."""

import math
from collections.abc import Callable

import pytest
import torch
from triton.runtime.errors import OutOfResources

from attn_kernels.choose.mixed import SERIES
from attn_kernels.core.config import Config
from attn_kernels.measure import tensors
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.bench import gpu
from attn_kernels.tuning.kernels import MIXED
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of
from triton_tune.bench.failures import OUT_OF_MEMORY, TOO_LARGE
from tuning_table.table import Cell, Failure

CPU = torch.device("cpu")
SCENARIO = scenario_of("a", (1, 2), (5, 2), Shape(HeadLayout(2, 1, 16)))
CONFIGS = [Config.parse(f"naive_M1_T32_W{warps}_S{stages}") for warps in (1, 2, 4) for stages in (1, 2)]
ONE = CONFIGS[0]


def measured(*configs: Config, repeat: int = 1) -> dict[Config, Cell]:
    return dict(gpu.measure(SCENARIO, configs, repeat, CPU))


def breaking(monkeypatch: pytest.MonkeyPatch, harm: Callable[[torch.Tensor], None]) -> None:
    """After each launch, `harm` gets its output."""
    run = tensors.run

    def harmed(*arguments: object, **keywords: object) -> None:
        run(*arguments, **keywords)
        harm(keywords["out"])

    monkeypatch.setattr(tensors, "run", harmed)


def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches do nothing, and are right."""
    monkeypatch.setattr(tensors, "run", lambda *arguments, **keywords: None)
    monkeypatch.setattr(gpu, "check", lambda out, expected: Right)


class Right:
    ok = True


def test_a_correct_config_of_each_variant_has_a_time() -> None:
    configs = [ONE, Config.parse("segmented_M16_T32_N4_W4_S2"), Config.parse("split_M64_T32_W4_S2")]
    cells = measured(*configs)
    assert set(cells) == set(configs)
    assert all(isinstance(cell, float) and math.isfinite(cell) and cell > 0.0 for cell in cells.values())


@pytest.mark.parametrize(
    ("queries", "contexts"), [((70, 0), (70, 90)), ((0, 1, 0), (0, 9, 3)), ((1, 1, 0), (4, 5, 0))]
)
def test_padding_has_no_rows_to_compare(queries: tuple[int, ...], contexts: tuple[int, ...]) -> None:
    scenario = scenario_of("padded", queries, contexts, Shape(HeadLayout(1, 1, 16)))
    config = Config.parse("qblock_M16_T32_W4_S2")
    (cell,) = dict(gpu.measure(scenario, [config], 1, CPU)).values()
    assert isinstance(cell, float)


def test_tensors_that_cannot_be_made_fail_every_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def materialise(*arguments: object, **keywords: object) -> None:
        raise RuntimeError("too large")

    monkeypatch.setattr(gpu, "materialise", materialise)
    assert measured(*CONFIGS) == dict.fromkeys(CONFIGS, Failure("raised RuntimeError"))


def one_element(out: torch.Tensor) -> None:
    out[2, 1, 3] += 1.0


def one_unwritten(out: torch.Tensor) -> None:
    out[1, 0, 15] = math.nan


def infinite(out: torch.Tensor) -> None:
    out[0, 0, 0] = math.inf


@pytest.mark.parametrize("harm", [one_element, one_unwritten, infinite, torch.Tensor.zero_])
def test_a_wrong_result_has_no_time(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[torch.Tensor], None]
) -> None:
    breaking(monkeypatch, harm)
    assert measured(ONE) == {ONE: Failure("disagrees with the reference")}


def test_a_mixed_batch_in_series_is_timed_and_compared_with_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = MIXED.sets["tiny"](0)[0]
    cells = dict(gpu.measure(step, [SERIES, Config.parse("naive_M1_T32_W1_S1")], 1, CPU))
    assert all(isinstance(cell, float) and cell > 0.0 for cell in cells.values())
    breaking(monkeypatch, one_element)
    assert dict(gpu.measure(step, [SERIES], 1, CPU)) == {SERIES: Failure("disagrees with the reference")}


def test_what_an_earlier_config_left_does_not_pass_as_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    run, launches = tensors.run, []

    def only_first(*arguments: object, **keywords: object) -> None:
        launches.append(1)
        if len(launches) <= 2:  # the check and the timing of the first config
            run(*arguments, **keywords)

    monkeypatch.setattr(tensors, "run", only_first)
    first, second = gpu.measure(SCENARIO, CONFIGS[:2], 1, CPU)
    assert isinstance(first[1], float) and second[1] == Failure("disagrees with the reference")


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError("no"), "raised RuntimeError"),
    (KeyError("no"), "raised KeyError"),
    (OutOfResources(300000, 232448, "shared memory"), TOO_LARGE),
    (torch.OutOfMemoryError("no"), OUT_OF_MEMORY),
])  # fmt: skip
def test_a_launch_that_raises_fails_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    idle(monkeypatch)
    bad = CONFIGS[2]

    def plan(tensors: object, config: Config) -> object:
        if config == bad:
            raise error
        return plan_for(tensors, config)

    plan_for = gpu.plan_for
    monkeypatch.setattr(gpu, "plan_for", plan)
    cells = measured(*CONFIGS)
    assert cells.pop(bad) == Failure(reason)
    assert len(cells) == len(CONFIGS) - 1 and all(isinstance(cell, float) for cell in cells.values())


def test_an_interrupt_is_no_failure_of_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensors, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(ONE)


def test_a_scenario_that_does_not_fit_fails_in_every_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **keywords: object) -> None:
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(gpu, "materialise", full)
    assert measured(*CONFIGS) == dict.fromkeys(CONFIGS, Failure(OUT_OF_MEMORY))


def test_the_repeat_and_the_scenario_shuffle_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    idle(monkeypatch)

    def order(scenario: str, repeat: int) -> list[Config]:
        there = scenario_of(scenario, (1,), (1,), Shape(HeadLayout(1, 1, 16)))
        tried: list[Config] = []
        found = [config for config, _ in gpu.measure(there, CONFIGS, repeat, CPU, tried.append)]
        assert tried == found and sorted(found) == sorted(CONFIGS)
        return found

    orders = [order("a", 1), order("a", 2), order("b", 1), CONFIGS]
    assert order("a", 1) == orders[0] and order("b", 1) == orders[2]
    assert len({tuple(one) for one in orders}) == 4


def test_tensors_are_drawn_anew_each_repeat_but_the_same_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(gpu, "check", lambda out, expected: Right)
    monkeypatch.setattr(tensors, "run", lambda plan, q, *others, **keywords: seen.append(q.clone()))
    for repeat in (1, 1, 2):
        measured(ONE, repeat=repeat)
    first, again, other = seen[::2]
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_config_is_announced_before_it_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    message: list[str] = []
    monkeypatch.setattr(gpu, "check", lambda out, expected: Right)
    monkeypatch.setattr(tensors, "run", lambda *arguments, **keywords: message.append("launch"))
    list(gpu.measure(SCENARIO, CONFIGS[:2], 1, CPU, lambda config: message.append("message")))
    assert message == ["message", "launch", "launch"] * 2

"""The jobs that compile ahead for a scenario and a config."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from attn_kernels.choose.choices import Choices, choices_for
from attn_kernels.choose.mixed import SERIES, WHOLE, WITHOUT_KERNEL
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.structures import Plan
from attn_kernels.measure import tensors
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.bench.compiling import ChosenJob, CompileJob, job_for
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of, shape_of
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from triton_tune.processes.compile_ahead import minimal

CPU = torch.device("cpu")
STEP = STEP_SETS["tiny"](0)[0].batch


def test_a_config_of_whole_batches_compiles_at_its_shape() -> None:
    config = Config.parse("naive_M1_T32_W4_S2")
    job = job_for(STEP, config, CPU)
    assert job == CompileJob(shape_of(STEP), config)
    job.run(CPU)


@pytest.mark.parametrize(("way", "tokens"), [(SERIES, (3, 12)), (WHOLE, (15,))])
def test_ways_without_a_kernel_compile_what_is_chosen(
    way: Config, tokens: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_tokens = {
        3: Config("split", 16, 32),
        12: Config("qblock", 16, 32),
        15: Config("segmented", 16, 32, num_segments=2),
    }

    step = scenario_of("a", (1, 2, 12), (30, 9, 40), Shape(HeadLayout(2, 1, 16))).batch
    monkeypatch.setattr(Choices, "config", lambda self, lengths: by_tokens[lengths.num_query_tokens])
    job = job_for(step, way, CPU)
    assert job == ChosenJob(step, way, tuple(by_tokens[count] for count in tokens))
    assert pickle.loads(pickle.dumps(job)) == job
    alone = CompileJob(shape_of(step), by_tokens[tokens[0]])
    assert not job.needs & alone.needs  # its launches take other arguments


@pytest.mark.parametrize("way", WITHOUT_KERNEL)
def test_ways_without_a_kernel_launch_the_shipped_choices(
    way: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = []
    run = tensors.run

    def note(plan: Plan, *arguments: Any, **keywords: Any) -> Any:
        launched.append(tuple(part.config for part in plan.parts or (plan,)))
        return run(plan, *arguments, **keywords)

    monkeypatch.setattr(tensors, "run", note)
    job = job_for(STEP, way, CPU)
    assert isinstance(job, ChosenJob)
    job.run(CPU)
    choices = choices_for(STEP.model, CPU)
    whole = (Lengths.of(STEP.query_lens, STEP.context_lens),)
    lengths = STEP.parts if way == SERIES else whole
    assert launched == [tuple(map(choices.config, lengths))]
    assert launched[0] == job.configs


def test_equal_choices_compile_once() -> None:
    jobs = [job_for(scenario.batch, SERIES, CPU) for scenario in STEP_SETS["tiny"](0)]
    assert len(minimal(jobs)) == 2  # one for each shape: on a CPU the choice is always the same

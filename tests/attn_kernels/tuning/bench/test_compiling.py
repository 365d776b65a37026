"""The jobs that compile ahead for a scenario and a config."""

from __future__ import annotations

import pickle

import pytest
import torch

from attn_kernels.choose.heuristic import choose_for_device
from attn_kernels.choose.mixed import SERIES
from attn_kernels.core.config import Config, complete
from attn_kernels.measure import tensors
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.planning.make import chosen
from attn_kernels.tuning.bench import compiling
from attn_kernels.tuning.bench.compiling import CompileJob, SeriesJob, job_for
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of, shape_of
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from attn_kernels.warmup.jobs import minimal

CPU = torch.device("cpu")
STEP = STEP_SETS["tiny"](0)[0].batch


def test_a_config_of_whole_batches_compiles_at_its_shape() -> None:
    config = Config.parse("naive_M1_T32_W4_S2")
    job = job_for(STEP, config, CPU)
    assert job == CompileJob(shape_of(STEP), config)
    job.run(CPU)


def test_series_compiles_what_is_chosen_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    by_tokens = {3: Config("split", 16, 32), 12: Config("qblock", 16, 32)}

    def choose(*, num_query_tokens: int, **features: int) -> Config:
        return by_tokens[num_query_tokens]

    step = scenario_of("a", (1, 2, 12), (30, 9, 40), Shape(HeadLayout(2, 1, 16))).batch
    monkeypatch.setattr(compiling, "choose_for_device", lambda device: choose)
    job = job_for(step, SERIES, CPU)
    assert job == SeriesJob(step, (by_tokens[3], by_tokens[12]))
    assert pickle.loads(pickle.dumps(job)) == job
    assert not job.needs & CompileJob(shape_of(step), by_tokens[3]).needs  # its launches take other arguments


def test_series_launches_the_shipped_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    run = tensors.run

    def note(plan: object, *arguments: object, **keywords: object) -> object:
        launched.append(tuple(part.config for part in plan.parts))
        return run(plan, *arguments, **keywords)

    monkeypatch.setattr(tensors, "run", note)
    job = job_for(STEP, SERIES, CPU)
    job.run(CPU)
    choose = choose_for_device(CPU)
    assert launched == [tuple(complete(chosen(choose, part, STEP.model)) for part in STEP.parts)]
    assert launched[0] == job.configs


def test_equal_choices_compile_once() -> None:
    jobs = [job_for(scenario.batch, SERIES, CPU) for scenario in STEP_SETS["tiny"](0)]
    assert len(minimal(jobs)) == 2  # one for each shape: on a CPU the choice is always the same

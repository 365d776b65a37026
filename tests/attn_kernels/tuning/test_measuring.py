"""Measuring attention in Triton's interpreter: what is timed, what a config fails of, what compiles ahead."""

import math
import pickle

import pytest
import torch

from attn_kernels.choose.choices import Choices
from attn_kernels.choose.mixed import SEPARATE, SINGLE
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.measure import tensors
from attn_kernels.measure.batches import HeadLayout, ScoreOptions
from attn_kernels.tuning.measuring import DummyLaunches, dummy_of, job_for, prepare
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from attn_kernels.warmup.dummy_launch import DummyLaunch
from triton_tune.bench.worker import DISAGREES
from triton_tune.processes.compile_ahead import minimal
from tuning_table.table import Failure

CPU = torch.device("cpu")
SCENARIO = scenario_of("a", (1, 2), (5, 2), Shape(HeadLayout(2, 1, 16)))
QBLOCK = Config.parse("qblock_M16_T32_W1_S1")
STEP = STEP_SETS["tiny"](0)[0]


def measured(config, scenario=SCENARIO):
    return prepare(scenario, 1, CPU)(config, math.inf)


@pytest.mark.parametrize(
    ("queries", "contexts"), [((70, 0), (70, 90)), ((0, 1, 0), (0, 9, 3)), ((1, 1, 0), (4, 5, 0))]
)
def test_padding_has_no_rows_to_compare(queries, contexts):
    scenario = scenario_of("padded", queries, contexts, Shape(HeadLayout(1, 1, 16)))
    cell = measured(Config("qblock", 16, 32), scenario)
    assert isinstance(cell, float) and math.isfinite(cell) and cell > 0.0


def one_element(out):
    out[2, 1, 3] += 1.0


def one_unwritten(out):
    out[1, 0, 15] = math.nan


@pytest.mark.parametrize("harm", [one_element, one_unwritten, torch.Tensor.zero_])
@pytest.mark.parametrize(("scenario", "config"), [(SCENARIO, QBLOCK), (STEP, SEPARATE)])
def test_a_wrong_result_has_no_time(monkeypatch, harm, scenario, config):
    run = tensors.run

    def harmed(*arguments, **keywords):
        run(*arguments, **keywords)
        harm(keywords["out"])

    assert isinstance(measured(config, scenario), float)
    monkeypatch.setattr(tensors, "run", harmed)
    assert measured(config, scenario) == Failure(DISAGREES)


def test_what_an_earlier_config_left_does_not_pass_as_a_result(monkeypatch):
    measure = prepare(SCENARIO, 1, CPU)
    assert isinstance(measure(QBLOCK, math.inf), float)
    monkeypatch.setattr(tensors, "run", lambda *arguments, **keywords: None)
    assert measure(QBLOCK._replace(num_warps=2), math.inf) == Failure(DISAGREES)


def test_tensors_are_drawn_anew_each_repeat_but_the_same_for_the_same(monkeypatch):
    seen = []
    monkeypatch.setattr(tensors, "run", lambda plan, q, *others, **keywords: seen.append(q.clone()))
    for repeat in (1, 1, 2):
        prepare(SCENARIO, repeat, CPU)(QBLOCK, math.inf)
    first, again, other = seen
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_config_compiles_for_its_model_and_options():
    scores = ScoreOptions(window=7, softcap=2.0, sinks=True, causal=False)
    job = job_for(STEP.at(scores=scores), QBLOCK, CPU)
    assert job == DummyLaunch(
        QBLOCK, STEP.at(scores=scores).model, frozenset(("window", "softcap", "sinks", "noncausal"))
    )
    job.run(CPU)
    assert not job.needs & job_for(STEP, QBLOCK, CPU).needs


@pytest.mark.parametrize(("way", "tokens"), [(SEPARATE, (3, 12)), (SINGLE, (15,))])
def test_ways_without_a_kernel_compile_what_is_chosen(way, tokens, monkeypatch):
    by_tokens = {3: Config("qblock", 16, 16), 12: Config("qblock", 16, 32), 15: Config("qblock", 32, 32)}
    monkeypatch.setattr(Choices, "config", lambda self, lengths: by_tokens[lengths.num_query_tokens])
    step = scenario_of("a", (1, 2, MAX_DRAFT + 4), (30, 9, 40), Shape(HeadLayout(2, 1, 16)))
    job = job_for(step, way, CPU)
    assert job == DummyLaunches(tuple(dummy_of(step, by_tokens[count]) for count in tokens))
    assert pickle.loads(pickle.dumps(job)) == job
    job.run(CPU)


def test_equal_choices_compile_once():
    jobs = [job_for(scenario, SEPARATE, CPU) for scenario in STEP_SETS["tiny"](0)]
    assert len(minimal(jobs)) == 2  # one for each shape: on a CPU the choice is always the same

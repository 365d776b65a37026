"""Configs of one launch for both parts: what is possible, plans, and the parts where it cannot be."""

import random

import pytest
from captured_server import HEADS, MAX_CONTEXT, MAX_SEQS, MAX_TOKENS, Server, random_lens
from captured_server import batch_of as server_batch_of
from kernel_cases import assert_close, make_config, random_batch, record_launches, scores, set_choices

from attn_kernels import Config, Lengths, Parts, Workspace
from attn_kernels.choose.mixed import SEPARATE, SINGLE
from attn_kernels.testing.poisoned import run_poisoned

LENS = ((1, 1, 3, 0, 1, 20, 1, 9), (50, 20, 33, 9, 64, 60, 8, 90))  # five decodes; another behind a prompt
PARTS = Parts.of(*LENS)
POD = Config("pod", 128, 64, num_stages=3)
LAYERS = ("", "window=11 sinks", "softcap alibi scales=tensor", "")


@pytest.fixture
def batch():
    return random_batch(LENS, kv_heads=2)


@pytest.fixture
def choose(monkeypatch):
    """A function that sets the choices for decodes, prompts and both."""

    def choose(decodes, prompts, way):
        configs = {PARTS.decodes.num_query_tokens: decodes}
        set_choices(monkeypatch, lambda lengths: configs.get(lengths.num_query_tokens, prompts), way)

    return choose


@pytest.mark.parametrize("config", [POD, SEPARATE, SINGLE], ids=str)
def test_a_config_for_both_parts_needs_their_lengths(config, batch):
    for options in ({}, {"for_capture": True}, {"check": False}):
        with pytest.raises(ValueError, match=f"^config is {config}, but"):
            batch.plan(config=config, **options)


def test_where_the_kernel_cannot_be_used_each_layer_launches_the_parts(batch, choose, monkeypatch):
    decodes, prompts = make_config(), make_config("qblock", 32, 32)
    choose(decodes, prompts, SEPARATE)
    launches = record_launches(monkeypatch)
    plan = batch.plan(config=POD, parts=PARTS)
    assert plan.config == plan.fused.config == POD
    assert [part.config for part in plan.parts] == [decodes, prompts]
    for names in LAYERS:
        options = scores(8, names)
        assert_close(run_poisoned(batch, plan, **options), batch.reference(**options))
    kernels = [launch.kernel for launch in launches]
    assert kernels.count("qblock_kernel") == 2 * len(LAYERS)
    assert not {"hopper_kernel", "schedule_kernel"} & set(kernels)


def test_a_workspace_serves_one_plan_after_another(choose):
    """Whichever way they are computed."""
    configs = [make_config("stream_k"), make_config("qblock", 32)]
    batches = [random_batch(lens, kv_heads=2) for lens in (LENS, ((1, 12), (30, 40)))]
    workspace = Workspace.for_maxima(
        "cpu", batches[0].model, max_query_tokens=64, max_num_seqs=8, configs=configs
    )
    choose(*configs, SEPARATE)
    for way in (POD, SEPARATE, POD._replace(num_stages=2)):
        for batch in batches:
            parts = Parts.of(batch.query_lens, batch.context_lens)
            plan = batch.plan(config=way, parts=parts, workspace=workspace)
            assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("for_capture", [False, True])
@pytest.mark.parametrize("way", [SEPARATE, SINGLE, POD], ids=str)
def test_a_plan_takes_the_way_that_is_given_or_chosen(way, for_capture, given, batch, choose):
    decodes, prompts = make_config(), make_config("qblock", 32)
    choose(decodes, prompts, SEPARATE if given else way)
    plan = batch.plan(parts=PARTS, config=way if given else None, for_capture=for_capture)
    if way == SINGLE:
        assert (plan.parts, plan.fused, plan.config) == ((), None, prompts)
    else:
        assert [part.config for part in plan.parts] == [decodes, prompts]
        assert (None if plan.fused is None else plan.fused.config) == (POD if way == POD else None)
        assert plan.config == (POD if way == POD else prompts)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize("way", [SEPARATE, SINGLE, POD], ids=str)
@pytest.mark.parametrize("lens", [((1, 2), (5, 6)), ((0, 12), (3, 12))])
def test_a_batch_of_one_part_has_one_config(lens, way, choose):
    choose(make_config(), make_config(), POD)
    batch = random_batch(lens)
    plan = batch.plan(config=way, parts=Parts.of(*lens))
    assert (plan.parts, plan.fused, plan.config) == ((), None, make_config())
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize("names", ["", "window=37 sinks"])
def test_replays_find_their_own_boundary(names, choose):
    """A graph of the one launch, which its parts stand in for."""
    configs = (make_config(), make_config("qblock", 32))
    choose(*configs, POD)
    maxima = Parts(
        Lengths(MAX_SEQS, PARTS.decodes.num_query_tokens, 1, MAX_CONTEXT, MAX_SEQS * MAX_CONTEXT),
        Lengths(2, MAX_TOKENS, MAX_TOKENS, MAX_CONTEXT, 2 * MAX_CONTEXT),
    )
    options, rng, boundaries = scores(HEADS, names), random.Random(names), set()
    server = Server(*configs, parts=maxima, **options)
    assert server.plan.fused.config == POD
    for seed in range(8):
        queries, contexts = random_lens(rng)
        ordered = sorted(zip(queries, contexts, strict=True), key=lambda pair: pair[0] > 1)
        lens = [query for query, _ in ordered], [context for _, context in ordered]
        batch = server_batch_of(*lens, seed, None)
        if len(batch.q):
            assert_close(server.replay(batch), batch.reference(**options))
            boundaries.add(server.plan.parts[1].cu_seqlens_q[0].item())
    assert len(boundaries) > 2

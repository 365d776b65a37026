"""Plans for capture: one serves every smaller batch in the same buffers, in parts or as a whole."""

import random

import pytest
import torch
from captured_server import HEADS, MAX_CONTEXT, MAX_SEQS, MAX_TOKENS, Server, batch_of, random_lens
from kernel_cases import FP8, NAMES, assert_close, make_config, scores, set_choices

from attn_kernels import Config, Lengths, Model, Parts, Workspace, plan
from attn_kernels.choose import choices
from attn_kernels.choose.capture import STREAM_K
from attn_kernels.choose.choices import choices_for

MODEL = Model(32, 8, 128, 16, torch.bfloat16)
SIZES = {"max_query_tokens": 16, "max_num_seqs": 256}


@pytest.fixture
def h100(new_process, monkeypatch):
    monkeypatch.setattr(choices, "describe_device", lambda device: ("NVIDIA H100", "sm_90", "nvidia"))
    monkeypatch.setattr(choices, "multiprocessors", lambda device: 132)


def planned(num_seqs, config=None, for_capture=True, workspace=None, **options):
    """A plan of a server that has captured nothing yet: its buffers are empty."""
    return plan(
        torch.zeros(num_seqs + 1, dtype=torch.int32),
        torch.zeros(num_seqs, dtype=torch.int32),
        torch.zeros(num_seqs, 512, dtype=torch.int32),
        MODEL,
        num_query_tokens=num_seqs,
        max_query_len=1,
        max_seq_len=8192,
        config=config,
        for_capture=for_capture,
        workspace=workspace,
        **options,
    )


def test_a_plan_for_capture_takes_the_choice_for_graphs_unless_a_config_is_given(h100):
    assert planned(64).config == STREAM_K
    given = make_config("qblock")
    assert planned(64, given).config == given
    lengths = Lengths(64, 64, 1, 8192, 64 * 8192)
    tree = planned(64, for_capture=False, check=False).config
    assert tree == choices_for(MODEL, torch.device("cpu"), None).config(lengths) != STREAM_K
    with pytest.raises(ValueError, match="cu_seqlens_q"):
        planned(64, check=True)  # reads the empty buffers


def test_a_workspace_holds_what_every_capture_size_needs(h100):
    workspace = Workspace.for_maxima("cpu", MODEL, for_capture=True, **SIZES)
    variants = set()
    for num_seqs in (256, 64, 16, 8, 4, 1):  # from 17 on none keeps partial results: 16 tokens suffice
        made = planned(num_seqs, workspace=workspace)
        variants.add(made.config.variant)
        fresh = planned(num_seqs).workspace
        assert all(shared.numel() >= each.numel() for shared, each in zip(made.workspace, fresh, strict=True))
    assert variants == {"segmented", "stream_k"}
    further = Config("stream_k", 64, 16, programs_per_sm=4)
    larger = Workspace.for_maxima("cpu", MODEL, for_capture=True, configs=[further], **SIZES)
    # Of the interpreter's three multiprocessors.
    assert workspace.max_fragment_rows >= 3 * STREAM_K.programs_per_sm * STREAM_K.block_m
    assert larger.max_fragment_rows == 3 * 4 * 64 > workspace.max_fragment_rows


def test_a_workspace_holds_what_a_named_module_needs():
    key = "nvidia_h100"
    workspace = Workspace.for_maxima("cpu", MODEL, for_capture=True, device_key=key, **SIZES)
    made = planned(1, workspace=workspace, device_key=key, check=False)
    assert made.config.variant == "segmented"
    default = Workspace.for_maxima("cpu", MODEL, for_capture=True, **SIZES)
    with pytest.raises(ValueError, match="num_segments"):
        planned(1, workspace=default, device_key=key, check=False)
    with pytest.raises(ValueError, match="device_key"):
        Workspace.for_maxima("cpu", MODEL, for_capture=True, device_key="h100", **SIZES)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("query_len", [1, 2, None])
def test_every_variant_replays_for_smaller_batches(variant, query_len):
    rng = random.Random(f"{variant}/{query_len}")
    server = Server(make_config(variant), query_len=query_len)
    lens = [random_lens(rng, query_len or 5), ([1] * MAX_SEQS, [70] * MAX_SEQS)]
    for seed, (query_lens, context_lens) in enumerate(lens):
        batch = batch_of(query_lens, context_lens, seed)
        if len(batch.q):
            assert_close(server.replay(batch), batch.reference())


# A graph may be full of decodes, or of prompts.
MAXIMA = Parts(
    Lengths(MAX_SEQS, MAX_SEQS, 1, MAX_CONTEXT, MAX_SEQS * MAX_CONTEXT),
    Lengths(2, MAX_TOKENS, MAX_TOKENS, MAX_CONTEXT, 2 * MAX_CONTEXT),
)


@pytest.mark.parametrize("names, cache_dtype", [("", None), ("window=37 sinks", FP8)])
@pytest.mark.parametrize("decodes, prompts", list(zip(NAMES, NAMES[2:] + NAMES[:2], strict=True)))
def test_replays_in_parts_find_their_own_boundary(decodes, prompts, names, cache_dtype, monkeypatch):
    rng = random.Random(names)
    configs, options = (make_config(decodes), make_config(prompts, 32)), scores(HEADS, names)
    set_choices(monkeypatch, lambda lengths: configs[lengths != MAXIMA.decodes])
    server = Server(*configs, cache_dtype=cache_dtype, parts=MAXIMA, **options)
    boundaries = set()
    for seed in range(5):
        queries, contexts = random_lens(rng)
        if rng.random() < 0.7:  # decodes first, as engines do
            ordered = sorted(zip(queries, contexts, strict=True), key=lambda pair: pair[0] > 1)
            queries, contexts = [query for query, _ in ordered], [context for _, context in ordered]
        batch = batch_of(queries, contexts, seed, cache_dtype)
        if len(batch.q):
            assert_close(server.replay(batch), batch.reference(**options))
            boundaries.add(server.plan.parts[1].cu_seqlens_q[0].item())
    assert len(boundaries) > 1

"""Plans for capture: one serves every smaller batch in the same buffers, in parts or as a whole."""

import random

import pytest
import torch
from captured_server import HEADS, MAX_CONTEXT, MAX_SEQS, MAX_TOKENS, Server, batch_of, random_lens
from kernel_cases import FP8, assert_close, make_config, scores, set_choices

from attn_kernels import Lengths, Model, Parts, Workspace, plan
from attn_kernels.choose.choices import choices_for
from attn_kernels.kernels import splits

MODEL = Model(32, 8, 128, 16, torch.bfloat16)
KEY = "nvidia_h100"


def planned(num_seqs, query_len=1, **options):
    """A plan of a server that has captured nothing yet: its buffers are empty."""
    return plan(
        torch.zeros(num_seqs + 1, dtype=torch.int32),
        torch.zeros(num_seqs, dtype=torch.int32),
        torch.zeros(num_seqs, 512, dtype=torch.int32),
        MODEL,
        num_query_tokens=num_seqs * query_len,
        max_query_len=query_len,
        max_seq_len=8192,
        for_capture=True,
        **options,
    )


def test_a_plan_for_capture_takes_the_choice_for_its_maxima_and_reads_no_buffer():
    """For prompts, the choice for contexts half as long as the longest."""
    choose = choices_for(MODEL, torch.device("cpu"), KEY).config
    decodes = Lengths(64, 64, 1, 8192, 64 * 8192).of_unknown_total(None)
    assert planned(64, device_key=KEY).config == choose(decodes)
    prompts = Lengths(64, 6400, 100, 8192, 64 * 8192).of_unknown_total(None)
    half = choose(prompts._replace(max_seq_len=4096))
    assert planned(64, 100, device_key=KEY).config == half != choose(prompts)
    assert planned(64, config=make_config()).config == make_config()
    with pytest.raises(ValueError, match="cu_seqlens_q"):
        planned(64, check=True)


def test_a_workspace_holds_what_every_capture_size_needs(monkeypatch):
    monkeypatch.setattr(splits, "ROW_COST", 0.1)
    workspace = Workspace.for_maxima("cpu", MODEL, max_query_tokens=16, max_num_seqs=256, device_key=KEY)
    most = set()
    for num_seqs in (256, 64, 16, 8, 4, 1):
        made = planned(num_seqs, workspace=workspace, device_key=KEY)
        most.add(made.num_splits)
        fresh = planned(num_seqs, device_key=KEY).workspace
        assert all(shared.numel() >= each.numel() for shared, each in zip(made.workspace, fresh, strict=True))
    assert len(most) > 2, "the more sequences, the fewer splits"
    with pytest.raises(ValueError, match="device_key"):
        Workspace.for_maxima("cpu", MODEL, max_query_tokens=16, max_num_seqs=256, device_key="h100")


@pytest.mark.parametrize("query_len", [1, 2, None])
def test_replays_for_smaller_batches(query_len, whole_and_split):
    rng = random.Random(query_len)
    server = Server(make_config(), query_len=query_len)
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
def test_replays_in_parts_find_their_own_boundary(names, cache_dtype, whole_and_split, monkeypatch):
    rng = random.Random(names)
    configs, options = (make_config(), make_config("qblock", 32)), scores(HEADS, names)
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

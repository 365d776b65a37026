"""Plans for capture: one serves every smaller batch in the same buffers, in parts or as a whole."""

import math
import random

import pytest
import torch
from kernel_cases import FP8, assert_close, make_config, random_batch, scores, set_choices

from attn_kernels import Config, Lengths, Model, Parts, Workspace, plan, run
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SEPARATE
from attn_kernels.kernels import splits
from attn_kernels.launch.run import PARTS_BEGUN, begin
from attn_kernels.testing.poisoned import GARBAGE_PAGE, poison_workspace

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


MAX_SEQS, MAX_TOKENS, MAX_CONTEXT = 6, 12, 200
HEADS = 6
LAYOUT = {"ratio": 3, "kv_heads": 2, "head_size": 16}


class Server:
    """Persistent buffers and one plan for their maxima, which it replays for smaller batches.

    Without a GPU, a replay makes the launches of that plan again.
    """

    def __init__(self, *configs, cache_dtype, query_len, parts, **options):
        """Plan for one config, or for what is chosen for ``parts``; ``configs``: all that are launched.

        ``query_len``: the longest query of the maxima; None where one sequence may have all tokens.
        """
        self.options = options
        lens = [MAX_TOKENS // MAX_SEQS] * MAX_SEQS, [MAX_CONTEXT] * MAX_SEQS
        self.buffers = random_batch(lens, **LAYOUT, cache_dtype=cache_dtype)
        self.out = torch.zeros_like(self.buffers.q)
        for empty in (self.buffers.cu_seqlens_q, self.buffers.seqused_k):
            empty.zero_()
        self.buffers.block_table.fill_(GARBAGE_PAGE)
        maxima = {"max_query_tokens": MAX_TOKENS, "max_num_seqs": MAX_SEQS, "configs": configs}
        self.plan = self.buffers.plan(
            num_query_tokens=MAX_TOKENS if query_len is None else MAX_SEQS * query_len,
            max_query_len=MAX_TOKENS if query_len is None else query_len,
            num_kv_tokens=None,
            config=None if parts else configs[0],
            for_capture=True,
            workspace=Workspace.for_maxima("cpu", self.buffers.model, **maxima),
            parts=parts,
        )

    def replay(self, batch):
        """Fill the buffers in place, launch, and return the batch's rows of the output. Checks the others."""
        n, tokens, held = len(batch.query_lens), len(batch.q), self.buffers
        for buffer, rest, values in (
            (held.cu_seqlens_q, tokens, batch.cu_seqlens_q),
            (held.seqused_k, 0, batch.seqused_k),
            (held.k_cache, math.nan, batch.k_cache),
            (held.v_cache, math.nan, batch.v_cache),
            (held.q, math.nan, batch.q),
        ):
            buffer.fill_(rest)
            buffer[: len(values)] = values
        held.block_table.fill_(GARBAGE_PAGE)
        held.block_table[:n, : batch.block_table.shape[1]] = batch.block_table
        self.out.fill_(math.nan)
        poison_workspace(self.plan)
        self.plan.launches.pop(PARTS_BEGUN, None)  # a graph's launches begin the parts again
        begin(self.plan)
        rows = self.plan.lengths.num_query_tokens
        run(self.plan, held.q[:rows], held.k_cache, held.v_cache, out=self.out[:rows], **self.options)
        assert self.out[tokens:].isnan().all()
        return self.out[:tokens].clone()


def random_lens(rng, longest):
    """Decodes, short queries and sequences without any; some far longer than the others."""
    lens, tokens = [], 0
    for _ in range(rng.randint(0, MAX_SEQS)):
        query = min(rng.choice((0, 1, 1, 1, longest)), MAX_TOKENS - tokens)
        context = rng.choice((rng.randint(1, 20), rng.randint(1, MAX_CONTEXT), MAX_CONTEXT))
        lens.append((query, max(query, context) if query else rng.choice((0, context))))
        tokens += query
    return [query for query, _ in lens], [context for _, context in lens]


# A graph may be full of decodes, or of prompts.
MAXIMA = Parts(
    Lengths(MAX_SEQS, MAX_SEQS, 1, MAX_CONTEXT, MAX_SEQS * MAX_CONTEXT),
    Lengths(2, MAX_TOKENS, MAX_TOKENS, MAX_CONTEXT, 2 * MAX_CONTEXT),
)
POD = Config("pod", 128, 64, num_stages=3)  # its parts stand in for the one launch


@pytest.mark.parametrize(
    "way, query_len, words, cache_dtype",
    [
        (None, 1, "", None),
        (None, 2, "softcap alibi scales=tensor", FP8),
        (None, None, "window=37 sinks", None),
        (None, None, "noncausal window=50", None),
        (SEPARATE, None, "window=37 sinks", FP8),
        (POD, None, "window=37 sinks", None),
    ],
    ids=str,
)
def test_replays_for_smaller_batches(way, query_len, words, cache_dtype, many_splits, monkeypatch):
    """Each finds its own splits, parts, image ranges and rows of the log-sum-exps."""
    rng, boundaries = random.Random(words), set()
    configs, options = (make_config(), make_config("qblock", 32)), scores(HEADS, words)
    ranges = torch.zeros(MAX_SEQS, 2, 2, dtype=torch.int32)
    lse = torch.empty(HEADS, MAX_TOKENS if query_len is None else MAX_SEQS * query_len)
    set_choices(monkeypatch, lambda lengths: configs[lengths != MAXIMA.decodes], way)
    maxima = {"query_len": query_len, "parts": MAXIMA if way else None, "cache_dtype": cache_dtype}
    server = Server(*configs, **maxima, **options, lse=lse, bidirectional_ranges=ranges)
    assert (server.plan.fused is not None) == (way == POD)
    lens = [random_lens(rng, query_len or 5) for _ in range(2)]
    lens.append(([1] * MAX_SEQS, [70] * MAX_SEQS))
    for seed, (queries, contexts) in enumerate(lens):
        if seed:  # decodes first, as engines do
            ordered = sorted(zip(queries, contexts, strict=True), key=lambda pair: pair[0] > 1)
            queries, contexts = [query for query, _ in ordered], [context for _, context in ordered]
        batch = random_batch((queries, contexts), **LAYOUT, seed=seed, cache_dtype=cache_dtype)
        tokens = len(batch.q)
        if tokens:
            lse.fill_(torch.nan)
            ranges.random_(MAX_CONTEXT)
            expected_lse = torch.empty(HEADS, tokens).double()
            seen = {"bidirectional_ranges": ranges[: len(queries)], "lse": expected_lse}
            expected = batch.reference(**options, **seen)
            assert_close(server.replay(batch), expected)
            torch.testing.assert_close(lse[:, :tokens].double(), expected_lse, rtol=1e-3, atol=1e-3)
            assert lse[:, tokens:].isnan().all()
            boundaries |= {part.cu_seqlens_q[0].item() for part in server.plan.parts[1:]}
    assert len(boundaries) > 1 or not way

"""Mixed batches: in two parts, in one launch or as a whole; what is chosen, launched and refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import ONCE_A_PLAN, assert_close, make_config, random_batch, record_launches, set_choices

from attn_kernels import Config, Lengths, Parts
from attn_kernels.choose.mixed import SEPARATE, SINGLE
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.kernels.schedule import divide_kernel
from attn_kernels.testing.poisoned import run_poisoned

LENS = ((1, 1, 3, 0, 1, 20, 1, 9), (50, 20, 33, 9, 64, 60, 8, 90))  # five decodes; another behind a prompt
PARTS = Parts.of(*LENS)
DECODES, PROMPTS = make_config(), make_config("qblock", 32)
POD = Config("pod", 128, 64, num_stages=3)
lens = st.lists(st.tuples(st.integers(0, 2 * MAX_DRAFT), st.integers(0, 99)), max_size=12)


@pytest.fixture
def batch():
    return random_batch(LENS, kv_heads=2)


@pytest.fixture
def choose(monkeypatch):
    """A function that sets the choices for decodes, prompts and both; returns the lengths they are made for.

    The batch as a whole counts as prompts.
    """

    def choose(decodes, prompts, way=SEPARATE):
        seen = []

        def chosen(lengths):
            seen.append(lengths)
            return decodes if lengths.num_query_tokens == PARTS.decodes.num_query_tokens else prompts

        set_choices(monkeypatch, chosen, way)
        return seen

    return choose


@given(lens)
def test_parts_of_a_batch(lens):
    queries, contexts = [query for query, _ in lens], [context for _, context in lens]
    decodes, prompts = Parts.of(queries, contexts)
    count = decodes.num_seqs
    assert (decodes, prompts) == tuple(
        Lengths(len(q), sum(q), max(q, default=0), max(k, default=0), sum(k))
        for q, k in ((queries[:count], contexts[:count]), (queries[count:], contexts[count:]))
    )
    assert decodes.max_query_len <= MAX_DRAFT
    assert count == len(lens) or queries[count] > MAX_DRAFT


def check_boundary(queries, num_decodes, num_tokens, max_len):
    """The kernel divides as brute force does; all else in its outputs stays as it was."""
    starts = [sum(queries[:i]) for i in range(len(queries) + 1)]
    boundary = max(
        k
        for k in range(num_decodes + 1)
        if all(query <= max_len for query in queries[:k]) and starts[k] <= num_tokens
    )
    outs = [torch.full((len(starts) + 2,), -7, dtype=torch.int32) for _ in range(2)]
    cu_seqlens_q = torch.tensor(starts, dtype=torch.int32)
    divide_kernel[(1,)](*outs, cu_seqlens_q, len(queries), num_decodes, num_tokens, max_len)
    for out, bound in zip(outs, (min, max), strict=True):
        assert out.tolist() == [*(starts[bound(i, boundary)] for i in range(len(starts))), -7, -7]


@given(lens, st.integers(0, 12), st.integers(0, MAX_DRAFT), st.integers(0, 99))
@settings(max_examples=60)
def test_the_device_divides_as_brute_force_does(lens, num_decodes, max_len, num_tokens):
    check_boundary([query for query, _ in lens], min(num_decodes, len(lens)), num_tokens, max_len)


@pytest.mark.parametrize("boundary", [0, 255, 256, 257, 600])
def test_batches_of_more_than_a_chunk_are_divided(boundary):
    check_boundary([1] * boundary + [20] + [1] * (700 - boundary), 650, 10_000, 8)


def test_each_part_is_chosen_for_by_its_own_lengths(batch, choose, many_splits, monkeypatch):
    seen = choose(make_config(), Config("qblock", 64, 64))
    launches = record_launches(monkeypatch, once_a_plan=True)
    plan = batch.plan(parts=PARTS)
    assert seen == [PARTS.decodes, PARTS.prompts]
    assert (plan.lengths.num_query_tokens, plan.lengths.num_seqs) == (36, 8)
    assert_close(run_poisoned(batch, plan), batch.reference())
    kernels = [launch.kernel for launch in launches]
    assert kernels == ["divide_kernel", "qblock_kernel", "reduce_kernel", "qblock_kernel"]
    heads, tokens = 8, 6
    assert launches[2].grid[:2] == (tokens, heads), "decodes launch nothing for prompts"


def test_in_a_graph_the_splits_of_each_part_are_found_once(batch, choose, many_splits, monkeypatch):
    choose(DECODES, PROMPTS)
    launches = record_launches(monkeypatch, once_a_plan=True)
    plan = batch.plan(parts=PARTS, for_capture=True)
    assert [launch.kernel for launch in launches].count("split_keys_kernel") == 2
    assert {launch.kernel for launch in launches} == set(ONCE_A_PLAN)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize("for_capture", [False, True])
@pytest.mark.parametrize(
    "given, chosen",
    [(way, SEPARATE) for way in (SEPARATE, SINGLE, POD)] + [(None, SINGLE), (None, POD)],
    ids=str,
)
def test_a_plan_takes_the_way_that_is_given_or_chosen(given, chosen, for_capture, batch, choose):
    choose(DECODES, PROMPTS, chosen)
    plan, way = batch.plan(parts=PARTS, config=given, for_capture=for_capture), given or chosen
    assert [part.config for part in plan.parts] == ([] if way == SINGLE else [DECODES, PROMPTS])
    assert (plan.fused.config if plan.fused else PROMPTS) == plan.config == (POD if way == POD else PROMPTS)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize(
    "lens, options",
    [
        (LENS, {"parts": None}),
        (LENS, {"config": make_config(block_m=64)}),
        (LENS, {"parts": Parts(Lengths(0, 0, 0, 0, 0), Lengths.of(*LENS))}),
        *((lens, {}) for lens in (((), ()), ((0, 0), (0, 9)), ((20,), (30,)))),
        *(
            (lens, {"config": way})
            for lens in (((1, 2), (5, 6)), ((0, 12), (3, 12)))
            for way in (SINGLE, POD)
        ),
    ],
)
def test_one_config_serves_the_whole_batch(lens, options, choose):
    """Without parts, with a config for all, and where a part has no query tokens."""
    choose(DECODES, PROMPTS, POD)
    batch = random_batch(lens)
    plan = batch.plan(**{"parts": Parts.of(*lens)} | options)
    expected = options.get("config") or PROMPTS
    assert (plan.parts, plan.fused, plan.cu_seqlens_q) == ((), None, batch.cu_seqlens_q)
    assert plan.config == (PROMPTS if expected in (SINGLE, POD) else expected)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize(
    "lens, tensor, field",
    [
        (((1, 20, 3, 0, 1, 1, 1, 9), LENS[1]), "cu_seqlens_q", "max_query_len"),
        (((1, 1, 2, 0, 1, 20, 2, 9), LENS[1]), "cu_seqlens_q", "num_query_tokens"),
        ((LENS[0], (50, 20, 33, 9, 90, 60, 8, 64)), "seqused_k", "max_seq_len"),
    ],
)
def test_contents_that_contradict_the_parts_are_refused_if_checked(lens, tensor, field):
    batch = random_batch(lens)
    with pytest.raises(ValueError, match=rf"\A{tensor} .*parts.decodes.{field}.*\Z"):
        batch.plan(parts=PARTS)
    plan = batch.plan(parts=PARTS, check=False)
    assert_close(run_poisoned(batch, plan), batch.reference())

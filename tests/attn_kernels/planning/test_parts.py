"""Mixed batches in two parts: any config for either, and right results whatever the host says of them."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    ONCE_A_PLAN,
    assert_close,
    make_config,
    random_batch,
    record_launches,
    scores,
    set_choices,
)

import attn_kernels
from attn_kernels import Config, Lengths, Parts, Workspace
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.kernels.schedule import divide_kernel
from attn_kernels.launch.run import begin
from attn_kernels.testing.poisoned import run_poisoned

LENS = ((1, 1, 3, 0, 1, 20, 1, 9), (50, 20, 33, 9, 64, 60, 8, 90))  # five decodes; another behind a prompt
PARTS = Parts.of(*LENS)
QBLOCK = Config("qblock", 16, 16)
LARGE = Config("qblock", 64, 64)
lens = st.lists(st.tuples(st.integers(0, 2 * MAX_DRAFT), st.integers(0, 99)), max_size=12)


@pytest.fixture
def batch():
    return random_batch(LENS, kv_heads=2)


@pytest.fixture
def choose(monkeypatch):
    """A function that sets the choices for decodes and prompts; returns the lengths they are made for."""

    def choose(*configs):
        seen = []

        def chosen(lengths):
            seen.append(lengths)
            return configs[(len(seen) - 1) % len(configs)]

        set_choices(monkeypatch, chosen)
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


def test_lengths_of_unequal_lists_are_refused():
    with pytest.raises(ValueError, match="query_lens"):
        Lengths.of([1, 2], [3])


@given(lens, st.integers(0, 12), st.integers(0, MAX_DRAFT), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_device_divides_as_brute_force_does(lens, num_decodes, max_len, num_tokens):
    queries = [query for query, _ in lens]
    starts = [sum(queries[:i]) for i in range(len(queries) + 1)]
    num_decodes = min(num_decodes, len(queries))
    fitting = [
        k
        for k in range(num_decodes + 1)
        if all(query <= max_len for query in queries[:k]) and starts[k] <= num_tokens
    ]
    found = divided(starts, num_decodes, num_tokens, max_len)
    assert found == expected_starts(starts, max(fitting))


def divided(starts, num_decodes, num_tokens, max_len):
    """What the kernel writes; all else in its outputs stays as it was."""
    outs = [torch.full((len(starts) + 2,), -7, dtype=torch.int32) for _ in range(2)]
    cu_seqlens_q = torch.tensor(starts, dtype=torch.int32)
    divide_kernel[(1,)](*outs, cu_seqlens_q, len(starts) - 1, num_decodes, num_tokens, max_len)
    assert all(out[-2:].tolist() == [-7, -7] for out in outs)
    return [out[:-2].tolist() for out in outs]


def expected_starts(starts, boundary):
    places = range(len(starts))
    return [[starts[min(i, boundary)] for i in places], [starts[max(i, boundary)] for i in places]]


@pytest.mark.parametrize("boundary", [0, 255, 256, 257, 600])
def test_batches_of_more_than_a_chunk_are_divided(boundary):
    queries = [1] * boundary + [20] + [1] * (700 - boundary)
    starts = [sum(queries[:i]) for i in range(len(queries) + 1)]
    assert divided(starts, 650, 10_000, 8) == expected_starts(starts, boundary)


@pytest.mark.parametrize("names", ["", "window=11 sinks softcap"])
@pytest.mark.usefixtures("whole_and_split")
def test_each_part_has_its_own_sequences(names, batch):
    plan = batch.plan_in_parts(make_config(), make_config("qblock", 32, 32))
    options = scores(8, names)
    assert_close(run_poisoned(batch, plan, **options), batch.reference(**options))
    assert plan.parts[0].cu_seqlens_q.tolist() == [0, 1, 2, 5, 5, 6, 6, 6, 6]
    assert plan.parts[1].cu_seqlens_q.tolist() == [6, 6, 6, 6, 6, 6, 26, 27, 36]


@pytest.mark.parametrize("draft", [2, 5, MAX_DRAFT])
def test_speculative_decodes(draft):
    batch = random_batch(((draft, draft, draft - 1, draft, 30), (40, draft, 70, 9, 50)))
    plan = batch.plan_in_parts(make_config(), make_config("qblock", 32))
    assert plan.parts[0].lengths.num_seqs == 4
    assert_close(run_poisoned(batch, plan), batch.reference())


def wrong_parts(rng, query_lens, context_lens):
    """Parts that contradict the batch, but no more than the host can notice."""
    whole = Lengths.of(query_lens, context_lens)
    count, longest = rng.randint(1, whole.num_seqs), rng.randint(1, min(MAX_DRAFT, whole.max_query_len))
    tokens = rng.randint(1, min(count * longest, whole.num_query_tokens))
    decodes = Lengths(count, tokens, min(longest, tokens), rng.randint(1, whole.max_seq_len), 1)
    rest = (whole.num_seqs - count, whole.num_query_tokens - tokens)
    return Parts(decodes, Lengths(*rest, whole.max_query_len, 1, whole.num_kv_tokens - 1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("whole_and_split")
def test_wrong_parts_give_right_results(seed):
    """In any order, with any counts: also where all decodes seem to have the same number of tokens."""
    rng = random.Random(seed)
    queries = [rng.choice((0, 1, 1, 2, 4, 8, 9, 30)) for _ in range(rng.randint(2, 7))]
    queries[rng.randrange(len(queries))] += 1
    contexts = [query + rng.choice((0, 5, 70)) for query in queries]
    batch = random_batch((queries, contexts))
    expected = batch.reference()
    for _ in range(4):
        parts = wrong_parts(rng, queries, contexts)
        plan = batch.plan_in_parts(*rng.sample([make_config(), make_config("qblock", 32)], 2), parts)
        assert_close(run_poisoned(batch, plan), expected)


def test_one_token_among_drafts_that_seem_alike():
    """As many tokens as two drafts of four, but one sequence has one: none is left out."""
    batch = random_batch(((1, 4, 9, 3), (30, 40, 50, 60)))
    parts = Parts(Lengths(2, 8, 4, 40, 70), Lengths(2, 9, 9, 60, 110))
    plan = batch.plan_in_parts(make_config(), make_config("qblock", 32), parts)
    assert plan.parts[0].cu_seqlens_q.tolist() == [0, 1, 5, 5, 5]
    assert_close(run_poisoned(batch, plan), batch.reference())


def test_each_part_is_chosen_for_by_its_own_lengths(batch, choose, many_splits, monkeypatch):
    seen = choose(make_config(), LARGE)
    launches = record_launches(monkeypatch, once_a_plan=True)
    plan = batch.plan(parts=PARTS)
    assert seen == [PARTS.decodes, PARTS.prompts]
    assert (plan.config, plan.lengths.num_query_tokens, plan.lengths.num_seqs) == (LARGE, 36, 8)
    assert_close(run_poisoned(batch, plan), batch.reference())
    kernels = [launch.kernel for launch in launches]
    assert kernels == ["divide_kernel", "qblock_kernel", "reduce_kernel", "qblock_kernel"]
    heads, tokens = 8, 6
    assert launches[2].grid[:2] == (tokens, heads), "decodes launch nothing for prompts"


def test_in_a_graph_the_splits_of_each_part_are_found_once(batch, choose, many_splits, monkeypatch):
    choose(make_config(), make_config("qblock", 32))
    launches = record_launches(monkeypatch, once_a_plan=True)
    plan = batch.plan(parts=PARTS, for_capture=True)
    assert [launch.kernel for launch in launches].count("split_keys_kernel") == 2
    assert {launch.kernel for launch in launches} == set(ONCE_A_PLAN)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize(
    "options",
    [
        {"parts": None},
        {"parts": PARTS, "config": QBLOCK},
        {"parts": Parts(Lengths(0, 0, 0, 0, 0), Lengths.of(*LENS))},
    ],
)
def test_one_config_serves_the_whole_batch(options, batch, choose):
    choose(QBLOCK)
    plan = batch.plan(**options)
    assert (plan.parts, plan.config, plan.cu_seqlens_q) == ((), QBLOCK, batch.cu_seqlens_q)
    assert_close(run_poisoned(batch, plan), batch.reference())


@pytest.mark.parametrize("lens", [((), ()), ((0, 0), (0, 9)), ((1, 2), (5, 6)), ((20,), (30,))])
def test_batches_of_one_part_have_no_parts(lens):
    batch = random_batch(lens)
    plan = batch.plan(parts=Parts.of(*lens))
    assert plan.parts == ()
    assert_close(run_poisoned(batch, plan), batch.reference())


def changed(part, **lengths):
    return PARTS._replace(**{part: getattr(PARTS, part)._replace(**lengths)})


@pytest.mark.parametrize(
    "parts, error, name",
    [
        ((PARTS.decodes, PARTS.prompts), TypeError, "parts"),
        (Parts((5, 6, 3, 64, 176), PARTS.prompts), TypeError, "parts"),
        (changed("decodes", num_seqs=5.0), TypeError, "parts.decodes.num_seqs"),
        (changed("prompts", max_seq_len=-1), ValueError, "parts.prompts.max_seq_len"),
        (changed("decodes", num_seqs=4), ValueError, "num_seqs of parts"),
        (changed("prompts", num_query_tokens=29), ValueError, "num_query_tokens of parts"),
        (changed("prompts", num_kv_tokens=1), ValueError, "num_kv_tokens of parts"),
        (changed("decodes", max_seq_len=91), ValueError, "parts.decodes.max_seq_len"),
        (changed("prompts", max_query_len=21), ValueError, "parts.prompts.max_query_len"),
        (changed("decodes", max_query_len=9), ValueError, "parts.decodes.max_query_len"),
        (changed("decodes", max_query_len=1), ValueError, "parts.decodes.num_query_tokens"),
    ],
)
@pytest.mark.parametrize("config", [None, QBLOCK])
def test_lengths_that_contradict_each_other_are_refused(parts, error, name, config, batch):
    with pytest.raises(error, match=rf"\A{name} .*\Z"):
        batch.plan(parts=parts, config=config, check=False)


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


def test_too_few_decodes_are_no_mistake(batch):
    parts = Parts(*(Lengths.of(*(of[part] for of in LENS)) for part in (slice(2), slice(2, None))))
    plan = batch.plan(parts=parts)
    assert plan.parts[0].lengths.num_seqs == 2
    assert_close(run_poisoned(batch, plan), batch.reference())


def test_a_workspace_serves_one_plan_after_another(choose, many_splits):
    """Partial results are shared, as layers use them one after another."""
    configs = [make_config(), make_config("qblock", 32), make_config("stream_k")]
    batches = [random_batch(lens) for lens in (LENS, ((1, 12), (30, 40)))]
    workspace = Workspace.for_maxima(
        "cpu", batches[0].model, max_query_tokens=64, max_num_seqs=8, configs=configs
    )
    for index, config in enumerate(configs):
        batch = batches[index % len(batches)]
        choose(config, configs[index - 1])
        parts = Parts.of(batch.query_lens, batch.context_lens)
        plan = batch.plan(parts=parts, workspace=workspace)
        assert_close(run_poisoned(batch, plan), batch.reference())
    with pytest.raises(ValueError, match="num_seqs"):
        batch = random_batch(((1,) * 8 + (20,), (33,) * 9))
        batch.plan(parts=Parts.of(batch.query_lens, batch.context_lens), workspace=workspace)


def test_contents_may_change_between_layers_and_plans(batch, choose):
    """As in a replay: what begins a plan launches again, and finds the new boundary."""
    choose(QBLOCK, QBLOCK._replace(block_m=32))
    plan = batch.plan(parts=PARTS)
    other = random_batch(((15, 1, 2, 1, 9, 1, 1, 6), LENS[1]), kv_heads=2)
    for name in ("cu_seqlens_q", "seqused_k", "block_table"):
        getattr(batch, name).copy_(getattr(other, name))
    begin(plan)
    assert plan.parts[1].cu_seqlens_q[0] == 0
    assert_close(run_poisoned(other, plan), other.reference())


@pytest.mark.parametrize("name", ["q", "out"])
def test_layers_are_checked_against_the_whole_batch(name, batch):
    plan = batch.plan(parts=PARTS)
    tensors = {"q": batch.q, "out": torch.empty_like(batch.q)}
    tensors[name] = tensors[name][:6]
    with pytest.raises(ValueError, match=rf"\A{name} "):
        attn_kernels.run(plan, tensors["q"], batch.k_cache, batch.v_cache, out=tensors["out"])

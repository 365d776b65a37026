"""attn_kernels.measure: batches, tensors, references, verdicts and times."""

import math
from unittest.mock import Mock, call

import pytest
import torch

from attn_kernels.measure.batches import Batch, HeadLayout, chunked_prefill, mixed, prefill, varlen
from attn_kernels.measure.checking import WINDOW, Expected, check, choose_windows, expect
from attn_kernels.measure.roofline import Ceilings, visible_keys, work
from attn_kernels.measure.tensors import materialise
from attn_kernels.measure.timing import Timing, prepare, time_together
from attn_kernels.testing.reference import paged_attention_reference

CPU = torch.device("cpu")
SMALL = HeadLayout(4, 2, 16)


def test_impossible_head_layouts_and_batches_are_refused():
    assert HeadLayout.parse("16/2/64") == HeadLayout(16, 2, 64)
    for text in ("", "32", "3/2", "8/0/64", "a/b", "1/1/1/1"):
        with pytest.raises(ValueError, match="head layout"):
            HeadLayout.parse(text)
    for queries, contexts in (((), ()), ((1,), (1, 2)), ((3,), (2,)), ((0,), (2,))):
        with pytest.raises(ValueError, match="wrong: "):
            Batch("wrong", "decode", queries, contexts)


def test_random_batches_respect_their_limits():
    for seed in range(50):
        batch = varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch == varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch.lengths.num_seqs <= 8 and batch.lengths.max_seq_len <= 512
        assert batch.lengths.num_kv_tokens <= 1000 and batch.lengths.num_query_tokens <= 125 + 8


def test_roofline_counts_pairs_and_bytes_exactly():
    for query in range(1, 6):
        for context in range(query, 9):
            pairs = sum(context - query + i + 1 for i in range(query))
            assert visible_keys(query, context) == pairs
    least = work(Batch("b", "mixed", (2, 1), (3, 5), HeadLayout(4, 2, 8), 4, torch.float16))
    assert least.flops == 4 * (2 + 3 + 5) * 4 * 8
    assert least.bytes == 2 * (2 * 3 * 4 * 8) + 2 * (2 * 8 * 2 * 8) + 4 * (3 + 2 + 3)
    assert least.floor_us(Ceilings(bytes_per_s=1e6, flops_per_s=1e12)) == least.bytes


def test_sequences_share_no_page_and_outputs_start_as_nan():
    batch = mixed(5, 0.5, 40, 20).at(SMALL, dtype=torch.float32)
    tensors = materialise(batch, CPU, num_sets=2)
    rows = zip(tensors.block_table, batch.blocks_per_seq, strict=True)
    pages = torch.cat([row[:used] for row, used in rows])
    assert sorted(pages.tolist()) == list(range(sum(batch.blocks_per_seq)))
    for kv in tensors.sets:
        assert kv.k_cache.is_contiguous()
        assert kv.out.isnan().all()
    assert not torch.equal(tensors.sets[0].q, tensors.sets[1].q)


def test_windows_of_the_reference_are_rows_of_the_whole():
    tensors = materialise(Batch("b", "chunk", (300,), (400,), SMALL, dtype=torch.float32), CPU)
    kv, windows = tensors.sets[0], expect(tensors)
    index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table)
    options = {"softmax_scale": tensors.softmax_scale, **tensors.options}
    whole = paged_attention_reference(kv.q, kv.k_cache, kv.v_cache, *index, **options)
    assert windows.values.shape[0] == 300
    torch.testing.assert_close(windows.values, whole[windows.rows])

    several = Batch("b", "chunk", (300, 1, 70), (400, 9, 70), SMALL, dtype=torch.float32)
    tensors = materialise(several, CPU)
    for cache in (tensors.sets[0].k_cache, tensors.sets[0].v_cache):
        for row, context in zip(tensors.block_table, several.context_lens, strict=True):
            page, used = divmod(context, several.block_size)
            if used:
                cache[row[page], used:] = math.nan
    assert tensors.sets[0].k_cache.isnan().any()
    assert expect(tensors).values.isfinite().all()


def test_windows_cover_both_ends_and_stay_within_the_work_limit():
    windows = choose_windows(prefill(2, 1000))
    for seq in range(2):
        of_seq = [window for window in windows if window.seq == seq]
        assert of_seq[0].start == 0
        assert of_seq[-1].stop == 1000
        assert all(window.stop - window.start <= WINDOW for window in of_seq)
    assert 1 <= len(choose_windows(chunked_prefill(64, 1024, 1 << 17))) < 64


def test_wrong_outputs_are_seen():
    tensors = materialise(prefill(1, 200).at(HeadLayout(32, 8, 16), dtype=torch.float16), CPU)
    expected = expect(tensors)
    right = torch.zeros_like(tensors.sets[0].out)
    right[expected.rows] = expected.values.half()
    unwritten, one_head = right.clone(), right.clone()
    unwritten[100, 3, 5] = math.nan
    one_head[199, 31] *= 1.05
    assert check(right, expected).ok
    assert check(one_head, expected).error < expected.tolerance
    assert not any(check(out, expected).ok for out in (unwritten, one_head, 1.01 * right))


@pytest.mark.parametrize("size, fine", [(1e-12, True), (1e-7, True), (1e-4, False), (1.0, False)])
def test_a_lost_head_is_seen_unless_its_type_cannot_hold_it(size, fine):
    values = torch.ones(4, 2, 16, dtype=torch.float64)
    values[1, 1] = size
    out = values.to(torch.float16)
    out[1, 1] = 0.0
    assert check(out, Expected(torch.arange(4), values, 2e-3)).ok == fine


def test_launches_are_timed_in_order_and_in_reverse():
    timing = Timing.of([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timing.median_us, timing.noise_us) == (3.0, 1.0)
    calls = []
    timed = {name: prepare([lambda name=name: calls.append(name)], CPU) for name in ("a", "b")}
    assert set(time_together(timed, repeats=4)) == {"a", "b"}
    assert calls == list("aabbbbaa")
    slow = Mock(replay_us=200_000.0, sample=Mock(side_effect=lambda repeats: [1.0] * repeats))
    time_together({"slow": slow}, repeats=100)
    assert slow.sample.mock_calls == [call(5), call(5)]

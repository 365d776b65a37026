"""What the benchmarks compute without a GPU: batches, work counts, reference windows, timings, means."""

import dataclasses
import math

import pytest
import torch

from benchmarks import report
from benchmarks.batch_sets import BATCH_SETS, select
from benchmarks.batches import Batch, HeadLayout, chunked_prefill, mixed, prefill, varlen
from benchmarks.checking import WINDOW, check, choose_windows, expect
from benchmarks.roofline import Ceilings, visible_keys, work
from benchmarks.tensors import materialise
from benchmarks.timing import Timing, prepare, time_together

CPU = torch.device("cpu")
SMALL = HeadLayout(4, 2, 16)


def test_layout_text() -> None:
    assert HeadLayout.parse("32/8") == HeadLayout(32, 8, 128)
    assert HeadLayout.parse("16/2/64") == HeadLayout(16, 2, 64)
    for wrong in ("", "32", "3/2", "8/0/64", "a/b", "1/1/1/1"):
        with pytest.raises(ValueError, match="head layout"):
            HeadLayout.parse(wrong)


@pytest.mark.parametrize(("queries", "contexts"), [((), ()), ((1,), (1, 2)), ((3,), (2,)), ((0,), (2,))])
def test_impossible_batches_are_refused(queries: tuple[int, ...], contexts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Batch("wrong", "decode", queries, contexts)


@pytest.mark.parametrize("name", list(BATCH_SETS))
def test_named_sets_are_distinct_and_stable(name: str) -> None:
    batches = select(name)
    assert batches
    assert batches == select(name)
    assert len({str(batch) for batch in batches}) == len(batches)
    assert all(batch.block_size == 24 for batch in select(name, block_size=24))


def test_random_batches_respect_their_limits() -> None:
    for seed in range(50):
        batch = varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch == varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch.num_seqs <= 8
        assert batch.max_seq_len <= 512
        assert batch.num_kv_tokens <= 1000
        assert batch.num_query_tokens <= 125 + 8


def test_work_counts_pairs_exactly() -> None:
    for query in range(1, 6):
        for context in range(query, 9):
            pairs = sum(context - query + i + 1 for i in range(query))
            assert visible_keys(query, context) == pairs
    batch = Batch("b", "mixed", (2, 1), (3, 5), HeadLayout(4, 2, 8), block_size=4, dtype=torch.float16)
    least = work(batch)
    assert least.flops == 4 * (2 + 3 + 5) * 4 * 8
    assert least.bytes == 2 * (2 * 3 * 4 * 8) + 2 * (2 * 8 * 2 * 8) + 4 * (3 + 2 + 3)
    assert least.floor_us(Ceilings(bytes_per_s=1e6, flops_per_s=1e12)) == least.bytes


def test_tensors_share_no_page_and_start_poisoned() -> None:
    batch = mixed(5, 0.5, 40, 20).at(SMALL, dtype=torch.float32)
    tensors = materialise(batch, CPU, num_sets=2, nan_padding=True)
    pages = torch.cat(
        [row[:used] for row, used in zip(tensors.block_table, batch.blocks_per_seq, strict=True)]
    )
    assert sorted(pages.tolist()) == list(range(sum(batch.blocks_per_seq)))
    for kv in tensors.sets:
        assert kv.k_cache.is_contiguous()
        assert kv.out.isnan().all()
        written = (~kv.k_cache.isnan()).all(dim=(2, 3)).sum().item()
        assert written == batch.num_kv_tokens
    assert not torch.equal(tensors.sets[0].q, tensors.sets[1].q)


def test_windows_of_the_reference_equal_the_whole() -> None:
    batch = Batch("b", "chunk", (300, 1, 70), (400, 9, 70), SMALL, dtype=torch.float32)
    tensors = materialise(batch, CPU, nan_padding=True)
    expected = expect(tensors)
    out = torch.full_like(tensors.sets[0].out, 0.0)
    out[expected.rows] = expected.values.float()
    assert check(out, expected).ok

    whole = Batch("w", "chunk", (300,), (400,), SMALL, dtype=torch.float32)
    one = materialise(whole, CPU)
    kv = one.sets[0]
    keys = kv.k_cache[one.block_table[0].long()].flatten(0, 1)[:400].double().repeat_interleave(2, dim=1)
    values = kv.v_cache[one.block_table[0].long()].flatten(0, 1)[:400].double().repeat_interleave(2, dim=1)
    scores = torch.einsum("qhd,khd->hqk", kv.q.double(), keys) * one.softmax_scale
    hidden = torch.arange(400)[None] > torch.arange(300)[:, None] + 100
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    dense = torch.einsum("hqk,khd->qhd", weights, values)
    windows = expect(one)
    torch.testing.assert_close(windows.values, dense[windows.rows])


def test_windows_cover_both_ends_and_stay_within_the_work_limit() -> None:
    windows = choose_windows(prefill(2, 1000))
    for seq in range(2):
        own = [window for window in windows if window.seq == seq]
        assert own[0].start == 0
        assert own[-1].stop == 1000
        assert all(window.stop - window.start <= WINDOW for window in own)
    assert 1 <= len(choose_windows(chunked_prefill(64, 1024, 1 << 17))) < 64


@pytest.mark.parametrize("spoil", ["nan", "one head", "everything"])
def test_wrong_outputs_are_seen(spoil: str) -> None:
    batch = prefill(1, 200).at(HeadLayout(32, 8, 16), dtype=torch.float16)
    tensors = materialise(batch, CPU)
    expected = expect(tensors)
    out = torch.zeros_like(tensors.sets[0].out)
    out[expected.rows] = expected.values.half()
    assert check(out, expected).ok
    if spoil == "nan":
        out[100, 3, 5] = math.nan
    elif spoil == "one head":
        out[199, 31] *= 1.05
        assert check(out, expected).error < expected.tolerance
    else:
        out *= 1.01
    assert not check(out, expected).ok


def test_timing_statistics_and_order() -> None:
    timing = Timing.of([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timing.median_us, timing.min_us, timing.noise_us, timing.replays) == (3.0, 1.0, 1.0, 5)
    calls: list[str] = []
    timed = {name: prepare([lambda name=name: calls.append(name)], CPU) for name in ("a", "b")}  # type: ignore[misc]
    assert set(time_together(timed, repeats=4)) == {"a", "b"}
    assert calls == list("aabbbbaa")


def test_ratios_leave_wrong_results_out() -> None:
    batch = prefill(1, 32)

    def result(name: str, time_us: float, ok: bool = True) -> report.Result:
        base = report.Result.of(batch, 2, name)
        timed = base.timed(batch, Timing(time_us, time_us, 0.0, 1), Ceilings(1e12, 1e15))
        return dataclasses.replace(timed, ok=ok)

    rounds = [
        {"ours": result("ours", 10.0), "fa3": result("fa3", 20.0), "vllm": result("vllm", 5.0, ok=False)},
        {
            "ours": result("ours", 10.0),
            "fa3": result("fa3", 5.0),
            "vllm": report.Result.of(batch, 2, "vllm", "no"),
        },
    ]
    assert report.ratio(rounds[0], "fa3") == 2.0
    assert report.ratio(rounds[0], "vllm") is None
    last = report.geomeans(rounds, ["vllm", "fa3"], sweep=False)[-1]
    assert last.split() == ["all", "-", "1.000", "(2)"]
    assert "!" in report.line(rounds[0], ["vllm", "fa3"], sweep=False)

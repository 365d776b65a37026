"""What the benchmarks compute without a GPU: batches, candidates, references, verdicts, means, plots."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from attn_kernels import Config
from attn_kernels.choose.capture import STREAM_K
from attn_kernels.core.config import complete
from attn_kernels.kernels.config_check import check_config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import Batch, HeadLayout, chunked_prefill, decode, mixed, prefill, varlen
from attn_kernels.measure.checking import WINDOW, Check, Expected, check, choose_windows, expect
from attn_kernels.measure.roofline import Ceilings, visible_keys, work
from attn_kernels.measure.tensors import BatchTensors, materialise
from attn_kernels.measure.timing import Timing, prepare, time_together
from attn_kernels.warmup.jobs import minimal
from benchmarks.attention import plots
from benchmarks.attention.batch_sets import BATCH_SETS, select
from benchmarks.attention.compare_batch import Contest, with_best
from benchmarks.common import means, report, table
from benchmarks.common.implementations import Prepared
from benchmarks.common.jobs import own_job
from benchmarks.common.report import Result
from benchmarks.common.space import MOST, candidates
from verification import recompile
from verification.cases import LAYOUTS, PAGES, SETTINGS, huge, random_cases
from verification.poisoned import load
from verification.tally import Tally
from verification.verify import compile_jobs

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


def test_sets_cover_what_servers_do() -> None:
    main, every = select("core"), select("full")
    assert 0.4 <= sum(batch.kind == "decode" for batch in main) / len(main) <= 0.6
    layouts = {"32/8/128", "28/4/128", "32/32/128", "16/2/128", "32/8/64", "16/8/256"}
    assert {str(batch.layout) for batch in main} == {str(batch.layout) for batch in every} == layouts
    shares = {round(100 * batch.query_lens.count(1) / batch.num_seqs) for batch in every}
    assert {0, 50, 98, 100} <= shares
    assert {batch.num_seqs for batch in every if batch.kind == "decode"} >= {1, 4, 16, 64, 256}
    assert {batch.max_seq_len for batch in every} >= {128, 1024, 8192, 65536}
    assert {batch.kind for batch in every} == {"decode", "prefill", "chunk", "mixed", "spec", "varlen"}


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


def test_slow_candidates_are_repeated_less() -> None:
    class Slow:
        replay_us = 200_000.0

        def __init__(self) -> None:
            self.repeats: list[int] = []

        def sample(self, repeats: int) -> list[float]:
            self.repeats.append(repeats)
            return [1.0] * repeats

    slow = Slow()
    time_together({"slow": slow}, repeats=100)
    assert slow.repeats == [5, 5]


def result(name: str, time_us: float | None, ok: bool = True, batch: Batch | None = None) -> Result:
    """A result of known time, or without one."""
    batch = batch or prefill(1, 32)
    base = Result.of(batch, 2, name)
    if time_us is None:
        return base
    timed = base.timed(batch, Timing(time_us, time_us, 0.0, 1), Ceilings(1e12, 1e15))
    return dataclasses.replace(timed, ok=ok, config=f"config of {name}")


@pytest.mark.parametrize("size, fine", [(1e-12, True), (1e-7, True), (1e-4, False), (1.0, False)])
def test_a_lost_head_is_seen_unless_its_type_cannot_hold_it(size: float, fine: bool) -> None:
    values = torch.ones(4, 2, 16, dtype=torch.float64)
    values[1, 1] = size
    out = values.to(torch.float16)
    out[1, 1] = 0.0
    assert check(out, Expected(torch.arange(4), values, 2e-3)).ok == fine


def test_ratios_leave_wrong_results_out() -> None:
    rounds = [
        {"ours": result("ours", 10.0), "fa3": result("fa3", 20.0), "vllm": result("vllm", 5.0, ok=False)},
        {"ours": result("ours", 10.0), "fa3": result("fa3", 5.0), "vllm": result("vllm", None)},
    ]
    assert report.ratio(rounds[0], "fa3") == 2.0
    assert report.ratio(rounds[0], "vllm") is None
    last = means.tables(rounds, ["vllm", "fa3"], [])[-1]
    assert last.split() == ["all", "-", "1.000", "(2)"]
    assert "5.0!" in table.line(rounds[0], ["vllm", "fa3"], sweep=False)


def test_geometric_means_by_kind_and_heads() -> None:
    other = HeadLayout(28, 4)
    batches = (decode(1, 64), decode(2, 64).at(other), prefill(1, 64).at(other))
    times = ((10.0, 5.0, 40.0), (10.0, 10.0, 10.0), (10.0, 10.0, 20.0))
    rounds = [
        {name: result(name, us, batch=batch) for name, us in zip(("ours", "best", "fa3"), row, strict=True)}
        for batch, row in zip(batches, times, strict=True)
    ]
    for results in rounds:
        results["qblock"] = dataclasses.replace(results["ours"], implementation="qblock")
        results["naive"] = result("naive", None)
    lines = means.tables(rounds, ["fa3"], ["naive", "qblock"])
    cells = [line.split() for line in lines if line.startswith(("kind", "heads", "all"))]
    assert cells == [
        ["kind", "decode", "2.828", "(2)", "2.000", "(2)"],  # fa3 over best, over ours
        ["kind", "prefill", "2.000", "(1)", "2.000", "(1)"],
        ["heads", "32/8/128", "8.000", "(1)", "4.000", "(1)"],
        ["heads", "28/4/128", "1.414", "(2)", "1.414", "(2)"],
        ["all", "2.520", "(3)", "2.000", "(3)"],
        ["kind", "decode", "1.414", "(2)", "-", "1.414", "(2)"],  # ours, naive, qblock over best
        ["kind", "prefill", "1.000", "(1)", "-", "1.000", "(1)"],
        ["all", "1.260", "(3)", "-", "1.260", "(3)"],
    ]


def test_best_is_the_fastest_right_result_of_ours() -> None:
    results = {
        "ours": result("ours", 10.0),
        "fa3": result("fa3", 1.0),
        "naive": result("naive", 2.0, ok=False),
        "qblock": result("qblock", 8.0),
        "segmented": result("segmented", None),
    }
    best = with_best(results, dict.fromkeys(("naive", "qblock", "segmented")))["best"]
    assert (best.implementation, best.time_us, best.config) == ("best", 8.0, "config of qblock")
    assert "best" not in with_best(results, {})


@dataclasses.dataclass(frozen=True)
class Constant:
    """An implementation that writes one number everywhere, or raises."""

    value: float
    name: str = "ours"

    def prepare(self, tensors: BatchTensors) -> Prepared:
        if math.isinf(self.value):
            raise RuntimeError("cannot do this")

        def launch() -> None:
            for kv in tensors.sets:
                kv.out.fill_(self.value)

        return Prepared([launch] * len(tensors.sets), lambda i: tensors.sets[i].out, "constant")


def test_a_wrong_kernel_is_reported() -> None:
    contest = Contest(CPU, [Constant(0.5), Constant(math.inf, "fa3")], Ceilings(1e12, 1e12), repeats=2)
    results = contest.hold(prefill(1, 20).at(SMALL, dtype=torch.float32), {})
    assert not results["ours"].ok
    assert results["ours"].note.startswith("WRONG")
    assert results["ours"].time_us
    assert report.ours_failed(results)
    assert results["fa3"].note == "FAILED: RuntimeError: cannot do this"
    text = table.line(results, ["fa3"], sweep=False)
    assert "!" in text
    assert "ours: WRONG" in text
    assert "fa3: FAILED" in text


def test_rejected_configs_are_failures_and_skipped_variants_are_not() -> None:
    fine = {"ours": result("ours", 1.0)}
    skipped = dataclasses.replace(result("naive", None), note="skipped: too slow")
    assert not report.ours_failed({**fine, "naive": skipped})
    assert table.skipped([{**fine, "naive": skipped}] * 2) == ["naive skipped: too slow: 2 batches"]
    wrong = dataclasses.replace(result("naive", 1.0), rejected="naive_M1_T64_W4_S2 WRONG")
    assert report.ours_failed({**fine, "naive": wrong})
    assert "REJECTED" in table.line({**fine, "naive": wrong}, [], sweep=True)


@pytest.mark.parametrize("name", list(BATCH_SETS))
def test_every_candidate_is_a_config_of_its_variant(name: str) -> None:
    for batch in select(name):
        found = candidates(batch, 132)
        assert list(found) == list(VARIANTS)
        for variant, tried in found.items():
            assert bool(tried.configs) != bool(tried.skipped)
            assert len(tried.configs) == len(set(tried.configs)) <= MOST
            for config in tried.configs:
                check_config(config)
                assert config.variant == variant
                assert Config.parse(str(config)) == config


def test_segments_are_tried_where_query_tiles_leave_the_gpu_idle() -> None:
    few, many = decode(1, 8192), decode(256, 8192)
    counts = {config.num_segments for config in candidates(few, 132)["segmented"].configs}
    assert counts <= {32, 64}
    assert candidates(many, 132)["segmented"].skipped
    one_long = Batch("b", "varlen", (1,) * 200, (65536,) + (16,) * 199)
    assert candidates(one_long, 132)["segmented"].configs
    assert candidates(prefill(1, 32768), 132)["naive"].skipped


def test_what_graphs_are_captured_with_is_among_the_candidates() -> None:
    assert STREAM_K in candidates(decode(64, 8192), 132)["stream_k"].configs


def test_nothing_is_compiled_twice() -> None:
    """Batches of one head layout share kernels; lengths, sizes of launches and KV heads compile nothing."""
    one, two = decode(1, 64), decode(64, 4096)
    config, grid = Config("qblock", 16, 64), Config("static_grid", 16, 64)
    same = [own_job(batch, config) for batch in (one, two, one.at(HeadLayout(16, 4)))]
    same_grid = [own_job(one, grid), own_job(two, grid._replace(programs_per_sm=4))]
    assert len(minimal([*same, *same_grid])) == 2
    others = [one.at(HeadLayout(16, 2)), one.at(block_size=32), one.at(dtype=torch.float16)]
    assert len(minimal([own_job(batch, config) for batch in (one, *others)])) == 4
    split = Config("split", 16, 64)
    jobs = [own_job(batch, split) for batch in (one, prefill(1, 8), mixed(4, 0.5, 64, 16))]
    assert minimal(jobs) == [jobs[2]]  # it launches both kernels
    big, small = own_job(one, Config("qblock", 128, 128)), own_job(one, config)
    assert minimal([small, big]) == [big, small]


def test_random_cases_reach_every_feature_and_variant() -> None:
    cases = list(random_cases(500, 0))
    assert cases == list(random_cases(500, 0))
    for case in cases:
        assert [config.variant for config in case.configs if config] == list(VARIANTS)
        for config in case.configs:
            check_config(complete(config))  # type: ignore[arg-type]
    names = {name for case in cases for name in case.features.names}
    wanted = {"window", "soft cap", "ALiBi", "sinks float32", "sinks half", "fp8 cache", "float scales"}
    assert names >= wanted | {"tensor scales", "fused strides", "odd strides", "new keys", "none"}
    assert {case.batch.block_size for case in cases} == set(PAGES)
    assert {case.batch.layout for case in cases} == set(LAYOUTS)
    assert any(0 in case.batch.query_lens for case in cases)
    jobs = minimal(compile_jobs(cases, CPU))
    assert len(jobs) <= 8 * SETTINGS  # each setting has one config a variant, split up to three launches


def test_far_pages_hold_what_the_near_ones_did() -> None:
    case = next(huge(1 << 20))
    layout = HeadLayout(4, 2, 16)
    case = dataclasses.replace(case, batch=case.batch.at(layout))
    near, far = load(dataclasses.replace(case, far=0), CPU), load(case, CPU)
    assert far.tensors.k_cache.numel() >= 1 << 20
    assert far.tensors.k_cache[:100].isnan().all()
    torch.testing.assert_close(far.expect().values, near.expect().values)


def test_tally_counts_a_launch_once_a_table_and_lists_failures() -> None:
    case = next(random_cases(1, 0))
    config = complete(case.configs[3])  # type: ignore[arg-type]
    tally = Tally()
    tally.add(case, config, Check(1e-3, 1e-3, 5, 0, 1e-2))
    tally.add(case, config, Check(0.5, 0.5, 5, 0, 1e-2))
    tally.fail(case, config, "RuntimeError: no")
    assert tally.launches == 3
    assert len(tally.failures) == 2
    row = next(line for line in tally.lines() if line.startswith("qblock"))
    assert "2 WRONG" in row
    assert "5.0e-01" in row


def test_recompilation_beyond_configs_and_layouts_is_seen() -> None:
    limits = recompile.allowed(recompile.LAYOUTS, torch.device("cpu"))
    assert limits["qblock_kernel"] == 4  # one of them stands for the Hopper kernel elsewhere
    assert limits["prefix_prefill_kernel"] == 4  # of two variants
    assert limits["reduce_kernel"] == 4
    lines = recompile.verdicts({**limits, "qblock_kernel": 5}, limits)
    assert [line.split()[0] for line in lines if "TOO MANY" in line] == ["qblock_kernel"]
    kinds = {batch.kind for batch in recompile.trace(100, 0, 16)}
    assert kinds >= {"decode", "prefill", "chunk", "spec", "mixed", "varlen"}


def test_plots_are_drawn_from_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    times = {"ours": 2.0, "qblock": 1.5, "fa3": 1.0}
    rounds = [
        with_best({name: result(name, us, batch=batch) for name, us in times.items()}, {"qblock": None})
        for batch in (decode(1, 64), prefill(1, 64))
    ]
    report.write(tmp_path, {"environment": {"device": "none", "date": "2000-01-01"}}, rounds)
    drawn = {path.name for path in plots.draw(tmp_path / "compare.json")}
    assert drawn == {f"compare_{name}.png" for name in ("ratios", "roofline", "rates", "variants")}

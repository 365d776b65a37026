"""What could make a benchmark's figure wrong: batches, candidates, references, verdicts, ratios, means."""

import dataclasses
import math
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch

from attn_kernels import Config
from attn_kernels.choose.capture import STREAM_K
from attn_kernels.core.config import complete
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.measure.batches import Batch, HeadLayout, chunked_prefill, decode, mixed, prefill, varlen
from attn_kernels.measure.checking import WINDOW, Check, Expected, check, choose_windows, expect
from attn_kernels.measure.roofline import Ceilings, visible_keys, work
from attn_kernels.measure.tensors import BatchTensors, materialise
from attn_kernels.measure.timing import Timing, prepare, time_together
from benchmarks.attention import plots, tables
from benchmarks.attention.batch_sets import BATCH_SETS, select
from benchmarks.attention.compare_batch import ComparisonSettings, compare_batch, with_best
from benchmarks.attention.records import ComparisonRecord, ours_failed, time_ratio, write_records
from benchmarks.common.environment import within_deadline
from benchmarks.common.implementations import PreparedLaunches
from benchmarks.common.space import MOST, Candidates, candidates
from triton_tune.processes.jobs import minimal
from verification import recompile
from verification.cases import HOPPER_PAGES, PAGES, SETTINGS, huge, random_cases
from verification.compile_jobs import plain_job
from verification.poisoned import load
from verification.tally import Tally
from verification.verify import compile_jobs

CPU = torch.device("cpu")
UNMIXED = [name for name, variant in VARIANTS.items() if not variant.mixed]
SMALL = HeadLayout(4, 2, 16)


def test_impossible_head_layouts_and_batches_are_refused() -> None:
    assert HeadLayout.parse("16/2/64") == HeadLayout(16, 2, 64)
    for text in ("", "32", "3/2", "8/0/64", "a/b", "1/1/1/1"):
        with pytest.raises(ValueError, match="head layout"):
            HeadLayout.parse(text)
    for queries, contexts in (((), ()), ((1,), (1, 2)), ((3,), (2,)), ((0,), (2,))):
        with pytest.raises(ValueError, match="wrong: "):
            Batch("wrong", "decode", queries, contexts)


@pytest.mark.parametrize("name", list(BATCH_SETS))
def test_sets_hold_each_batch_once_and_candidates_fit_their_variant(name: str) -> None:
    batches = select(name)
    assert batches and batches == select(name)
    assert len({str(batch) for batch in batches}) == len(batches)
    assert all(batch.block_size == 24 for batch in select(name, block_size=24))
    for batch in batches:
        spaces = candidates(batch, 132)
        assert list(spaces) == UNMIXED
        for variant, space in spaces.items():
            assert bool(space.configs) != bool(space.skipped)
            assert len(space.configs) == len(set(space.configs)) <= MOST
            for config in space.configs:
                check_config(config)
                assert config.variant == variant


def test_random_batches_respect_their_limits() -> None:
    for seed in range(50):
        batch = varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch == varlen(seed, max_seqs=8, max_context=512, max_tokens=1000)
        assert batch.num_seqs <= 8 and batch.max_seq_len <= 512
        assert batch.num_kv_tokens <= 1000 and batch.num_query_tokens <= 125 + 8


def test_roofline_counts_pairs_and_bytes_exactly() -> None:
    for query in range(1, 6):
        for context in range(query, 9):
            pairs = sum(context - query + i + 1 for i in range(query))
            assert visible_keys(query, context) == pairs
    least = work(Batch("b", "mixed", (2, 1), (3, 5), HeadLayout(4, 2, 8), 4, torch.float16))
    assert least.flops == 4 * (2 + 3 + 5) * 4 * 8
    assert least.bytes == 2 * (2 * 3 * 4 * 8) + 2 * (2 * 8 * 2 * 8) + 4 * (3 + 2 + 3)
    assert least.floor_us(Ceilings(bytes_per_s=1e6, flops_per_s=1e12)) == least.bytes


def test_sequences_share_no_page_and_outputs_start_as_nan() -> None:
    batch = mixed(5, 0.5, 40, 20).at(SMALL, dtype=torch.float32)
    tensors = materialise(batch, CPU, num_sets=2, nan_padding=True)
    rows = zip(tensors.block_table, batch.blocks_per_seq, strict=True)
    pages = torch.cat([row[:used] for row, used in rows])
    assert sorted(pages.tolist()) == list(range(sum(batch.blocks_per_seq)))
    for kv in tensors.sets:
        assert kv.k_cache.is_contiguous()
        assert kv.out.isnan().all()
        written = (~kv.k_cache.isnan()).all(dim=(2, 3)).sum().item()
        assert written == batch.num_kv_tokens
    assert not torch.equal(tensors.sets[0].q, tensors.sets[1].q)


def test_windows_of_the_reference_equal_dense_attention() -> None:
    tensors = materialise(Batch("b", "chunk", (300,), (400,), SMALL, dtype=torch.float32), CPU)
    kv, pages = tensors.sets[0], tensors.block_table[0].long()
    keys, values = (
        cache[pages].flatten(0, 1)[:400].double().repeat_interleave(2, dim=1)
        for cache in (kv.k_cache, kv.v_cache)
    )
    scores = torch.einsum("qhd,khd->hqk", kv.q.double(), keys) * tensors.softmax_scale
    hidden = torch.arange(400)[None] > torch.arange(300)[:, None] + 100
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    dense = torch.einsum("hqk,khd->qhd", weights, values)
    windows = expect(tensors)
    torch.testing.assert_close(windows.values, dense[windows.rows])

    several = Batch("b", "chunk", (300, 1, 70), (400, 9, 70), SMALL, dtype=torch.float32)
    assert expect(materialise(several, CPU, nan_padding=True)).values.isfinite().all()


def test_windows_cover_both_ends_and_stay_within_the_work_limit() -> None:
    windows = choose_windows(prefill(2, 1000))
    for seq in range(2):
        of_seq = [window for window in windows if window.seq == seq]
        assert of_seq[0].start == 0
        assert of_seq[-1].stop == 1000
        assert all(window.stop - window.start <= WINDOW for window in of_seq)
    assert 1 <= len(choose_windows(chunked_prefill(64, 1024, 1 << 17))) < 64


def test_wrong_outputs_are_seen() -> None:
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
def test_a_lost_head_is_seen_unless_its_type_cannot_hold_it(size: float, fine: bool) -> None:
    values = torch.ones(4, 2, 16, dtype=torch.float64)
    values[1, 1] = size
    out = values.to(torch.float16)
    out[1, 1] = 0.0
    assert check(out, Expected(torch.arange(4), values, 2e-3)).ok == fine


def test_launches_are_timed_in_order_and_in_reverse() -> None:
    timing = Timing.of([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timing.median_us, timing.min_us, timing.noise_us, timing.replays) == (3.0, 1.0, 1.0, 5)
    calls: list[str] = []
    timed = {name: prepare([lambda name=name: calls.append(name)], CPU) for name in ("a", "b")}  # type: ignore[misc]
    assert set(time_together(timed, repeats=4)) == {"a", "b"}
    assert calls == list("aabbbbaa")
    slow = Mock(replay_us=200_000.0, sample=Mock(side_effect=lambda repeats: [1.0] * repeats))
    time_together({"slow": slow}, repeats=100)
    assert slow.sample.mock_calls == [call(5), call(5)]


def test_a_time_budget_leaves_out_what_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("benchmarks.common.environment.time.monotonic", lambda: now)
    done = []
    for seconds in within_deadline([1.0, 4.0, 1.0, 1.0], 9.5):
        now += seconds
        done.append(seconds)
    assert done == [1.0, 4.0, 1.0]  # 6 s are over, and another 4 s would end at 10 s


def record(name: str, us: float | None, ok: bool = True, batch: Batch | None = None) -> ComparisonRecord:
    """Return a record with a known time, or without one."""
    batch = batch or prefill(1, 32)
    untimed = ComparisonRecord.of(batch, 2, name)
    if us is None:
        return untimed
    timed = untimed.timed(batch, Timing(us, us, 0.0, 1), Ceilings(1e12, 1e15))
    return dataclasses.replace(timed, ok=ok, config=f"config of {name}")


def test_ratios_leave_wrong_results_out() -> None:
    batches = [
        {"ours": record("ours", 10.0), "fa3": record("fa3", 20.0), "vllm": record("vllm", 5.0, ok=False)},
        {"ours": record("ours", 10.0), "fa3": record("fa3", 5.0), "vllm": record("vllm", None)},
    ]
    assert time_ratio(batches[0], "fa3") == 2.0
    assert time_ratio(batches[0], "vllm") is None
    assert time_ratio(batches[0], "fa3", "vllm") is None
    assert tables.mean_tables(batches, ["vllm", "fa3"], [])[-1].split() == ["all", "-", "1.000", "(2)"]


def test_geometric_means_by_kind_and_heads() -> None:
    other = HeadLayout(28, 4)
    times = {
        decode(1, 64): (10.0, 5.0, 40.0),
        decode(2, 64).at(other): (10.0, 10.0, 10.0),
        prefill(1, 64).at(other): (10.0, 10.0, 20.0),
    }
    records = [
        {name: record(name, us, batch=batch) for name, us in zip(("ours", "best", "fa3"), row, strict=True)}
        for batch, row in times.items()
    ]
    for of_batch in records:
        of_batch["qblock"] = dataclasses.replace(of_batch["ours"], implementation="qblock")
        of_batch["naive"] = record("naive", None)
    lines = tables.mean_tables(records, ["fa3"], ["naive", "qblock"])
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


def test_best_is_the_fastest_right_record_of_ours() -> None:
    records = {
        "ours": record("ours", 10.0),
        "fa3": record("fa3", 1.0),
        "naive": record("naive", 2.0, ok=False),
        "qblock": record("qblock", 8.0),
        "segmented": record("segmented", None),
    }
    best = with_best(records, ("naive", "qblock", "segmented"))["best"]
    assert (best.implementation, best.time_us, best.config) == ("best", 8.0, "config of qblock")
    assert "best" not in with_best(records, ())


@dataclasses.dataclass(frozen=True)
class FakeKernel:
    """An implementation that writes the reference, or that plus an error; an infinite error is raised."""

    config: Config | None = None
    name: str = "ours"
    error: float = 0.0
    right_launches: int = 0  # before the error shows

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        if math.isinf(self.error):
            raise RuntimeError("cannot do this")
        expected, out = expect(tensors), tensors.sets[0].out
        errors = chain([0.0] * self.right_launches, repeat(self.error))

        def launch() -> None:
            out[expected.rows] = expected.values.to(out.dtype) + next(errors)

        return PreparedLaunches([launch], lambda i: out, str(self.config))


BATCH = prefill(1, 20).at(SMALL, dtype=torch.float32)


def test_wrong_and_failed_kernels_are_reported() -> None:
    wrong_replay = FakeKernel(name="vllm", error=0.5, right_launches=1)
    implementations = [FakeKernel(error=0.5), FakeKernel(name="fa3", error=math.inf), wrong_replay]
    settings = ComparisonSettings(CPU, implementations, Ceilings(1e12, 1e12), repeats=2)
    records = compare_batch(BATCH, {}, settings)
    assert not records["ours"].ok
    assert records["ours"].time_us
    assert ours_failed(records)
    text = tables.batch_line(records, ["fa3"], sweep=False)
    assert "ours: WRONG" in text
    assert "vllm: WRONG" in text
    assert "fa3: FAILED: RuntimeError: cannot do this" in text


@pytest.mark.parametrize("ours_us", [5.0, 7.0])
def test_a_variant_is_reported_at_its_faster_config(ours_us: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen config stands for its variant where it beats the config that the search found."""
    us = {"ours": ours_us, "qblock": 6.0, "segmented": 9.0}
    timings = {name: Timing(value, value, 0.0, 1) for name, value in us.items()}
    monkeypatch.setattr("benchmarks.attention.compare_batch.Ours", FakeKernel)
    monkeypatch.setattr("benchmarks.attention.compare_batch.time_together", lambda timed, repeats: timings)
    space = {
        "qblock": Candidates((Config("qblock", 64, 64),)),
        "segmented": Candidates((Config("segmented", 16, 64, num_segments=4),)),
        "naive": Candidates(skipped="too slow"),
    }
    ours = FakeKernel(Config("qblock", 16, 64))
    records = compare_batch(BATCH, space, ComparisonSettings(CPU, [ours], Ceilings(1e12, 1e12), 2))
    found = {name: (record.time_us, record.tried) for name, record in records.items()}
    best = min(ours_us, 6.0)
    assert found == {
        "ours": (ours_us, 0),
        "qblock": (best, 1),
        "segmented": (9.0, 1),
        "naive": (None, 0),
        "best": (best, 0),
    }
    assert records["qblock"].config == records["best"].config
    assert records["naive"].note == "skipped: too slow"


def test_rejected_configs_are_failures_and_skipped_variants_are_not() -> None:
    ours = {"ours": record("ours", 1.0)}
    skipped = dataclasses.replace(record("naive", None), note="skipped: too slow")
    assert not ours_failed({**ours, "naive": skipped})
    wrong = dataclasses.replace(record("naive", 1.0), rejected="naive_M1_T64_W4_S2 WRONG")
    assert ours_failed({**ours, "naive": wrong})


def test_segments_are_tried_where_query_tiles_leave_the_gpu_idle() -> None:
    few = candidates(decode(1, 8192), 132)["segmented"].configs
    assert {config.num_segments for config in few} <= {32, 64}
    assert candidates(decode(256, 8192), 132)["segmented"].skipped
    one_long = Batch("b", "varlen", (1,) * 200, (65536,) + (16,) * 199)
    assert candidates(one_long, 132)["segmented"].configs
    assert candidates(prefill(1, 32768), 132)["naive"].skipped
    assert STREAM_K in candidates(decode(64, 8192), 132)["stream_k"].configs


def test_nothing_is_compiled_twice() -> None:
    """Batches of one head layout share kernels; lengths, programs per SM and KV heads compile nothing."""
    one, two = decode(1, 64), decode(64, 4096)
    config, grid = Config("qblock", 16, 64), Config("static_grid", 16, 64)
    same = [plain_job(batch, config) for batch in (one, two, one.at(HeadLayout(16, 4)))]
    same_grid = [plain_job(one, grid), plain_job(two, grid._replace(programs_per_sm=4))]
    assert len(minimal([*same, *same_grid])) == 2
    others = [one.at(HeadLayout(16, 2)), one.at(block_size=32), one.at(dtype=torch.float16)]
    assert len(minimal([plain_job(batch, config) for batch in (one, *others)])) == 4
    split = Config("split", 16, 64)
    jobs = [plain_job(batch, split) for batch in (one, prefill(1, 8), mixed(4, 0.5, 64, 16))]
    assert minimal(jobs) == [jobs[2]]  # it launches both kernels
    big, small = plain_job(one, Config("qblock", 128, 128)), plain_job(one, config)
    assert minimal([small, big]) == [big, small]


def test_random_cases_have_every_feature_and_variant() -> None:
    cases = list(random_cases(500, 0))
    assert cases == list(random_cases(500, 0))
    for case in cases:
        choice, *configs = case.configs
        assert choice is None
        assert [config.variant for config in configs if config][: len(UNMIXED)] == UNMIXED
        for config in configs:
            check_config(complete(config))  # type: ignore[arg-type]
    by_hopper = {c.variant for case in cases for c in case.configs[1 + len(UNMIXED) :] if c}
    assert by_hopper == {"qblock", "stream_k", "pod"}
    caches = {(case.batch.layout.head_size, case.features.fp8) for case in cases}
    assert caches == {(size, fp8) for size in range(64, 257, 8) for fp8 in (False, True)}
    names = {name for case in cases for name in case.features.names}
    expected = {"window", "soft cap", "ALiBi", "sinks float32", "sinks half", "fp8 cache", "float scales"}
    assert names >= expected | {"tensor scales", "fused strides", "odd strides", "none"}
    assert {case.batch.block_size for case in cases} == {*PAGES, *HOPPER_PAGES}
    assert any(0 in case.batch.query_lens for case in cases)
    jobs = minimal(compile_jobs(cases, CPU))
    # Each setting has one config of each variant and of each role of the Hopper kernel, and some choices; a
    # config of split has up to three launches.
    assert len(jobs) <= 20 * SETTINGS


def test_far_pages_hold_what_the_near_ones_did() -> None:
    case = next(huge(1 << 20))
    case = dataclasses.replace(case, batch=case.batch.at(SMALL))
    near, far = load(dataclasses.replace(case, far=0), CPU), load(case, CPU)
    assert far.tensors.k_cache.numel() >= 1 << 20
    assert far.tensors.k_cache[:100].isnan().all()
    torch.testing.assert_close(far.expect().values, near.expect().values)


def test_tally_counts_each_launch_and_shows_the_largest_error() -> None:
    case = next(random_cases(1, 0))
    config = complete(case.configs[4])  # type: ignore[arg-type]
    tally = Tally()
    for error in (1e-3, 0.5, 1e-3):
        tally.add(case, config, Check(error, error, 5, 0, 1e-2))
    tally.fail(case, config, "RuntimeError: no")
    assert tally.launches == 4
    assert len(tally.failures) == 2
    row = next(line for line in tally.lines() if line.startswith("qblock"))
    assert "2 WRONG" in row
    assert "5.0e-01" in row
    tally.add(case, config, Check(math.nan, 0.0, 5, 1, 1e-2))
    assert any("nan" in line for line in tally.lines() if line.startswith("qblock"))


def test_recompilation_beyond_configs_and_layouts_is_seen() -> None:
    limits = recompile.allowed(recompile.LAYOUTS, CPU)
    assert limits["qblock_kernel"] == 4  # one of them stands for the Hopper kernel elsewhere
    assert limits["prefix_prefill_kernel"] == 4  # of two variants
    assert limits["reduce_kernel"] == 4
    lines = recompile.verdicts({**limits, "qblock_kernel": 5}, limits)
    assert [line.split()[0] for line in lines if "TOO MANY" in line] == ["qblock_kernel"]
    kinds = {batch.kind for batch in recompile.trace(100, 0, 16)}
    assert kinds >= {"decode", "prefill", "chunk", "spec", "mixed", "varlen"}


def test_on_a_hopper_gpu_each_role_may_compile_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompile, "hopper_for", lambda device: True)
    limits = recompile.allowed(recompile.LAYOUTS, CPU)
    assert limits["hopper_kernel"] == limits["schedule_kernel"] == 6  # of qblock, stream_k and pod
    assert limits["qblock_kernel"] == limits["stream_k_kernel"] == limits["divide_kernel"] == 2
    assert {"pod"} == {config.variant for config in recompile.configs_for(CPU)} - set(UNMIXED)


def test_plots_are_drawn_from_a_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    times = {"ours": 2.0, "qblock": 1.5, "fa3": 1.0}
    batches = [
        with_best({name: record(name, us, batch=batch) for name, us in times.items()}, ["qblock"])
        for batch in (decode(1, 64), prefill(1, 64))
    ]
    write_records(tmp_path, {"environment": {"device": "none", "date": "2000-01-01"}}, batches)
    drawn = {path.name for path in plots.draw(tmp_path / "compare.json")}
    assert drawn == {f"compare_{name}.png" for name in ("ratios", "roofline", "rates", "variants")}

"""Mixed batches in two parts: what each part holds, which ratios are printed, and the command itself."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from attn_kernels.measure.batches import Batch, HeadLayout, decode, prefill, speculative
from attn_kernels.measure.checking import check, expect
from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.tensors import materialise
from attn_kernels.measure.timing import Timing
from benchmarks.attention import parts, tables
from benchmarks.attention.records import ComparisonRecord, Records
from benchmarks.common.in_parts import OursInParts, OursInSeries, is_mixed, split, split_tensors
from benchmarks.graphs import captured
from benchmarks.graphs.captured_step import CapturedStep
from benchmarks.graphs.tables import EXACT_PARTS, PARTS

CPU = torch.device("cpu")
BATCH = Batch("b", "mixed", (1, 0, 8, 9, 1, 20), (30, 5, 8, 40, 17, 20), HeadLayout(4, 2, 16))


def test_decodes_are_the_leading_sequences_of_at_most_eight_tokens() -> None:
    decodes, prompts = split(BATCH)
    assert (decodes.query_lens, decodes.context_lens) == ((1, 0, 8), (30, 5, 8))
    assert (prompts.query_lens, prompts.context_lens) == ((9, 1, 20), (40, 17, 20))
    assert is_mixed(BATCH)
    assert not any(is_mixed(batch) for batch in (decode(2, 64), prefill(2, 64), speculative(2, 8, 64)))


def test_parts_see_their_own_rows_and_the_whole_caches() -> None:
    tensors = materialise(BATCH, CPU, num_sets=2, nan_padding=True)
    whole = expect(tensors)
    decodes, prompts = split_tensors(tensors)
    assert decodes.cu_seqlens_q.tolist() == [0, 1, 1, 9]
    assert prompts.cu_seqlens_q.tolist() == [0, 9, 10, 30]
    values = torch.cat([expect(decodes).values, expect(prompts).values])
    torch.testing.assert_close(values, whole.values)
    decodes.sets[1].out.fill_(1.0)
    prompts.sets[1].out.fill_(2.0)
    assert tensors.sets[1].out[:9].eq(1.0).all() and tensors.sets[1].out[9:].eq(2.0).all()


def test_two_plans_in_series_write_the_whole_output() -> None:
    tensors = materialise(BATCH.at(dtype=torch.float16), CPU)
    prepared = OursInSeries().prepare(tensors)
    prepared.launches[0]()
    assert check(prepared.output(0), expect(tensors)).ok
    assert prepared.config.count(" + ") == 1


def records(**us: float | None) -> Records:
    every = {}
    for name, time in us.items():
        key = name.replace("_", " ")
        record = ComparisonRecord.of(BATCH, 2, key)
        if time is not None:
            record = record.timed(BATCH, Timing(time, time, 0.0, 1), Ceilings(1e12, 1e15))
            record = dataclasses.replace(record, ok=True)
        every[key] = record
    return every


def test_ratios_of_parts() -> None:
    known = records(fa3=12.0, one_call=15.0, decodes=4.0, prompts=8.0, series=12.5, parts=10.0)
    assert tables.parts_ratios(known) == {
        "FA3/ours": 1.2,
        "ours/longer": 1.25,
        "ours/series": 0.8,
        "ours/one": 10.0 / 15.0,
    }
    without = records(one_call=15.0, decodes=4.0, prompts=None, series=12.0, parts=None)
    assert tables.parts_ratios(without) == {
        "FA3/ours": None,
        "ours/longer": None,
        "ours/series": 1.25,
        "ours/one": 1.0,
    }
    means = [line.split() for line in tables.parts_means([known, without])]
    assert means[1][:4] == ["FA3/ours", "1", "1.200", "1.20"]
    assert means[3][:4] == ["ours/series", "2", "1.000", "1.25"]


def test_it_runs_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = [
        "parts",
        "--device",
        "cpu",
        "--only",
        "step 2x24",
        "--dtype",
        "float16",
        "--out",
        str(tmp_path),
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    assert parts.main() == 0
    (batch,) = json.loads((tmp_path / "parts.json").read_text())["batches"]
    timed = {name for name, record in batch["records"].items() if record["time_us"] and record["ok"]}
    assert timed >= {"one call", "decodes", "prompts", "series"}
    assert batch["limit_us"] > 0
    assert "ours wrong or failed on 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, line",
    [
        (
            ["--only", "nothing"],
            "no batch of tiny_steps with 'nothing' in its text has decodes before prompts",
        ),
        (["--batches", "rivals"], "no batch of rivals with '' in its text has decodes before prompts"),
        (["--repeats", "0"], "--repeats 0: at least 1 is needed"),
    ],
)
def test_wrong_options_are_refused_with_one_line(
    options: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["parts", "--device", "cpu", *options])
    with pytest.raises(SystemExit) as stopped:
        parts.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == line + "\n"


def test_captured_refuses_parts_where_nothing_can_be_in_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["captured", "--smoke", "--parts", "--sets", "decode"])
    with pytest.raises(SystemExit) as stopped:
        captured.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "--parts: the set mixed is needed\n"


def test_a_graph_in_parts_is_replayed_for_random_batches_and_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["captured", "--smoke", "--parts", "--sets", "mixed", "--batches", "4"]
    monkeypatch.setattr(sys, "argv", command)
    assert captured.main() == 0
    printed = capsys.readouterr().out
    assert PARTS in printed and EXACT_PARTS in printed

    def replay_with_nan(self: CapturedStep) -> None:
        replay(self)
        if self._candidate.name == PARTS:
            self._layers[0].out[0, 0, 0] = torch.nan

    replay = CapturedStep.replay
    monkeypatch.setattr(CapturedStep, "replay", replay_with_nan)
    assert captured.main() == 1
    assert f"WRONG {PARTS}, " in capsys.readouterr().out


def test_plans_with_parts_write_the_whole_output() -> None:
    tensors = materialise(BATCH.at(dtype=torch.float16), CPU)
    prepared = OursInParts().prepare(tensors)
    prepared.launches[0]()
    assert check(prepared.output(0), expect(tensors)).ok

"""Rivals that plan on the host: which load, which batches they take, and which is a batch's fastest."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from attn_kernels.measure.batches import Batch, HeadLayout, decode, mixed, prefill
from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.tensors import materialise
from attn_kernels.measure.timing import Timing
from benchmarks.attention import compare, tables
from benchmarks.attention.records import (
    ComparisonRecord,
    ours_failed,
    summary,
    time_ratio,
    with_fastest_rival,
    write_records,
)
from benchmarks.common.implementations import NotApplicable
from benchmarks.common.more_rivals import MORE_RIVALS, PlannedPeer, RivalEntry, load_more_peers

CPU = torch.device("cpu")
MODULE = """
def prepare(*arguments):
    raise ValueError("not this one")

def missing(*_):
    raise OSError("no library")

flashinfer_xqa = flashinfer_prefill = flashinfer_batch_attention = lambda *_: prepare
flashinfer_decode = flashinfer_split = flashinfer_pod = lambda *_: prepare
fa4 = missing
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "more_peers.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "more_peers", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_rivals_that_do_not_load_are_left_out_with_a_line_each(folder: Path, tmp_path: Path) -> None:
    loaded, problems = load_more_peers(folder, ["fi_fa2"])
    assert [peer.name for peer in loaded] == [name for name in MORE_RIVALS if name not in ("fi_fa2", "fa4")]
    assert problems == ["fa4 left out: OSError: no library"]
    loaded, problems = load_more_peers(tmp_path / "none")
    assert not loaded
    assert problems == [f"FlashInfer and FlashAttention-4 left out: no more_peers.py in {tmp_path / 'none'}"]


def test_a_module_that_cannot_be_imported_is_one_line(folder: Path) -> None:
    (folder / "more_peers.py").write_text("raise ImportError('tvm')")
    assert load_more_peers(folder) == (
        [],
        ["FlashInfer and FlashAttention-4 left out: ImportError: tvm"],
    )


def refused(name: str, batch: Batch) -> bool:
    try:
        MORE_RIVALS[name].check(batch)
    except NotApplicable:
        return True
    return False


def test_rivals_take_only_batches_that_they_were_built_for() -> None:
    steps, prompts = mixed(8, 0.5, 64, 32), prefill(1, 64)
    assert [refused("fi_decode", batch) for batch in (decode(2, 64), steps, prompts)] == [False, True, True]
    assert [refused("fi_pod", batch) for batch in (decode(2, 64), steps, prompts)] == [True, False, True]
    assert not any(refused("fi_fa3", batch) for batch in (decode(2, 64), steps, prompts))
    for other in ({"layout": HeadLayout(32, 8, 64)}, {"block_size": 128}, {"dtype": torch.float16}):
        assert all(refused(name, decode(2, 64).at(**other)) for name in MORE_RIVALS)  # type: ignore[arg-type]
    five_to_one = decode(2, 64).at(HeadLayout(40, 8))
    assert [name for name in MORE_RIVALS if refused(name, five_to_one) and name.startswith("f")] == [
        "fi_xqa",
        "fi_split",
        "fi_pod",
        "fa4",
    ]


def test_each_kv_set_is_planned_alone_and_pieces_are_joined() -> None:
    batch = dataclasses.replace(mixed(4, 0.5, 32, 16), layout=HeadLayout(2, 2))
    tensors = materialise(batch, CPU, num_sets=2)
    planned = []

    def prepare(q, k, v, out, cu, seqused, table, max_q, max_k, scale):  # type: ignore[no-untyped-def]
        planned.append(q)
        return (lambda: None), lambda: [q[:2], q[2:]]

    prepared = PlannedPeer("fi_pod", RivalEntry(lambda _: prepare), prepare).prepare(tensors)
    assert len(prepared.launches) == len(planned) == 2
    for launch in prepared.launches:
        launch()
    for i, kv in enumerate(tensors.sets):
        assert torch.equal(prepared.output(i), kv.q)


def test_the_fastest_right_rival_is_named_beside_its_time_over_ours(tmp_path: Path) -> None:
    batch = decode(2, 64)

    def record(name: str, us: float, ok: bool = True) -> ComparisonRecord:
        timed = ComparisonRecord.of(batch, 2, name).timed(batch, Timing(us, us, 0.0, 1), Ceilings(1e12, 1e15))
        return dataclasses.replace(timed, ok=ok)

    times = {"ours": 10.0, "qblock": 1.0, "fa3": 30.0, "fi_fa3": 20.0}
    records = {name: record(name, us) for name, us in times.items()} | {"fa4": record("fa4", 2.0, ok=False)}
    records = with_fastest_rival(records)
    assert records["rival"].config == "fi_fa3"
    assert time_ratio(records, "rival") == 2.0
    assert not ours_failed(records)
    assert (
        tables.batch_line(records, ["fa3", "rival"], sweep=False)
        .splitlines()[0]
        .endswith("3.00   2.00 fi_fa3")
    )
    write_records(tmp_path, {}, [records])
    (written,) = json.loads((tmp_path / "compare.json").read_text())["summary"]
    assert (written["rival"], written["rival_us"], written["rival_over_ours"]) == ("fi_fa3", 20.0, 2.0)
    alone = {"ours": record("ours", 10.0), "fa4": record("fa4", 2.0, ok=False)}
    assert with_fastest_rival(alone) == alone
    assert summary(alone)["rival"] is None


def test_an_unknown_rival_is_refused_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "--device", "cpu", "--skip", "fa5"])
    with pytest.raises(SystemExit) as stopped:
        compare.main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--skip fa5: the rivals are vllm, vllm33, fa3, sdpa, fi_decode,")

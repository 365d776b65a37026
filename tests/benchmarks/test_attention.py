"""benchmarks.attention: its batches, verdicts, ratios and means, its picture, and that it runs."""

import dataclasses
import json
import math
import sys
from itertools import chain, repeat
from xml.etree import ElementTree

import pytest
import torch

from attn_kernels.measure.batches import HeadLayout, decode, prefill
from attn_kernels.measure.checking import expect
from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.tensors import materialise
from benchmarks.attention import compare, plot
from benchmarks.attention.batches import BATCH_SETS, select
from benchmarks.attention.measure import Record, measure_batch, ours_failed, time_ratio
from benchmarks.common.implementations import NotApplicable, Peer, PreparedLaunches, load_peers

CPU = torch.device("cpu")
SMALL = HeadLayout(4, 2, 16)


def test_sets_hold_each_batch_once_and_are_the_same_at_every_call():
    for name in BATCH_SETS:
        batches = select(name)
        assert batches and batches == select(name)
        assert len({str(batch) for batch in batches}) == len(batches)
        assert all(batch.block_size == 24 for batch in select(name, block_size=24))
    steps = select("steps")  # decodes before prompts, which fit a GPU
    assert len(steps) == 29
    assert all(batch.parts.decodes.num_seqs and batch.parts.prompts.num_seqs for batch in steps)
    assert all(batch.kv_bytes <= 4 << 30 for batch in steps)


def record(name, us, ok=True, batch=None):
    """A record with a known time, or without one."""
    return Record(batch or prefill(1, 32), 2, name, time_us=us, ok=us is not None and ok)


def records(batch=None, **us):
    return {name.replace("_", " "): record(name, time, batch=batch) for name, time in us.items()}


def test_ratios_and_geometric_means_by_kind_and_heads_leave_wrong_results_out():
    first = {**records(ours=10.0, fa3=20.0), "vllm": record("vllm", 5.0, ok=False)}
    second = records(ours=10.0, fa3=5.0, vllm=None)
    assert (time_ratio(first, "ours", "fa3"), time_ratio(first, "ours", "vllm")) == (0.5, None)
    assert compare.mean_table([first, second], ["vllm", "fa3"])[-1].split() == ["all", "-", "1.000", "(2)"]
    other = HeadLayout(28, 4)
    batches = [
        records(decode(1, 64), ours=10.0, fa3=40.0),
        records(decode(2, 64).at(other), ours=10.0, fa3=10.0),
        records(prefill(1, 64).at(other), ours=10.0, fa3=20.0),
    ]
    assert compare.mean_table(batches, [], ["fa3"])[-1].split() == ["all", "2.000", "(3)"]
    cells = [" ".join(line.split()) for line in compare.mean_table(batches, ["fa3"])[3:]]
    assert cells[:2] == ["kind decode 0.500 (2)", "kind prefill 0.500 (1)"]
    assert cells[2:] == ["heads 32/8/128 0.250 (1)", "heads 28/4/128 0.707 (2)", "all 0.500 (3)"]


@dataclasses.dataclass(frozen=True)
class FakeKernel:
    """An implementation that writes the reference plus an error; an infinite error is raised."""

    name: str
    error: float
    right_launches: int = 0  # before the error shows

    def prepare(self, tensors):
        if math.isinf(self.error):
            raise RuntimeError("cannot do this")
        expected, out = expect(tensors), tensors.sets[0].out
        errors = chain([0.0] * self.right_launches, repeat(self.error))

        def launch():
            out[expected.rows] = expected.values.to(out.dtype) + next(errors)

        return PreparedLaunches([launch], lambda i: out)


def test_wrong_and_failed_kernels_are_reported():
    wrong_replay = FakeKernel("vllm", 0.5, right_launches=1)
    implementations = [FakeKernel("ours", 0.5), FakeKernel("fa3", math.inf), wrong_replay]
    batch = prefill(1, 20).at(SMALL, dtype=torch.float32)
    found = measure_batch(batch, CPU, implementations, Ceilings(1e12, 1e12), repeats=2)
    assert not any(one.ok for one in found.values()) and all(one.failed for one in found.values())
    assert found["ours"].time_us and not found["fa3"].time_us
    assert ours_failed(found)
    assert not ours_failed({**found, "ours": record("ours", 1.0)})


def test_rivals_that_do_not_load_are_a_line_each(tmp_path, monkeypatch, capsys):
    (tmp_path / "peers.py").write_text("def fa3(): raise OSError('none')\ndef vllm_triton(): return print\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "peers", None)  # after this test it is gone again
    monkeypatch.delitem(sys.modules, "peers")
    assert [peer.name for peer in load_peers(tmp_path, "fa3", "vllm_triton")] == ["vllm"]
    (problem,) = capsys.readouterr().out.splitlines()
    assert "fa3" in problem
    assert load_peers(tmp_path / "none", "fa3") == []


def test_a_rival_is_asked_only_for_heads_and_queries_that_it_takes():
    """Beside fp8 caches, FlashAttention-3 needs fp8 queries, and vLLM's kernel takes them as they are."""
    fp8 = torch.float8_e4m3fn
    batch = decode(2, 40).at(HeadLayout(2, 1, 512), cache_dtype=fp8)
    asked = []
    for fp8_queries in (True, False):
        peer = Peer("a", lambda q, *_: asked.append(q.dtype), fp8_caches=True, fp8_queries=fp8_queries)
        peer.prepare(materialise(batch, CPU, num_sets=1)).launches[0]()
    assert asked == [fp8, batch.dtype]
    with pytest.raises(NotApplicable, match="256"):
        Peer("b", lambda *_: None, largest_head=256).prepare(materialise(batch, CPU, num_sets=1))


def test_compare_runs_through(tmp_path, capsys):
    tried = "qblock_M16_T16_W4_S2"
    command = f"--device cpu --config {tried} --invariant --parts --out {tmp_path} --peers {tmp_path} --only"
    assert compare.main([*command.split(), "prefill 1x24 heads 2/2"]) == 0
    results = json.loads((tmp_path / "compare.json").read_text())["results"]
    right = {one["implementation"] for one in results if one["ok"] and one["time_us"]}
    assert right == {"ours", "ours invariant", "ours in parts", tried, "sdpa"}
    assert results[0].keys() >= {"batch", "kind", "layout", "block_size", "dtype", "gbps", "error"}
    assert f"{tried}: " in capsys.readouterr().out


# The picture

BATCHES = [
    records(decode(1, 64), ours=10.0, fa3=20.0, vllm=40.0),
    records(prefill(1, 64), ours=10.0, fa3=10.0, vllm=80.0),
    # A batch counts only if all computed it, and computed it right.
    records(decode(2, 64), ours=10.0, fa3=90.0),
    {**records(decode(3, 64), ours=10.0, fa3=90.0), "vllm": record("vllm", 10.0, ok=False)},
]


def write_run(folder, batches, device="NVIDIA H100"):
    folder.mkdir()
    (folder / "compare.json").write_text(compare.document({"environment": {"device": device}}, batches))
    return folder


def test_a_picture_names_both_gpus_and_is_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    runs = [write_run(tmp_path / gpu, BATCHES, f"NVIDIA {gpu}") for gpu in ("H100", "H200")]
    first, second = tmp_path / "docs" / "first.svg", tmp_path / "second.svg"
    for picture in (first, second):
        assert plot.main([*map(str, runs), "--out", str(picture)]) == 0
    texts = list(ElementTree.fromstring(first.read_text()).itertext())
    assert {"NVIDIA H100", "NVIDIA H200", "0.71"} <= set(texts)  # 0.71: the mean over both kinds
    assert first.read_bytes() == second.read_bytes()

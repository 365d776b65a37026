"""ATTN_KERNELS_RECORD: what is counted, what the file holds, and what goes wrong without harm."""

import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import start, until

from attn_kernels import Config, Lengths, Model, Parts
from attn_kernels.choose import recording
from attn_kernels.choose.recording import Recorder, record_step, recorder_of_process, sequences_of
from attn_kernels.core.errors import AttnKernelsWarning
from attn_kernels.testing.poisoned import make_batch
from attn_kernels.tuning.scenarios.recorded import read_counted

MODEL = Model(8, 2, 64, 16, torch.float16)
SIZES = {"num_query_heads": 2, "num_kv_heads": 1, "head_size": 64, "block_size": 16}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for tests that draw many examples: each recorder has a thread."""
    return Recorder(tmp_path_factory.mktemp("shared") / "batches.jsonl")


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """One that writes only when the test says so."""
    monkeypatch.setattr(recording, "FIRST_WRITE_S", 1e6)
    return Recorder(tmp_path / "batches.jsonl")


def records(recorder):
    recorder.write()
    return [json.loads(line) for line in recorder.path.read_text().splitlines()]


pairs = st.lists(
    st.tuples(st.integers(0, 700) | st.integers(0, 3), st.integers(0, 5) | st.integers(0, 10**5)),
    min_size=1,
    max_size=9,
).map(lambda some: [(query, query + cached) for query, cached in some])


@given(pairs=pairs)
@settings(max_examples=300)
def test_sequences_have_the_lengths_that_were_given(pairs):
    queries, contexts = zip(*pairs, strict=True)
    made = sequences_of(Lengths.of(queries, contexts))
    assert Lengths.of(*zip(*made, strict=True)) == Lengths.of(queries, contexts)
    assert all(query <= context for query, context in made)


@given(batches=st.lists(pairs.filter(lambda some: any(query for query, _ in some)), max_size=12))
@settings(max_examples=60)
def test_counts_add_up_and_every_line_is_a_scenario(shared, batches):
    recorder = shared
    recorder.buckets.clear()
    for some in batches:
        queries, contexts = zip(*some, strict=True)
        recorder.record(MODEL, Lengths.of(queries, contexts))
    recorder._written = -1
    recorder.write()
    assert len(recorder.path.read_text().splitlines()) == len(recorder.buckets)
    if batches:
        assert sum(read_counted(recorder.path).values()) == len(batches)


@given(first=st.tuples(*[st.integers(1, 10**6)] * 5), factors=st.tuples(*[st.floats(1.0, 3.0)] * 5))
@settings(max_examples=300)
def test_a_bucket_holds_lengths_within_the_root_of_two(shared, first, factors):
    recorder = shared
    recorder.buckets.clear()
    second = tuple(int(length * factor) for length, factor in zip(first, factors, strict=True))
    recorder.record(MODEL, Lengths(*first))
    recorder.record(MODEL, Lengths(*second))
    far = any(b > a * 2**0.5 for a, b in zip(first, second, strict=True))
    assert len(recorder.buckets) == 2 if far else len(recorder.buckets) <= 2
    if first == second:
        assert len(recorder.buckets) == 1


def test_models_and_captures_and_parts_are_kept_apart(recorder):
    lengths = Lengths(3, 102, 100, 500, 900)
    parts = Parts(Lengths(2, 2, 1, 400, 500), Lengths(1, 100, 100, 400, 400))
    fp8 = Model(8, 2, 64, 16, torch.float16, torch.float8_e4m3fn)
    for _ in range(3):
        recorder.record(Model(8, 2, 64, 16, torch.float16), lengths)  # equal models, not the same object
    recorder.record(fp8, lengths)
    recorder.record(replace(MODEL, sliding_window=128), lengths)
    recorder.record(MODEL, lengths, for_capture=True)
    recorder.record(MODEL, lengths, parts)
    first, *others = records(recorder)
    assert first == {
        "query_lens": [1, 1, 100],
        "context_lens": [200, 200, 500],
        "num_query_heads": 8,
        "num_kv_heads": 2,
        "head_size": 64,
        "block_size": 16,
        "dtype": "float16",
        "count": 3,
    }
    special = ("cache_dtype", "for_capture", "parts", "sliding_window")
    assert {tuple(r.get(name) for name in special) for r in others} == {
        ("float8_e4m3fn", None, None, None),
        (None, True, None, None),
        (None, None, True, None),
        (None, None, None, 128),
    }
    read = read_counted(recorder.path)
    assert sorted(scenario.model.sliding_window or 0 for scenario in read) == [0, 0, 0, 128]


def test_memory_and_file_are_bounded(recorder, monkeypatch, caplog):
    monkeypatch.setattr(recording, "MAX_BUCKETS", 64)
    frequent = Lengths(1, 1, 1, 7, 7)
    for i in range(1000):
        recorder.record(MODEL, frequent)
        recorder.record(Model(8, 2, 64, 16, torch.float16), Lengths(1, 1, 1, 2 ** (i % 500), 2 ** (i // 10)))
        assert len(recorder.buckets) <= 64
    lines = records(recorder)
    assert len(lines) <= 64 and lines[0]["count"] == 1000
    (warning,) = caplog.records
    assert str(recorder.path) in warning.getMessage()


def test_what_cannot_be_written_later_is_one_warning(recorder, monkeypatch, caplog):
    def full(path, text):
        raise OSError(28, "No space left on device")

    recorder.record(MODEL, Lengths(1, 1, 1, 9, 9))
    recorder.write()
    with monkeypatch.context() as patch:
        patch.setattr(recording, "replace_file", full)
        for _ in range(3):
            recorder.record(MODEL, Lengths(1, 1, 1, 9, 9))
            recorder.write()
    (warning,) = caplog.records
    assert str(recorder.path) in warning.getMessage() and "No space left" in warning.getMessage()
    assert json.loads(recorder.path.read_text())["count"] == 1  # of the last write that went well
    assert [r["count"] for r in records(recorder)] == [4]
    assert [path.name for path in recorder.path.parent.iterdir()] == ["batches.jsonl"]


@pytest.mark.usefixtures("new_process")
@pytest.mark.parametrize("name", ["missing/batches.jsonl", "/", "x" * 300])
def test_a_bad_path_is_one_line_and_plans_go_on(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTN_KERNELS_RECORD", name)
    with pytest.warns(AttnKernelsWarning) as caught:
        plan = make_batch((1,), (5,), **SIZES).plan()
        assert make_batch((1,), (5,), **SIZES).plan().config == plan.config
    (warning,) = caught
    assert str(warning.message).startswith("ATTN_KERNELS_RECORD is ") and "\n" not in str(warning.message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("new_process")
def test_plans_are_counted_but_not_those_of_a_given_config(tmp_path, monkeypatch):
    record_step(MODEL, Lengths(1, 1, 1, 9, 9))  # off: nothing
    assert recorder_of_process() is None
    recorder_of_process.cache_clear()
    monkeypatch.setenv("ATTN_KERNELS_RECORD", str(tmp_path / "batches.jsonl"))
    batch = make_batch((1, 1, 12), (5, 40, 30), **SIZES)
    parts = Parts.of((1, 1, 12), (5, 40, 30))
    batch.plan()
    batch.plan(config=Config("qblock", 16, 16))
    batch.plan(parts=parts)
    batch.plan(for_capture=True)
    record_step(MODEL, Lengths(1, 1, 1, 9, 9))
    recorder = recorder_of_process()
    assert recorder.path == tmp_path / f"batches.{os.getpid()}.jsonl"
    found = {(r["head_size"], r.get("parts"), r.get("for_capture"), r["count"]) for r in records(recorder)}
    assert (
        found == {(64, None, None, 1), (64, True, None, 1), (64, None, True, 1)}
        and len(recorder.buckets) == 4
    )


PROGRAM = """
import os, sys
from attn_kernels.testing.poisoned import make_batch

def plan(heads):
    make_batch((1,), (5,), num_query_heads=heads, num_kv_heads=1, head_size=64, block_size=16).plan()

plan(1)
if os.fork() == 0:
    plan(4)
    sys.exit()
os.wait()
print("planned", flush=True)
while True:
    plan(1)
"""


def test_every_process_writes_its_own_file_which_survives_a_kill(tmp_path):
    """The forked child writes at its end; the parent is killed."""
    with start("-c", PROGRAM, ATTN_KERNELS_RECORD=str(tmp_path / "batches.jsonl")) as process:
        assert process.stdout.readline() == "planned\n"
        path = tmp_path / f"batches.{process.pid}.jsonl"
        until(lambda: path.stat().st_size)
        process.send_signal(signal.SIGKILL)
    ((scenario, count),) = read_counted(path).items()
    assert scenario.context_lens == (5,) and count >= 1
    (of_child,) = [other for other in tmp_path.glob("batches.*.jsonl") if other != path]
    record = json.loads(of_child.read_text())
    assert (record["num_query_heads"], record["count"]) == (4, 1)

"""Files of recorded batches: what is read, merged, drawn and refused."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.scenarios.recorded import drawn, outside, read_counted
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of, shape_of
from tuning_table import TableError, create

GOOD = {
    "query_lens": [1, 1, 512],
    "context_lens": [900, 77, 512],
    "num_query_heads": 32,
    "num_kv_heads": 8,
    "head_size": 128,
    "block_size": 16,
}
FP8 = torch.float8_e4m3fn


def line(**changes):
    """A good line with other values; ... removes a key."""
    return json.dumps({key: value for key, value in (GOOD | changes).items() if value is not ...})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "batches.jsonl"


def read(path, *lines):
    path.write_text("\n".join(lines))
    return tuple(read_counted(path))


def test_a_line_is_a_batch_with_defaults_for_what_it_leaves_out(path):
    first, second = read(path, "", line(id="a.1", dtype="float16", cache_dtype="float8_e4m3fn"), " ", line())
    shape = Shape(HeadLayout(32, 8, 128), 16, torch.float16, FP8)
    assert first == scenario_of("a.1", (1, 1, 512), (900, 77, 512), shape) and first.kind == "mixed"
    assert second.name == "line-4"
    assert shape_of(second) == Shape(HeadLayout(32, 8, 128), 16, torch.bfloat16, None)
    # Runs, padding, and the example of the docs
    (scenario,) = read(path, line(query_lens=[[3, 1], 7, [1, 2], 0], context_lens=[[2, 5], [4, 9]]))
    assert scenario.query_lens == (1, 1, 1, 7, 2, 0)
    assert scenario.context_lens == (5, 5, 9, 9, 9, 9)
    docs = Path(__file__).parents[3] / "docs" / "scenarios.md"
    _, example, _ = re.split(r"```(?:json)?\n", docs.read_text())
    (scenario,) = read(path, example)
    assert scenario.lengths.num_seqs == 63 and scenario.kind == "mixed"


def test_equal_batches_are_merged_and_their_counts_add_up(path):
    again = line(id="again", query_lens=[[2, 1], 512], dtype="bfloat16", cache_dtype="bfloat16", count=5)
    captured = line(for_capture=True)
    read(path, line(id="first"), line(context_lens=[77, 900, 512]), again, captured, line())
    counts = read_counted(path)
    assert [(scenario.name, count) for scenario, count in counts.items()] == [("first", 7), ("line-2", 1)]


@pytest.mark.parametrize("other", [
    {"query_lens": [1, 2, 512]}, {"context_lens": [900, 78, 512]}, {"num_query_heads": 16},
    {"num_kv_heads": 4}, {"head_size": 64}, {"block_size": 32}, {"dtype": "float16"},
    {"cache_dtype": "float8_e4m3fn"}, {"sliding_window": 600}, {"softcap": 50.0}, {"sinks": True},
])  # fmt: skip
def test_batches_that_differ_in_anything_are_kept_apart(path, other):
    assert len(read(path, line(), line(**other))) == 2


@pytest.mark.parametrize(("changes", "named"), [
    ({"page_size": 16}, "page_size"), ({"\u2028": 1}, "u2028"), ({"head_size": ...}, "head_size"),
    ({"head_size": 128.0}, "head_size"), ({"num_kv_heads": True}, "num_kv_heads"),
    ({"num_query_heads": None}, "num_query_heads"), ({"block_size": 0}, "block_size"),
    ({"head_size": 513}, "head_size"), ({"num_kv_heads": 5}, "num_kv_heads"),
    ({"block_size": 2**31}, "block_size"), ({"query_lens": 5}, "query_lens"),
    ({"query_lens": [1, 1, "512"]}, "query_lens[2]"), ({"query_lens": [1, True, 512]}, "query_lens[1]"),
    ({"query_lens": [1, -1, 512]}, "query_lens[1]"), ({"query_lens": [[2, 1, 1], 512]}, "query_lens[0]"),
    ({"query_lens": [[0, 1], 512]}, "query_lens[0]"), ({"query_lens": [[2, [1, 1]], 512]}, "query_lens[0]"),
    ({"query_lens": [[2**40, 1]]}, "query_lens"), ({"query_lens": [1, 1]}, "query_lens"),
    ({"query_lens": [1, 78, 512]}, "sequence 1"), ({"query_lens": [0, 0, 0]}, "query_lens"),
    ({"query_lens": [], "context_lens": []}, "query_lens"),
    ({"context_lens": [900, 77, 2**31]}, "context_lens"), ({"dtype": ["bfloat16"]}, "dtype"),
    ({"dtype": "float8_e4m3fn"}, "dtype"), ({"cache_dtype": None}, "cache_dtype"),
    ({"cache_dtype": "float16"}, "cache_dtype"), ({"sliding_window": 0}, "sliding_window"),
    ({"sliding_window": 2**31}, "sliding_window"), ({"softcap": True}, "softcap"),
    ({"softcap": -1}, "softcap"), ({"softcap": float("nan")}, "softcap"), ({"sinks": 1}, "sinks"),
    ({"count": 0}, "count"), ({"count": 2.0}, "count"), ({"count": 2**31}, "count"),
    ({"for_capture": 1}, "for_capture"), ({"id": "a,b"}, "id"), ({"id": 7}, "id"),
    ({"id": "\ud800"}, "id"), ({"id": "first"}, "first"),
], ids=str)  # fmt: skip
def test_a_mistake_is_an_error_with_its_line_and_key(path, changes, named):
    with pytest.raises(TableError) as error:
        read(path, line(id="first"), "", line(**changes), line())
    message = str(error.value)
    assert message.startswith(f"{path}:3: ") and named in message.removeprefix(str(path))
    assert message.isprintable() and len(message) < len(str(path)) + 300


@pytest.mark.parametrize("text", [
    b"{", b"[]", b"null", b"[" * 100_000, b"\xef\xbb\xbf{}", b'{"id": "\xff"}', line().encode() + b" x",
    line().encode()[:-1] + b', "head_size": 128}',
    line().encode().replace(b" 16}", b" 1" + b"0" * 5000 + b"}"),
    b" " * (1 << 20) + line().encode(),
], ids=range(10))  # fmt: skip
def test_what_is_no_json_object_is_an_error_with_its_line(path, text):
    path.write_bytes(line(id="first").encode() + b"\n" + text)
    with pytest.raises(TableError, match=re.escape(f"{path}:2: ")):
        read_counted(path)


def test_a_file_without_batches_is_refused(path, tmp_path):
    def refused(file):
        with pytest.raises(TableError, match=re.escape(f"{file}: ")):
            read_counted(file)

    refused(path)
    refused(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo")
    for text in ("\n \n", line(for_capture=True)):
        path.write_text(text)
        refused(path)
    path.write_text(line())


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=150)
def test_no_content_breaks_the_reader(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    with pytest.raises(TableError):
        read_counted(path)


def test_a_batch_in_parts_counts_as_both(path):
    path.write_text("\n".join([line(parts=True, count=4), line(parts=True, query_lens=[1, 1, 1]), line()]))
    found = {s.name: (s.query_lens, count) for s, count in read_counted(path, in_parts=True).items()}
    assert found == {
        "line-1.decodes": ((1, 1), 4),
        "line-1.prompts": ((512,), 4),
        "line-2": ((1, 1, 1), 1),
        "line-3": ((1, 1, 512), 1),
    }


def test_batches_are_drawn_by_their_counts(path):
    path.write_text("\n".join(line(context_lens=[n, n, 512], count=1 + 99 * (n < 10)) for n in range(1, 101)))
    counts = read_counted(path)
    assert drawn(counts, 100, 0) == drawn(counts, 10**6, 5) == tuple(counts)
    assert drawn(counts, 9, 3) == drawn(counts, 9, 3) != drawn(counts, 9, 4)
    frequent = [sum(counts[s] > 1 for s in drawn(counts, 9, seed)) for seed in range(200)]
    assert 7 < sum(frequent) / 200 < 9  # of 9; without weights it would be 0.8
    assert min(frequent) < 9


def test_what_lies_outside_of_a_table_is_listed_by_count(tmp_path, path):
    shape = Shape(HeadLayout(32, 8, 128))
    measured = [scenario_of("a", (1,), (64,), shape), scenario_of("b", (1,) * 8, (900,) * 8, shape)]
    create(
        tmp_path / "table",
        kernel="unified_attention",
        device={"name": "a GPU"},
        timing="none",
        origin={"tool": "none"},
        features=tuple(measured[0].features),
        configs=[{"id": "M16", "variant": "qblock", "block_m": 16}],
        scenarios={s.name: list(s.features.values()) for s in measured},
    ).close()
    inside = line(query_lens=[[4, 1]], context_lens=[[4, 500]], count=10)
    longer = line(query_lens=[[4, 1]], context_lens=[[3, 500], 901], count=3)
    other_head = line(query_lens=[[4, 1]], context_lens=[[4, 500]], head_size=64, count=7)
    read(path, inside, longer, other_head)
    counts = read_counted(path)
    first, second, third = outside(counts, tmp_path / "table", lambda batch: batch.features)
    assert first.startswith("10 of 20 plans (50.0%), 2 of 3 recorded batches")
    assert "7 plans  line-3: " in second and "head_size=64" in second
    assert "3 plans  line-2: max_seq_len=901" in third
    with pytest.raises(TableError, match="--kernel"):
        outside(counts, tmp_path / "table", lambda batch: batch.mixed_features)

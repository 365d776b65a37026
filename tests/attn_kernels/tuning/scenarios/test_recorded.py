"""Files of recorded batch shapes: what is read, what is merged, what is refused and how that is said."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.measure.batches import HeadLayout, ScoreOptions
from attn_kernels.tuning.scenarios import recorded
from attn_kernels.tuning.scenarios.outside import outside
from attn_kernels.tuning.scenarios.recorded import drawn, read_counted, read_recorded, write_recorded
from attn_kernels.tuning.scenarios.scenario import Scenario, Shape, scenario_of, shape_of
from attn_kernels.tuning.scenarios.serving import SETS
from triton_tune.core.errors import TuningError
from tuning_table import create

GOOD: dict[str, Any] = {
    "query_lens": [1, 1, 512],
    "context_lens": [900, 77, 512],
    "num_query_heads": 32,
    "num_kv_heads": 8,
    "head_size": 128,
    "block_size": 16,
}
FP8 = torch.float8_e4m3fn
NEEDED = "query_lens, context_lens, num_query_heads, num_kv_heads, head_size, block_size"


def line(**changes: object) -> str:
    """A good line with other values; ... removes a key."""
    return json.dumps({key: value for key, value in (GOOD | changes).items() if value is not ...})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "batches.jsonl"


def read(path: Path, *lines: str) -> tuple[Scenario, ...]:
    path.write_text("\n".join(lines))
    return read_recorded(path)


def test_a_line_is_a_batch(path: Path) -> None:
    (scenario,) = read(path, line(id="a.1", dtype="float16", cache_dtype="float8_e4m3fn"))
    shape = Shape(HeadLayout(32, 8, 128), 16, torch.float16, FP8)
    assert scenario == scenario_of("a.1", (1, 1, 512), (900, 77, 512), shape)
    assert scenario.batch.kind == "mixed"


def test_the_example_of_the_docs(path: Path) -> None:
    docs = Path(__file__).parents[4] / "docs" / "scenarios.md"
    _, example, _ = re.split(r"```(?:json)?\n", docs.read_text())
    (scenario,) = read(path, example)
    assert scenario.batch.num_seqs == 63 and scenario.batch.kind == "mixed"


def test_what_may_be_left_out(path: Path) -> None:
    first, second = read(path, "", line(), "  ", line(block_size=32), "")
    assert (first.id, second.id) == ("line-2", "line-4")
    assert shape_of(first.batch) == Shape(HeadLayout(32, 8, 128), 16, torch.bfloat16, None)
    assert first == read(path, "", line(dtype="bfloat16", cache_dtype="bfloat16"))[0]


def test_runs_and_padding(path: Path) -> None:
    (scenario,) = read(path, line(query_lens=[[3, 1], 7, [1, 2], 0], context_lens=[[2, 5], [4, 9]]))
    assert scenario.batch.query_lens == (1, 1, 1, 7, 2, 0)
    assert scenario.batch.context_lens == (5, 5, 9, 9, 9, 9)


def test_lines_end_as_on_windows_too(path: Path) -> None:
    path.write_bytes((line() + "\r\n\r\n" + line(block_size=32) + "\r\n").encode())
    assert [scenario.id for scenario in read_recorded(path)] == ["line-1", "line-3"]


def test_equal_batches_are_merged_and_counted(path: Path) -> None:
    again = line(id="again", query_lens=[[2, 1], 512], dtype="bfloat16", cache_dtype="bfloat16")
    other = line(context_lens=[77, 900, 512])
    path.write_text("\n".join([line(id="first"), other, again, line()]))
    counts = read_counted(path)
    assert [(scenario.id, count) for scenario, count in counts.items()] == [("first", 3), ("line-2", 1)]
    assert read_recorded(path) == tuple(counts)


@pytest.mark.parametrize(
    "other",
    [
        {"query_lens": [1, 2, 512]},
        {"context_lens": [900, 78, 512]},
        {"num_query_heads": 16},
        {"num_kv_heads": 4},
        {"head_size": 64},
        {"block_size": 32},
        {"dtype": "float16"},
        {"cache_dtype": "float8_e4m3fn"},
        {"sliding_window": 600},
        {"softcap": 50.0},
        {"sinks": True},
    ],
)
def test_batches_that_differ_at_all_are_kept_apart(path: Path, other: dict[str, object]) -> None:
    assert len(read(path, line(), line(**other))) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2; write one object a"),
        (line() + " x", "not JSON: Extra data at column"),
        ("\ufeff" + line(), "not JSON: Unexpected UTF-8 BOM"),
        ("[" * 100_000, "not JSON that holds a batch (nested too deeply)"),
        ("[]", 'not a JSON object; write {"query_lens": [...]'),
        ("null", "not a JSON object"),
        (line(page_size=16), "key 'page_size' is unknown; possible are query_lens, context_lens, num_query_"),
        (line(**{"a\nb" + "c" * 99: 1}), "key 'a\\nbcc"),
        (line(**{"\u2028": 1}), "key '\\u2028' is unknown"),
        (line(head_size=...), f"key 'head_size' is missing; needed are {NEEDED}"),
        (line(query_lens=...), f"key 'query_lens' is missing; needed are {NEEDED}"),
        (line()[:-1] + ', "head_size": 128}', "key 'head_size' appears twice; keep one of them"),
        (line(head_size=128.0), "head_size is a float, but a plain int is needed"),
        (line(head_size=float("nan")), "head_size is a float, but a plain int is needed"),
        (line(num_kv_heads=True), "num_kv_heads is a bool, but a plain int is needed"),
        (line(num_kv_heads="8"), "num_kv_heads is a str, but a plain int is needed"),
        (line(num_query_heads=None), "num_query_heads is a NoneType, but a plain int is needed"),
        (line(block_size=0), "block_size is 0, but at least 1 is needed"),
        (line(num_query_heads=-32), "num_query_heads is -32, but at least 1 is needed"),
        (line(head_size=257), "head_size is 257, but at most 256 is supported"),
        (line(num_kv_heads=5), "num_query_heads is 32, but a multiple of num_kv_heads (5) is needed"),
        (line(block_size=2**31), "block_size is 2147483648, but at most 2147483647 is possible"),
        (
            line().replace(" 16}", " 1" + "0" * 5000 + "}"),
            "a number has 5001 digits, but at most 2147483647 is",
        ),
        (line(query_lens=5), "query_lens is 5, but a list of lengths is needed"),
        (line(context_lens={}), "context_lens is {}, but a list of lengths is needed"),
        (line(query_lens=[1, 1, "512"]), "query_lens[2] is a str, but a plain int is needed"),
        (line(query_lens=[1, True, 512]), "query_lens[1] is a bool, but a plain int is needed"),
        (line(query_lens=[1, -1, 512]), "query_lens[1] is -1, but at least 0 is needed"),
        (line(query_lens=[[2, 1, 1], 512]), "query_lens[0] has 3 entries, but a run is [count, length]"),
        (line(query_lens=[[], 512]), "query_lens[0] has 0 entries, but a run is [count, length]"),
        (line(query_lens=[[0, 1], 512]), "query_lens[0], the count, is 0, but at least 1 is needed"),
        (line(query_lens=[[True, 1], 512]), "query_lens[0], the count, is a bool, but a plain int is needed"),
        (line(query_lens=[[2, [1, 1]], 512]), "query_lens[0] is a list, but a plain int is needed"),
        (line(query_lens=[[2**40, 1]]), "query_lens has more than 16384 sequences"),
        (line(query_lens=[1] * 16385), "query_lens has more than 16384 sequences"),
        (
            line(query_lens=[1, 1]),
            "query_lens has 2 sequences, but context_lens 3; each needs one length per seq",
        ),
        (
            line(query_lens=[1, 78, 512]),
            "sequence 1 has 78 query tokens, but a context of 77; contexts include",
        ),
        (line(query_lens=[0, 0, 0]), "query_lens holds no query token; leave out batches without any"),
        (line(query_lens=[], context_lens=[]), "query_lens holds no query token; leave out batches without"),
        (
            line(context_lens=[900, 77, 2**31]),
            "the sum of context_lens is 2147484625, but at most 2147483647",
        ),
        (line(context_lens=[[3, 2**30]]), "the sum of context_lens is 3221225472, but at most 2147483647"),
        (line(dtype="float32"), "dtype is 'float32', but one of float16, bfloat16, float8_e4m3fn is needed"),
        (line(dtype=["bfloat16"]), "dtype is ['bfloat16'], but one of float16, bfloat16, float8_e4m3fn is"),
        (line(dtype="float8_e4m3fn"), "dtype is torch.float8_e4m3fn, but torch.float16 or torch.bfloat16 is"),
        (
            line(cache_dtype=None),
            "cache_dtype is None, but one of float16, bfloat16, float8_e4m3fn is needed",
        ),
        (
            line(cache_dtype="float16"),
            "cache_dtype is torch.float16, but torch.bfloat16 or torch.float8_e4m3fn",
        ),
        (line(sliding_window=0), "sliding_window is 0, but at least 1 is needed"),
        (line(sliding_window=8.0), "sliding_window is a float, but a plain int is needed"),
        (line(sliding_window=2**31), "sliding_window is 2147483648, but at most 2147483647 is possible"),
        (line(softcap="50"), "softcap is '50', but a number is needed"),
        (line(softcap=True), "softcap is True, but a number is needed"),
        (line(softcap=-1), "softcap is -1, but 0 to 1000 is needed"),
        (line(softcap=float("nan")), "softcap is nan, but 0 to 1000 is needed"),
        (line(sinks=1), "sinks is 1, but true or false is needed"),
        (line(id="a,b"), "id is 'a,b', but 1 to 128 letters, digits and _ . = - are needed"),
        (line(id=""), "id is '', but 1 to 128 letters"),
        (line(id=7), "id is 7, but 1 to 128 letters"),
        (line(id="\ud800"), "id is '\\ud800', but 1 to 128 letters"),
        (line(id="first", head_size=64), "id 'first' is already in line 1; give it another"),
        (line(id="first"), "id 'first' is already in line 1; give it another"),
    ],
    ids=lambda text: text[:30],
)
def test_a_mistake_is_an_error_with_its_line(path: Path, text: str, what: str) -> None:
    with pytest.raises(TuningError) as error:
        read(path, line(id="first"), "", text, line())
    message = str(error.value)
    assert message.startswith(f"{path}:3: {what}")
    assert message.isprintable() and len(message) < len(str(path)) + 300


def test_an_id_may_not_be_the_one_of_a_later_line(path: Path) -> None:
    with pytest.raises(TuningError) as error:
        read(path, line(id="line-2"), line(block_size=32))
    assert str(error.value) == f"{path}:2: id 'line-2' is already in line 1; give it another"


def test_bytes_that_are_no_text(path: Path) -> None:
    path.write_bytes(line().encode() + b'\n{"id": "\xff"}')
    with pytest.raises(TuningError) as error:
        read_recorded(path)
    assert str(error.value) == f"{path}:2: not UTF-8 text (byte 9 of the line)"


def test_files_that_are_none(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(file: Path) -> str:
        with pytest.raises(TuningError) as error:
            read_recorded(file)
        return str(error.value).removeprefix(str(file))

    assert message(path) == ": cannot be read: No such file or directory"
    assert message(tmp_path) == ": not a plain file; name a file of JSON lines"
    os.mkfifo(tmp_path / "fifo")
    assert message(tmp_path / "fifo") == ": not a plain file; name a file of JSON lines"
    path.write_text("\n \n")
    assert message(path) == ": holds no batch; write one JSON object a line"
    path.write_text(line() + "\n" + " " * (1 << 20) + line())
    assert message(path) == ":2: longer than 1 MiB; write runs of equal lengths as [count, length]"
    monkeypatch.setattr(recorded, "MAX_FILE_BYTES", 1 << 20)
    assert message(path) == ": larger than 1 MiB; keep a sample of its lines"


def test_text_that_is_written(path: Path) -> None:
    shape = Shape(HeadLayout(8, 1, 64), 32, torch.float16, FP8)
    scenario = scenario_of("a", (1, 1, 1, 9, 9), (5, 16, 16, 16, 19), shape)
    assert write_recorded([scenario]) == (
        '{"id": "a", "query_lens": [[3, 1], 9, 9], "context_lens": [5, [3, 16], 19], "num_query_heads": 8, '
        '"num_kv_heads": 1, "head_size": 64, "block_size": 32, "dtype": "float16", '
        '"cache_dtype": "float8_e4m3fn"}\n'
    )
    assert write_recorded([]) == ""


@pytest.mark.parametrize("name", list(SETS))
def test_sets_survive_a_file(path: Path, name: str) -> None:
    scenarios = SETS[name](0)
    path.write_text(write_recorded(scenarios))
    assert read_recorded(path) == scenarios


shapes = st.builds(
    lambda kv_heads, ratio, *others: Shape(HeadLayout(kv_heads * ratio, kv_heads, others[0]), *others[1:]),
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 256),
    st.integers(1, 4096),
    st.sampled_from((torch.bfloat16, torch.float16)),
    st.sampled_from((None, FP8)),
    st.builds(
        ScoreOptions, st.none() | st.integers(1, 9999), st.sampled_from((0.0, 0.5, 50.0)), st.booleans()
    ),
)
sequences = st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(0, 5) | st.integers(0, 10**5))


@given(
    batches=st.lists(
        st.tuples(
            st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,127}", fullmatch=True),
            st.lists(sequences, min_size=1, max_size=5).filter(
                lambda some: any(query for _, query, _ in some)
            ),
            shapes,
        ),
        min_size=1,
        max_size=5,
        unique_by=(lambda batch: batch[0], lambda batch: repr(batch[1:])),
    )
)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_any_scenarios_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[str, list[tuple[int, int, int]], Shape]]
) -> None:
    scenarios = {}
    for id, runs, shape in batches:
        queries = [query for count, query, _ in runs for _ in range(count)]
        contexts = [query + cached for count, query, cached in runs for _ in range(count)]
        scenarios.setdefault((*queries, *contexts, shape), scenario_of(id, queries, contexts, shape))
    distinct = tuple(scenarios.values())
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    path.write_text(write_recorded(distinct))
    assert read_recorded(path) == distinct


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_no_content_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    with pytest.raises(TuningError):
        read_recorded(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(key=st.sampled_from([*GOOD, *recorded.OPTIONAL]), value=values)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_no_value_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.jsonl"
    path.write_text(line(**{key: value}))
    try:
        (scenario,) = read_recorded(path)
    except TuningError as error:
        assert str(error).isprintable()
    else:
        assert scenario.batch.num_query_tokens > 0


def test_counts_of_lines_add_up_and_captured_graphs_are_left_out(path: Path) -> None:
    path.write_text("\n".join([line(count=5), line(count=2), line(block_size=32), line(for_capture=True)]))
    assert [(s.id, count) for s, count in read_counted(path).items()] == [("line-1", 7), ("line-3", 1)]
    path.write_text(line(for_capture=True, count=3))
    with pytest.raises(TuningError, match="holds no batch but those of captured graphs"):
        read_counted(path)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"count": 0}, "count is 0, but at least 1 is needed"),
        ({"count": 2.0}, "count is a float, but a plain int is needed"),
        ({"count": 2**31}, "count is 2147483648, but at most 2147483647 is possible"),
        ({"for_capture": 1}, "for_capture is 1, but true or false is needed"),
    ],
)
def test_counts_and_flags_are_checked(path: Path, changes: dict[str, object], what: str) -> None:
    with pytest.raises(TuningError, match=f"^{re.escape(str(path))}:1: {what}"):
        read(path, line(**changes))


def test_a_batch_in_parts_counts_as_both(path: Path) -> None:
    path.write_text("\n".join([line(parts=True, count=4), line(parts=True, query_lens=[1, 1, 1]), line()]))
    found = {s.id: (s.batch.query_lens, count) for s, count in read_counted(path, in_parts=True).items()}
    assert found == {
        "line-1.decodes": ((1, 1), 4),
        "line-1.prompts": ((512,), 4),
        "line-2": ((1, 1, 1), 1),
        "line-3": ((1, 1, 512), 1),
    }


def test_frequent_batches_are_drawn_first_of_all(path: Path) -> None:
    path.write_text("\n".join(line(context_lens=[n, n, 512], count=1 + 99 * (n < 10)) for n in range(1, 101)))
    counts = read_counted(path)
    assert drawn(counts, 100, 0) == drawn(counts, 10**6, 5) == tuple(counts)
    frequent = [sum(counts[s] > 1 for s in drawn(counts, 9, seed)) for seed in range(200)]
    assert all(len(drawn(counts, 9, seed)) == 9 for seed in range(20))
    assert drawn(counts, 9, 3) == drawn(counts, 9, 3) != drawn(counts, 9, 4)
    assert 7 < sum(frequent) / 200 < 9  # of 9; without weights it would be 0.8
    assert min(frequent) < 9


def table_of(folder: Path, scenarios: tuple[Scenario, ...]) -> Path:
    create(
        folder,
        kernel="unified_attention",
        device={"name": "a GPU"},
        timing="none",
        origin={"tool": "none"},
        features=tuple(scenarios[0].batch.features),
        configs=[{"id": "M16", "variant": "qblock", "block_m": 16}],
        scenarios={s.id: list(s.batch.features.values()) for s in scenarios},
    ).close()
    return folder


def test_what_lies_outside_of_a_table(tmp_path: Path, path: Path) -> None:
    shape = Shape(HeadLayout(32, 8, 128))
    measured = (
        scenario_of("a", (1,), (64,), shape),
        scenario_of("b", (1,) * 8, (900,) * 8, shape),
    )
    table = table_of(tmp_path / "table", measured)
    path.write_text(
        "\n".join(
            [
                line(query_lens=[[4, 1]], context_lens=[[4, 500]], count=10),
                line(query_lens=[[4, 1]], context_lens=[[3, 500], 901], count=3),
                line(query_lens=[[4, 1]], context_lens=[[4, 500]], head_size=64, count=7),
            ]
        )
    )
    counts = read_counted(path)
    assert outside(counts, table, lambda batch: batch.features) == [
        f"10 of 20 plans (50.0%), 2 of 3 recorded batches, lie outside of {table}",
        "         7 plans  line-3: no scenario has num_query_heads=32, num_kv_heads=8, head_size=64, "
        "block_size=16, kv_element_size=2",
        "         3 plans  line-2: max_seq_len=901, but 64 to 900 was measured",
    ]
    with pytest.raises(TuningError, match="a table of other features"):
        outside(counts, table, lambda batch: batch.mixed_features)

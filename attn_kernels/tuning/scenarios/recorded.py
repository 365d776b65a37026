"""Files of recorded batches, one JSON object per line; and which of them a table has not measured."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_kernels.core.checks import DTYPES, FP8, INT32_LIMIT, check_int
from attn_kernels.core.layer_checks import MAX_SOFTCAP
from attn_kernels.measure.batches import Batch, HeadLayout, ScoreOptions
from attn_kernels.tuning.scenarios.scenario import Shape, dtype_name, scenario_of, shape_of
from attn_kernels.tuning.space.space import ATTENTION
from tuning_table import TableError, read_run
from tuning_table.errors import shown
from tuning_table.files import read_bytes
from tuning_table.names import is_id

NUMBERS = ("num_query_heads", "num_kv_heads", "head_size", "block_size")
REQUIRED = ("query_lens", "context_lens", *NUMBERS)
TYPES = {dtype_name(dtype): dtype for dtype in (*DTYPES, FP8)}
MAX_SEQS = 1 << 14  # sequences in a batch
MAX_LINE_BYTES = 1 << 20
MOST_LINES = 20  # that `outside` lists


def read_counted(path: Path, in_parts: bool = False) -> dict[Batch, int]:
    """The distinct batches of a file, in the order of their first lines, with how often each was planned.

    That is the sum of its lines' counts. Batches of captured graphs are left out: their lengths are maxima.
    Raises TableError, naming the line, for every mistake.

    Args:
        in_parts: whether a mixed batch that was planned with `parts` counts as its decodes and its prompts.
    """
    first: dict[object, Batch] = {}
    counts: dict[Batch, int] = {}
    lines: dict[str, int] = {}
    for number, raw in _lines(path):
        try:
            record = _parse(raw)
            scenario = _scenario(record, number)
            if scenario.name in lines:
                raise ValueError(f"id {scenario.name!r} is already in line {lines[scenario.name]}")
        except RecursionError:
            raise TableError(path, "not JSON that holds a batch (nested too deeply)", number) from None
        except (TypeError, ValueError) as error:
            raise TableError(path, str(error), number) from None
        lines[scenario.name] = number
        if record.get("for_capture"):
            continue
        for one in _parts(scenario) if in_parts and record.get("parts") else (scenario,):
            kept = first.setdefault((one.query_lens, one.context_lens, shape_of(one)), one)
            counts[kept] = counts.get(kept, 0) + record.get("count", 1)
    if not counts:
        only = " but those of captured graphs" if lines else ""
        raise TableError(path, f"holds no batch{only}; write one JSON object per line")
    return counts


def drawn(counts: Mapping[Batch, int], most: int, seed: int) -> tuple[Batch, ...]:
    """At most this many scenarios, drawn without replacement with their counts as weights, in the same order.

    Each draws a random number from an exponential distribution of its weight; the smallest are taken
    (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006).
    """
    rng = random.Random(seed)
    when = {scenario: -math.log(1 - rng.random()) / count for scenario, count in counts.items()}
    last = sorted(when.values())[:most][-1]
    return tuple(scenario for scenario in counts if when[scenario] <= last)


def outside(
    counts: Mapping[Batch, int], table: Path, features_of: Callable[[Batch], Mapping[str, int]]
) -> list[str]:
    """Lines about the batches outside of a table, the most frequent first.

    A batch lies outside if no scenario of the table has its shape (heads, head size, page size, bytes of a
    cache element), or if one of its lengths is below or above those of all scenarios of its shape.
    Raises TableError, also for a table with other features than `features_of` gives.
    """
    run = read_run(table)
    shapes: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for values in run.scenarios.values():
        row = dict(zip(run.header.features, values, strict=True))
        shapes.setdefault(_shape_key(row), []).append(row)
    beyond: list[tuple[int, str]] = []
    for scenario, count in counts.items():
        features = features_of(scenario)
        if tuple(features) != tuple(run.header.features):
            raise TableError(table, "a table of another kernel than --kernel names")
        why = _why_outside(features, shapes.get(_shape_key(features), []))
        if why:
            beyond.append((count, f"{scenario.name}: {why}"))
    beyond.sort(key=lambda entry: -entry[0])
    total, lost = sum(counts.values()), sum(count for count, _ in beyond)
    lines = [
        f"{lost} of {total} plans ({100 * lost / total:.1f}%), {len(beyond)} of {len(counts)} recorded "
        f"batches, lie outside of {table}",
        *(f"{count:10} plans  {text}" for count, text in beyond[:MOST_LINES]),
    ]
    return lines if len(beyond) <= MOST_LINES else [*lines, f"and {len(beyond) - MOST_LINES} batches more"]


def _shape_key(features: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(features[name] for name in ATTENTION.shape)


def _why_outside(features: Mapping[str, int], measured: Sequence[Mapping[str, int]]) -> str:
    """The reason why a batch lies outside of the scenarios of its shape; empty if it does not."""
    if not measured:
        return "no scenario has " + ", ".join(f"{name}={features[name]}" for name in ATTENTION.shape)
    beyond = []
    for name, value in features.items():
        low, high = (extreme(row[name] for row in measured) for extreme in (min, max))
        if not low <= value <= high:
            beyond.append(f"{name}={value}, but {low} to {high} was measured")
    return "; ".join(beyond)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if len(line) > MAX_LINE_BYTES:
            most = f"longer than {MAX_LINE_BYTES >> 20} MiB"
            raise TableError(path, f"{most}; write equal lengths as runs", number)
        if line.strip():
            yield number, line


def _parse(raw: bytes) -> dict[str, Any]:
    """A line's values by key, each checked."""
    try:
        record = json.loads(raw.decode(), object_pairs_hook=_no_repeats)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}; one object per line") from None
    if not isinstance(record, dict):
        raise TypeError('not a JSON object; write {"query_lens": [...], "context_lens": [...], ...}')
    for key in record:
        if key not in KEYS:
            raise ValueError(f"key {shown(key)} is unknown; possible are {', '.join(KEYS)}")
    for key in REQUIRED:
        if key not in record:
            raise ValueError(f"key {key!r} is missing; needed are {', '.join(REQUIRED)}")
    return {key: check(key, record[key]) for key, check in KEYS.items() if key in record}


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key appears twice; keep one of them")
    return record


def _scenario(record: Mapping[str, Any], line: int) -> Batch:
    queries, contexts = record["query_lens"], record["context_lens"]
    if len(queries) != len(contexts):
        raise ValueError(f"query_lens has {len(queries)} sequences, but context_lens {len(contexts)}")
    for i, (query, context) in enumerate(zip(queries, contexts, strict=True)):
        if query > context:
            raise ValueError(f"sequence {i} has {query} query tokens, but a context of {context}")
    if not any(queries):
        raise ValueError("query_lens holds no query token; leave out batches without any")
    *heads, block_size = (record[name] for name in NUMBERS)
    dtype = TYPES[record.get("dtype", "bfloat16")]
    cache_dtype = TYPES[record["cache_dtype"]] if "cache_dtype" in record else dtype
    softcap, sinks = float(record.get("softcap", 0.0)), record.get("sinks", False)
    scores = ScoreOptions(record.get("sliding_window"), softcap, sinks)
    different = None if cache_dtype == dtype else cache_dtype
    layout = HeadLayout(*heads)
    layout.model(block_size, dtype, different)  # checks them
    shape = Shape(layout, block_size, dtype, different, scores)
    return scenario_of(record.get("id", f"line-{line}"), queries, contexts, shape)


def _lengths(name: str, entries: Any) -> list[int]:
    """The lengths, with runs expanded. A length of 0 stands for a sequence that pads the batch."""
    if not isinstance(entries, list):
        raise TypeError(f"{name} is {shown(entries)}, but a list of lengths is needed")
    lengths: list[int] = []
    for i, entry in enumerate(entries):
        run = entry if isinstance(entry, list) else [1, entry]
        if len(run) != 2:
            raise ValueError(f"{name}[{i}] has {len(run)} entries, but a run is [count, length]")
        count = _integer(f"{name}[{i}], the count,", run[0])
        length = _integer(f"{name}[{i}]", run[1], least=0)
        if len(lengths) + count > MAX_SEQS:
            raise ValueError(f"{name} has more than {MAX_SEQS} sequences; no server launches that many")
        lengths += [length] * count
    _integer(f"the sum of {name}", sum(lengths), least=0)
    return lengths


def _integer(name: str, value: Any, least: int = 1) -> int:
    check_int(name, value, least)
    if value >= INT32_LIMIT:
        raise ValueError(f"{name} is {shown(value)}, but at most {INT32_LIMIT - 1} is possible")
    return int(value)


def _must(test: Callable[[Any], object], needed: str) -> Callable[[str, Any], Any]:
    """A check of a value; needed: what it must be, as in `but true or false is needed`."""

    def check(name: str, value: Any) -> Any:
        if not test(value):
            raise ValueError(f"{name} is {shown(value)}, but {needed} is needed")
        return value

    return check


_dtype = _must([*TYPES].__contains__, f"one of {', '.join(TYPES)}")
_flag = _must(lambda value: isinstance(value, bool), "true or false")
_softcap = _must(
    lambda value: type(value) in (int, float) and 0.0 <= value <= MAX_SOFTCAP,
    f"a number from 0 to {MAX_SOFTCAP:g}",
)
_id = _must(
    lambda value: isinstance(value, str) and is_id(value), "a text of 1 to 128 letters, digits and _ . = -"
)
KEYS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("query_lens", "context_lens"), _lengths),
    **dict.fromkeys((*NUMBERS, "sliding_window", "count"), _integer),
    **dict.fromkeys(("dtype", "cache_dtype"), _dtype),
    **dict.fromkeys(("sinks", "parts", "for_capture"), _flag),
    "softcap": _softcap,
    "id": _id,
}


def _parts(batch: Batch) -> tuple[Batch, ...]:
    """The decodes and the prompts of a batch; one scenario if it has no others."""
    count = batch.parts.decodes.num_seqs
    parts = []
    for name, part in (("decodes", slice(0, count)), ("prompts", slice(count, None))):
        queries, contexts = batch.query_lens[part], batch.context_lens[part]
        if any(queries):
            parts.append(scenario_of(f"{batch.name}.{name}", queries, contexts, shape_of(batch)))
    return (batch,) if len(parts) < 2 else tuple(parts)

"""Record which batches a process plans, and how often, for ``ATTN_KERNELS_RECORD`` (docs/recording.md).

Batches whose lengths are nearly equal share a bucket. A bucket keeps the lengths of its first batch and a
count. A thread writes the buckets to a file, which ``attn-tune --scenarios`` reads.
"""

import itertools
import json
import logging
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import util
from pathlib import Path
from typing import Any

from attn_kernels.core.errors import AttnKernelsWarning
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from tuning_table.files import replace_file

VARIABLE = "ATTN_KERNELS_RECORD"
MAX_BUCKETS = 4096  # of a process; a line of the file has about 300 bytes
FIRST_WRITE_S, MOST_S = 1.0, 30.0  # the file is written after 1, 2, 4, ... seconds, then every 30

logger = logging.getLogger("attn_kernels")
Key = tuple[Any, ...]


@dataclass(slots=True)
class Bucket:
    """Batches whose lengths are nearly equal."""

    model: Model
    parts: tuple[Lengths, ...]  # of the first batch: all its sequences, or decodes and prompts
    for_capture: bool
    count: int = 0


class Recorder:
    """Counts the batches of a process and writes them to a file. Raises OSError if that is impossible."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.buckets: dict[Key, Bucket] = {}
        self._written = 0  # the plans that the file counts
        self._warned: set[str] = set()
        self._lock = threading.Lock()  # of the file
        replace_file(path, "")
        util.Finalize(None, self.write, exitpriority=0)  # unlike atexit, forked workers run it too
        threading.Thread(target=self._write_now_and_then, name=VARIABLE, daemon=True).start()

    def record(
        self, model: Model, lengths: Lengths, parts: Parts | None = None, for_capture: bool = False
    ) -> None:
        """Count a batch, without a lock: threads that count at once may lose a count."""
        # floor(2 * log2(length)) + 1, so the lengths of a bucket differ by a factor below the root of 2.
        sizes = lengths if parts is None else parts.decodes + parts.prompts
        key = (model, for_capture, *[(size * size).bit_length() for size in sizes])
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self._add(key, Bucket(model, (lengths,) if parts is None else parts, for_capture))
        bucket.count += 1

    def write(self) -> None:
        """Write the current buckets to the file, most frequent first. A failure is a warning, once."""
        with self._lock:
            buckets = sorted(self.buckets.values(), key=lambda bucket: -bucket.count)
            total = sum(bucket.count for bucket in buckets)
            if total == self._written:
                return
            try:
                replace_file(self.path, "".join(map(line_of, buckets)))
                self._written = total
            except OSError as error:
                self._warn_once(f"{self.path}: cannot be written: {error.strerror or error}; plans go on")

    def _add(self, key: Key, bucket: Bucket) -> Bucket:
        if len(self.buckets) >= MAX_BUCKETS:
            frequent = sorted(self.buckets.items(), key=lambda item: -item[1].count)
            self.buckets = dict(frequent[: MAX_BUCKETS // 2])
            self._warn_once(f"{self.path}: over {MAX_BUCKETS} kinds of batches; the rarest are dropped")
        self.buckets[key] = bucket
        return bucket

    def _write_now_and_then(self) -> None:
        delay, never = FIRST_WRITE_S, threading.Event()
        while not never.wait(delay):
            self.write()
            delay = min(2 * delay, MOST_S)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s: %s", VARIABLE, message)


@cache
def recorder_of_process() -> Recorder | None:
    """Return the recorder of this process; None if the variable is unset or its file cannot be written.

    The process's id goes before the suffix of the file's name.
    """
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    try:
        path = Path(value).absolute()
        return Recorder(path.with_name(f"{path.stem}.{os.getpid()}{path.suffix}"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        warnings.warn(
            f"{VARIABLE} is {value!r}, which cannot be written: {reason}. Nothing is recorded.",
            AttnKernelsWarning,
            stacklevel=2,
        )
        return None


os.register_at_fork(after_in_child=recorder_of_process.cache_clear)  # a child counts its own plans


def record_step(model: Model, lengths: Lengths, parts: Parts | None = None) -> None:
    """Count a batch that is not planned, such as that of a replayed graph. Does nothing without recording."""
    recorder = recorder_of_process()
    if recorder is not None:
        recorder.record(model, lengths, parts)


def line_of(bucket: Bucket) -> str:
    """Return the JSON line of a bucket: a batch with the lengths that ``plan`` was given."""
    first, *prompts = bucket.parts
    # The longest prompt comes first: a reader finds the end of the decodes there.
    pairs = sequences_of(first) + [pair for part in prompts for pair in reversed(sequences_of(part))]
    model = bucket.model
    record: dict[str, Any] = {
        "query_lens": runs([query for query, _ in pairs]),
        "context_lens": runs([context for _, context in pairs]),
        "num_query_heads": model.num_query_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_size": model.head_size,
        "block_size": model.block_size,
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    optional = {
        "cache_dtype": model.cache_dtype and str(model.cache_dtype).removeprefix("torch."),
        "sliding_window": model.sliding_window,
        "parts": len(bucket.parts) > 1,
        "for_capture": bucket.for_capture,
    }
    record |= {name: value for name, value in optional.items() if value}
    return json.dumps(record | {"count": bucket.count}) + "\n"


def sequences_of(lengths: Lengths) -> list[tuple[int, int]]:
    """Return query tokens and keys of sequences that have these lengths, the longest last.

    The host knows sums and maxima only. One sequence gets both maxima, and the others share the rest evenly.
    """
    queries = _shared(lengths.num_seqs, lengths.num_query_tokens, lengths.max_query_len)
    contexts = _shared(lengths.num_seqs, lengths.num_kv_tokens, lengths.max_seq_len)
    return [(query, max(query, context)) for query, context in zip(queries, contexts, strict=True)]


def _shared(count: int, total: int, longest: int) -> list[int]:
    """Return ``count`` lengths in ascending order, of this sum, of which the last is ``longest``."""
    if not count:
        return []
    longest = min(longest, total)
    share, more = divmod(total - longest, count - 1) if count > 1 else (0, 0)
    return [share] * (count - 1 - more) + [share + 1] * more + [longest]


def runs(lengths: Sequence[int]) -> list[int | list[int]]:
    """Return lengths with ``[count, length]`` in place of three or more equal ones in a row."""
    shortened: list[int | list[int]] = []
    for length, group in itertools.groupby(lengths):
        count = len(list(group))
        shortened += [[count, length]] if count > 2 else [length] * count
    return shortened

"""The rows that engines wrote: read, merged, and compared."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.environment import stop

RESULTS = "results.jsonl"
Row = dict[str, Any]
SIZES = ("batch", "prompt", "output")


def append(folder: Path, rows: Iterable[Row]) -> None:
    """Add rows to a folder's results."""
    with (folder / RESULTS).open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read(folders: Sequence[Path]) -> list[Row]:
    """Return the rows of several folders. A process that was stopped may leave half a line, which is skipped.

    Stops with one line if a folder has no results.
    """
    rows = []
    for folder in folders:
        try:
            lines = (folder / RESULTS).read_text().splitlines()
        except OSError as error:
            stop(f"{folder / RESULTS}: cannot be read: {error.strerror}")
        for line in lines:
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                print(f"{folder / RESULTS}: skipped a line that is no JSON: {line[:60]!r}")
    return rows


def latest(rows: Iterable[Row], kind: str, names: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    """Return the last row of this kind for each backend and these values."""
    return {(row["backend"], *(row[name] for name in names)): row for row in rows if row["kind"] == kind}


def spread(times: Sequence[float]) -> float:
    """Return how much longer the longest took than the shortest."""
    return max(times) / min(times) - 1


def middle(row: Row | None) -> float | None:
    """Return the median seconds of a row."""
    return None if row is None else statistics.median(row["seconds"])


def backends_in(rows: Iterable[Row], kind: str) -> list[str]:
    """Return the backends in the order of their first rows, ours last."""
    found = dict.fromkeys(row["backend"] for row in rows if row["kind"] == kind)
    return sorted(found, key=lambda name: name == "CUSTOM")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose columns but the first are on the right."""
    bars = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1), *bars]

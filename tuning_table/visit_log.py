"""visits.csv: which worker measured each row of a table, and how fast that worker was then.

A fleet's workers all time one shared cell, the calibration. A worker that takes longer than the others for it
is slow: its GPU is throttled, shared or of another power limit.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low

from tuning_table.errors import TableError, one_line, shown
from tuning_table.files import append_to, os_errors_in_one_line
from tuning_table.paths import read_bytes, try_path
from tuning_table.table import VISITS

HEADER = ["scenario", "repeat", "worker", "calibration_us", "slowdown"]
SLOW = 1.05  # rows of a worker that is this many times slower than the others are marked
TOO_SLOW = 1.15  # and from this on, they are measured again on another worker

_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class MeasuredBy:
    """A line of visits.csv."""

    scenario: str
    repeat: int
    worker: str  # the host's name and the GPU's, such as `node7/GPU-5d1e`
    calibration_us: float | None  # the worker's time for the calibration; None: not known
    slowdown: float | None  # that time over the time of the other workers; None: not known

    @property
    def key(self) -> tuple[str, int]:
        return self.scenario, self.repeat


def log_visits(folder: Path, lines: Iterable[MeasuredBy]) -> None:
    """Append lines, on disk when this returns. Of two lines of one row, the later counts.

    Only the writer of the table may do so. Raises TableError.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        numbers = (_text(line.calibration_us), _text(line.slowdown))
        writer.writerow([line.scenario, line.repeat, one_line(line.worker), *numbers])
    with os_errors_in_one_line(folder):
        append_to(folder / VISITS, ",".join(HEADER) + "\n", out.getvalue())


def read_visit_log(folder: Path) -> dict[tuple[str, int], MeasuredBy]:
    """The last line of each row by scenario and repeat; empty without the file.

    Lines of rows that were never written are among them. Raises TableError, naming the line.
    """
    path = folder / VISITS
    if not try_path(path, Path.exists):
        return {}
    content = read_bytes(path, _MAX_BYTES)
    try:
        text = content[: content.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        raise TableError(path, "not UTF-8 text") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        if next(reader, HEADER) != HEADER:
            raise TableError(path, f"must begin with {','.join(HEADER)}", 1)
        lines = (_line(path, reader.line_num, cells) for cells in reader)
        return {line.key: line for line in lines}
    except csv.Error as error:
        raise TableError(path, f"not valid CSV: {error}", reader.line_num) from None


def reference_us(calibrations: Mapping[str, Iterable[float]]) -> float | None:
    """The calibration's time on a typical worker: the median of the workers' medians, of two the shorter.

    calibrations: microseconds by worker. None without any.
    """
    medians = [median(times) for times in map(list, calibrations.values()) if times]
    return median_low(medians) if medians else None


def _line(path: Path, number: int, cells: list[str]) -> MeasuredBy:
    try:
        scenario, repeat, worker, *numbers = cells
        calibration, slowdown = (float(text) if text else None for text in numbers)
        if not repeat.isdecimal() or any(x is not None and not 0 < x < 1e12 for x in (calibration, slowdown)):
            raise ValueError
        return MeasuredBy(scenario, int(repeat), worker, calibration, slowdown)
    except ValueError:
        raise TableError(path, f"{shown(','.join(cells))} is no line of {','.join(HEADER)}", number) from None


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.5g}"

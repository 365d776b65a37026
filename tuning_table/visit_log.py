"""visits.csv: which worker measured each row of a table. A run on Ray and a merge write it."""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuning_table.errors import TableError, one_line, shown
from tuning_table.files import append_to, csv_text, os_errors_in_one_line, read_text, try_path
from tuning_table.table import VISITS

HEADER = ["scenario", "repeat", "worker"]  # earlier versions wrote two more columns, which are skipped


@dataclass(frozen=True)
class MeasuredBy:
    """A line of visits.csv."""

    scenario: str
    repeat: int
    worker: str  # the host's name and the GPU's, such as `node7/GPU-5d1e`

    @property
    def key(self) -> tuple[str, int]:
        return self.scenario, self.repeat


def log_visits(folder: Path, lines: Iterable[MeasuredBy]) -> None:
    """Append lines, on disk when this returns. Of two lines of one row, the later counts.

    Only the writer of the table may do so. Raises TableError.
    """
    text = csv_text([line.scenario, line.repeat, one_line(line.worker)] for line in lines)
    with os_errors_in_one_line(folder):
        append_to(folder / VISITS, csv_text([HEADER]), text)


def read_visit_log(folder: Path) -> dict[tuple[str, int], MeasuredBy]:
    """The last line of each row by scenario and repeat; empty without the file.

    Lines of rows that were never written are among them. Raises TableError, naming the line.
    """
    path = folder / VISITS
    if not try_path(path, Path.exists):
        return {}
    found: dict[tuple[str, int], MeasuredBy] = {}
    reader = csv.reader(io.StringIO(read_text(path, whole_lines=True), newline=""), strict=True)
    try:
        for cells in reader:
            if cells[:3] == HEADER and reader.line_num == 1:
                continue
            if len(cells) < 3 or not cells[1].isdecimal():
                what = f"{shown(','.join(cells))} is no line of {','.join(HEADER)}"
                raise TableError(path, what, reader.line_num)
            line = MeasuredBy(cells[0], int(cells[1]), cells[2])
            found[line.key] = line
    except (csv.Error, ValueError) as error:
        raise TableError(path, f"not valid CSV: {error}", reader.line_num) from None
    return found

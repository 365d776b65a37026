"""visits.csv: which worker measured each row of a table. A run on Ray and a merge write it."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tuning_table.errors import TableError, one_line, shown
from tuning_table.files import append_to, csv_text, os_errors_in_one_line, read_text, try_path
from tuning_table.table import VISITS

HEADER = ["scenario", "repeat", "worker"]  # earlier versions wrote two more columns, which are skipped

# The worker, as host and GPU (`node7/GPU-5d1e`), by the scenario and repeat of each row.
Workers: TypeAlias = Mapping[tuple[str, int], str]


def log_visits(folder: Path, workers: Workers) -> None:
    """Append lines, on disk when this returns. Of two lines of one row, the later counts.

    Only the writer of the table may do so. Raises TableError.
    """
    text = csv_text([*row, one_line(worker)] for row, worker in workers.items())
    with os_errors_in_one_line(folder):
        append_to(folder / VISITS, csv_text([HEADER]), text)


def read_visit_log(folder: Path) -> dict[tuple[str, int], str]:
    """The last worker of each row; empty without the file.

    Lines of rows that were never written are among them. Raises TableError, naming the line.
    """
    path = folder / VISITS
    if not try_path(path, Path.exists):
        return {}
    found: dict[tuple[str, int], str] = {}
    reader = csv.reader(io.StringIO(read_text(path, whole_lines=True), newline=""), strict=True)
    try:
        for cells in reader:
            if cells[:3] == HEADER and reader.line_num == 1:
                continue
            if len(cells) < 3 or not cells[1].isdecimal():
                what = f"{shown(','.join(cells))} is no line of {','.join(HEADER)}"
                raise TableError(path, what, reader.line_num)
            found[cells[0], int(cells[1])] = cells[2]
    except (csv.Error, ValueError) as error:
        raise TableError(path, f"not valid CSV: {error}", reader.line_num) from None
    return found

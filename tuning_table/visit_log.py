"""visits.csv: which worker measured each row of a table. A run on Ray and a merge write it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tuning_table.errors import one_line
from tuning_table.files import append_to, csv_text, os_errors_in_one_line, read_text, try_path
from tuning_table.reader import repeat_of, rows_below
from tuning_table.table import VISITS

HEADER = ["scenario", "repeat", "worker"]

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
    text = read_text(path, whole_lines=True) if try_path(path, Path.exists) else ""
    found: dict[tuple[str, int], str] = {}
    for line, (scenario, repeat, worker) in rows_below(path, text, HEADER) if text else ():
        found[scenario, repeat_of(path, line, repeat)] = worker
    return found

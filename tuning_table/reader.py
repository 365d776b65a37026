"""Read a table's folder and check every value."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuning_table.errors import TableError, shown
from tuning_table.files import read_text, try_path
from tuning_table.names import is_id
from tuning_table.run_yaml import read_header
from tuning_table.table import (
    FAILURES,
    LARGEST,
    RUN,
    SCENARIOS,
    TIMES,
    Cell,
    Cells,
    Failure,
    RecordedTable,
    TableHeader,
    Visit,
)

SHORTEST_US, LONGEST_US = 1e-3, 1e12
LAST_REPEAT = 999_999
FAILURES_HEADER = ["scenario", "repeat", "config", "reason"]
NOT_RECORDED = Failure("reason not recorded")

_MAX_RUN_BYTES = 1 << 20  # PyYAML takes up to 20 microseconds a byte
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_REPEAT = re.compile(r"[1-9][0-9]{0,5}")
_TIME = re.compile(r"[0-9]{1,15}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?")


def read(folder: Path | str, *, running: bool = False) -> RecordedTable:
    """The table in `folder`, every value checked.

    running: a run may still be writing it, or was killed. Then a last row without a line end is left out,
    there need not be a row yet, and times.csv may have columns for more configs than run.yaml, or for fewer.

    Raises TableError, naming the file and the line, for anything missing, malformed or contradictory.
    """
    folder = Path(folder)
    if not try_path(folder, Path.is_dir):
        raise TableError(folder, f"no such table folder (it would hold {RUN}, {SCENARIOS} and {TIMES})")
    header = read_header(folder / RUN, read_text(folder / RUN, _MAX_RUN_BYTES))
    texts = {name: read_text(folder / name, whole_lines=running) for name in (SCENARIOS, TIMES)}
    scenarios = read_scenarios(folder / SCENARIOS, texts[SCENARIOS], header.features)
    visits = tuple(_read_times(folder / TIMES, texts[TIMES], header, scenarios, running))
    if not visits and not running:
        raise TableError(folder / TIMES, "holds no row; measure the table, or take it out of the spec")
    return RecordedTable(header, scenarios, visits)


def read_run(folder: Path | str) -> RecordedTable:
    """The table, which may be running, with the reasons of failures.csv. Raises as `read` does."""
    table = read(folder, running=True)
    reasons, without_time = _read_failures(Path(folder, FAILURES))
    visits: dict[tuple[str, int], Mapping[str, Cell]] = {}
    for visit in table.visits:
        key = visit.scenario, visit.repeat
        known = {c: why for c, why in reasons.get(key, {}).items() if visit.cells.get(c) == NOT_RECORDED}
        visits[key] = {**visit.cells, **known}
    for key in without_time:
        if key[0] in table.scenarios:
            visits.setdefault(key, reasons.get(key, {}))
    return replace(table, visits=tuple(Visit(*key, cells) for key, cells in visits.items()))


def read_scenarios(path: Path, text: str, features: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Features by scenario id from the text of scenarios.csv. Raises TableError with the line."""
    lines: dict[str, int] = {}
    scenarios: dict[str, tuple[int, ...]] = {}
    for line, (scenario, *cells) in rows_below(path, text, ["scenario", *features]):
        if not is_id(scenario):
            what = f"scenario id {shown(scenario)} may hold letters, digits and _ . = - only"
            raise TableError(path, what, line)
        if scenario in lines:
            raise TableError(path, f"scenario {scenario} is already in line {lines[scenario]}", line)
        for name, cell in zip(features, cells, strict=True):
            if not _INTEGER.fullmatch(cell) or abs(int(cell)) > LARGEST:
                what = f"{name} must be an integer within 62 bits, not {shown(cell)}"
                raise TableError(path, what, line)
        lines[scenario] = line
        scenarios[scenario] = tuple(map(int, cells))
    if not scenarios:
        raise TableError(path, "holds no scenario")
    return scenarios


def _read_times(
    path: Path, text: str, header: TableHeader, scenarios: Mapping[str, object], running: bool
) -> Iterator[Visit]:
    lines: dict[tuple[str, int], int] = {}
    columns = ids = [config.id for config in header.configs]
    found = columns_of(text)
    if running and (set(found) < set(ids) or set(found) > set(ids)):
        columns = found
    for line, (scenario, repeat, *cells) in rows_below(path, text, ["scenario", "repeat", *columns]):
        if scenario not in scenarios:
            raise TableError(path, f"scenario {shown(scenario)} is not in {SCENARIOS}", line)
        number = repeat_of(path, line, repeat)
        first = lines.setdefault((scenario, number), line)
        if first != line:
            raise TableError(path, f"scenario {scenario} repeat {repeat} is already in line {first}", line)
        tried = {c: _cell(path, line, c, cell) for c, cell in zip(columns, cells, strict=True) if cell}
        measured = [cell for cell in tried.values() if not isinstance(cell, Failure)]
        if header.cells is Cells.WINNERS and len(measured) != 1:
            raise TableError(path, "a table of winners has exactly one time per row", line)
        if not measured:
            raise TableError(path, "no config has a time here, so nothing can be chosen", line)
        if kept := {c: tried[c] for c in ids if c in tried}:
            yield Visit(scenario, number, kept)


def columns_of(text: str) -> list[str]:
    """The ids of the configs in the header of times.csv."""
    return text.partition("\n")[0].split(",")[2:]


def _cell(path: Path, line: int, config: str, cell: str) -> Cell:
    """What a cell holds that is not empty. Raises TableError."""
    if cell == "inf":
        return NOT_RECORDED
    if _TIME.fullmatch(cell) and SHORTEST_US <= (time := float(cell)) < LONGEST_US:
        return time
    times = f"microseconds from {SHORTEST_US:g} to below {LONGEST_US:g}"
    raise TableError(path, f"{config} must be {times}, inf or empty, not {shown(cell)}", line)


def _read_failures(path: Path) -> tuple[dict[tuple[str, int], dict[str, Failure]], list[tuple[str, int]]]:
    """Failures by visit and config, also of visits that were cut short; and the visits without any time."""
    reasons: dict[tuple[str, int], dict[str, Failure]] = {}
    without_time: dict[tuple[str, int], None] = {}
    text = read_text(path, whole_lines=True) if try_path(path, Path.exists) else ""
    for line, (scenario, repeat, config, why) in rows_below(path, text, FAILURES_HEADER) if text else ():
        row = scenario, repeat_of(path, line, repeat)
        if config:
            reasons.setdefault(row, {})[config] = Failure(why)
        else:
            without_time[row] = None
    return reasons, list(without_time)


def repeat_of(path: Path, line: int, text: str) -> int:
    """The number of a repeat. Raises TableError."""
    if not _REPEAT.fullmatch(text):
        raise TableError(path, f"repeat must count from 1, not {shown(text)}", line)
    return int(text)


def rows_below(path: Path, text: str, header: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row below the header, which must be exactly `header`."""
    if "\0" in text:
        raise TableError(path, "holds a NUL character", text[: text.index("\0")].count("\n") + 1)
    if text and not text.endswith("\n"):
        what = "the last row is cut off (no line end): remove it or run the tuning again"
        raise TableError(path, what, text.count("\n") + 1)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        first = next(reader, None)
        if first != header:
            raise TableError(path, _header_difference(first or [], header), 1)
        for cells in reader:
            if len(cells) != len(header):
                raise TableError(path, f"has {len(cells)} cells, not {len(header)}", reader.line_num)
            yield reader.line_num, cells
    except csv.Error as error:
        raise TableError(path, f"not valid CSV: {error}", reader.line_num) from None


def _header_difference(header: list[str], expected: list[str]) -> str:
    for position, (have, need) in enumerate(zip(header, expected, strict=False)):
        if have != need:
            return f"column {position + 1} must be {shown(need)} (as in {RUN}), not {shown(have)}"
    return f"has {len(header)} columns, not the {len(expected)} that {RUN} declares"

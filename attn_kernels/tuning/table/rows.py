"""The rows of scenarios.csv, times.csv and failures.csv as text and back.

Everything but the reasons of failures is plain words, so a line is its cells joined by commas.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import Cell, Failure, Header, Visit
from attn_kernels.tuning.scenarios.scenario import is_id

SHORTEST_US, LONGEST_US = 1e-3, 1e12
LAST_REPEAT = 999_999
FAILURES_HEAD = "scenario,repeat,config,reason\n"
NOT_RECORDED = Failure("reason not recorded")
_NO_TIME = "no config has a time: no row in times.csv"
_LARGEST = 1 << 62
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_REPEAT = re.compile(r"[1-9][0-9]{0,5}")
_TIME = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")

Reasons = dict[tuple[str, int], dict[str, Failure]]
"""Failures by scenario and repeat, then by config id."""


def time_text(microseconds: float) -> str:
    """Five significant digits, no exponent. Raises TuningError for what is no time."""
    if not math.isfinite(microseconds):
        raise TuningError(f"{microseconds} is no time in microseconds")
    text = f"{microseconds:.5g}"
    if not SHORTEST_US <= float(text) < LONGEST_US:
        raise TuningError(f"{microseconds} us is no time of a launch (at least {SHORTEST_US})")
    return f"{float(text):.0f}" if "e" in text else text


def scenarios_text(features: Sequence[str], scenarios: Sequence[tuple[str, Sequence[int]]]) -> str:
    """The text of scenarios.csv. Raises TuningError for ids or values that a table cannot hold."""
    lines, seen = [",".join(["scenario", *features])], set()
    for scenario, values in scenarios:
        if not is_id(scenario):
            raise TuningError(f"scenario {scenario!r} may hold letters, digits and _ . = - only")
        if scenario in seen:
            raise TuningError(f"scenario {scenario} is there twice")
        if len(values) != len(features) or any(abs(value) > _LARGEST for value in values):
            raise TuningError(f"scenario {scenario} needs {len(features)} integers within 62 bits")
        seen.add(scenario)
        lines.append(",".join([scenario, *(str(int(value)) for value in values)]))
    if not seen:
        raise TuningError("a table needs at least one scenario")
    return "".join(f"{line}\n" for line in lines)


def read_scenarios(path: Path, text: str, features: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Features by scenario id; `path` is for messages. Raises TuningError with the line."""
    scenarios: dict[str, tuple[int, ...]] = {}
    for line, (scenario, *cells) in _rows(path, text, ["scenario", *features]):
        if not is_id(scenario) or scenario in scenarios:
            raise TuningError(f"{path}:{line}: scenario {scenario!r:.60} is no id, or there twice")
        if not all(_INTEGER.fullmatch(cell) for cell in cells):
            raise TuningError(f"{path}:{line}: the features must be integers")
        scenarios[scenario] = tuple(int(cell) for cell in cells)
    return scenarios


def times_head(header: Header) -> str:
    """The first line of times.csv."""
    return ",".join(["scenario", "repeat", *(config.id for config in header.configs)]) + "\n"


def times_row(visit: Visit, header: Header) -> str:
    """The visit's line of times.csv; "" if no config has a time. Raises TuningError for what is no time."""
    cells = [visit.cells.get(config.id) for config in header.configs]
    if all(cell is None or isinstance(cell, Failure) for cell in cells):
        return ""
    return ",".join([visit.scenario, str(visit.repeat), *(_cell_text(cell) for cell in cells)]) + "\n"


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return "inf" if isinstance(cell, Failure) else time_text(cell)


def read_times(
    path: Path, text: str, header: Header, scenarios: Mapping[str, object], reasons: Reasons
) -> tuple[Visit, ...]:
    """The rows of times.csv, failures with their `reasons`. Raises TuningError with the line."""
    ids = [config.id for config in header.configs]
    visits: dict[tuple[str, int], Visit] = {}
    for line, (scenario, repeat, *texts) in _rows(path, text, ["scenario", "repeat", *ids]):
        if scenario not in scenarios:
            raise TuningError(f"{path}:{line}: scenario {scenario!r:.60} is not in scenarios.csv")
        if not _REPEAT.fullmatch(repeat):
            raise TuningError(f"{path}:{line}: repeat must count from 1, not {repeat!r:.60}")
        key = (scenario, int(repeat))
        if key in visits:
            raise TuningError(f"{path}:{line}: scenario {scenario} repeat {repeat} is there twice")
        why = reasons.get(key, {})
        cells = {
            name: _cell(path, line, name, text, why.get(name, NOT_RECORDED))
            for name, text in zip(ids, texts, strict=True)
            if text
        }
        if all(isinstance(cell, Failure) for cell in cells.values()):
            raise TuningError(f"{path}:{line}: no config has a time here: remove the line")
        visits[key] = Visit(*key, cells)
    return tuple(visits.values())


def _cell(path: Path, line: int, config: str, text: str, failure: Failure) -> Cell:
    if text == "inf":
        return failure
    if not _TIME.fullmatch(text) or not SHORTEST_US <= float(text) < LONGEST_US:
        raise TuningError(f"{path}:{line}: {config} must be microseconds, inf or empty, not {text!r:.60}")
    return float(text)


def failures_rows(visit: Visit, *, has_row: bool) -> str:
    """The visit's lines of failures.csv; a last one without a config says that times.csv has no row of it."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for config, cell in visit.cells.items():
        if isinstance(cell, Failure):
            rows.writerow([visit.scenario, visit.repeat, config, _one_line(cell.reason)])
    if not has_row:
        rows.writerow([visit.scenario, visit.repeat, "", _NO_TIME])
    return out.getvalue()


def read_failures(path: Path, text: str) -> tuple[Reasons, list[tuple[str, int]]]:
    """Failures by visit, the last of equal lines; and the visits that ended without any time.

    Failures of visits that never ended (killed) are among them. Raises TuningError with the line.
    """
    reasons: Reasons = {}
    without_time: dict[tuple[str, int], None] = {}
    if not text:
        return reasons, []
    if not text.startswith(FAILURES_HEAD):
        raise TuningError(f"{path}:1: the first line must be {FAILURES_HEAD.strip()}")
    rows = csv.reader(io.StringIO(text[len(FAILURES_HEAD) :], newline=""), strict=True)
    try:
        for cells in rows:
            if len(cells) != 4 or not _REPEAT.fullmatch(cells[1]):
                raise TuningError(f"{path}:{rows.line_num + 1}: must be {FAILURES_HEAD.strip()}")
            key = (cells[0], int(cells[1]))
            if cells[2]:
                reasons.setdefault(key, {})[cells[2]] = Failure(cells[3])
            else:
                without_time[key] = None
    except csv.Error as error:
        raise TuningError(f"{path}:{rows.line_num + 1}: not valid CSV: {error}") from None
    return reasons, list(without_time)


def _one_line(text: str) -> str:
    """Reasons are messages of compilers: line breaks, terminal codes and lone surrogates become blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _rows(path: Path, text: str, head: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every line below the first, which must be `head`."""
    first, *lines = text.split("\n")[:-1] or [""]
    if first.split(",") != head:
        raise TuningError(f"{path}:1: the first line must name {len(head)} columns, {head[0]} to {head[-1]}")
    for number, line in enumerate(lines, start=2):
        cells = line.split(",")
        if len(cells) != len(head):
            raise TuningError(f"{path}:{number}: has {len(cells)} cells, not {len(head)}")
        yield number, cells

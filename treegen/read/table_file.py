"""The folder of a measurement table: run.yaml, scenarios.csv and times.csv, read strictly."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from treegen.core.errors import InputError, shown
from treegen.core.files import looked_at, read_text
from treegen.core.names import is_config_id
from treegen.core.table import Cells, Table, TableConfig
from treegen.read.run_file import read_run

RUN, SCENARIOS, TIMES = "run.yaml", "scenarios.csv", "times.csv"

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_TIME = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")
_REPEAT = re.compile(r"[1-9][0-9]{0,5}")
_LARGEST = 1 << 62
_SHORTEST_US, _LONGEST_US = 1e-3, 1e12


def read_table(folder: Path) -> Table:
    """The table in `folder`, every value checked.

    Raises InputError, naming file and row, for anything missing, malformed or contradictory.
    """
    if not looked_at(folder, Path.is_dir):
        raise InputError(folder, f"no such table folder (it would hold {RUN}, {SCENARIOS} and {TIMES})")
    run = read_run(folder / RUN)
    scenarios, values = _read_scenarios(folder / SCENARIOS, run.feature_names)
    row_scenario, row_repeat, times = _read_times(folder / TIMES, run.configs, scenarios, run.cells)
    reached = np.unique(row_scenario)  # a run that was stopped has scenarios still to come
    return Table(
        folder=folder,
        kernel=run.kernel,
        device_name=run.device_name,
        cells=run.cells,
        feature_names=run.feature_names,
        configs=run.configs,
        scenarios=tuple(scenarios[i] for i in reached),
        features=values[reached],
        row_scenario=np.searchsorted(reached, row_scenario),
        row_repeat=row_repeat,
        times=times,
        provenance=run.provenance,
    )


def _rows(path: Path, header: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row below the header, which must be exactly `header`."""
    text = read_text(path)
    if "\0" in text:
        raise InputError(path, "holds a NUL character", line=text[: text.index("\0")].count("\n") + 1)
    if text and not text.endswith("\n"):
        last = text.count("\n") + 1
        raise InputError(
            path, "the last row is cut off (no line end): remove it or run the tuning again", line=last
        )
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        first = next(reader, None)
        if first != header:
            raise InputError(path, _header_difference(first or [], header), line=1)
        for cells in reader:
            if len(cells) != len(header):
                raise InputError(path, f"has {len(cells)} cells, not {len(header)}", line=reader.line_num)
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(path, f"not valid CSV: {error}", line=reader.line_num) from None


def _header_difference(found: list[str], wanted: list[str]) -> str:
    for position, (have, need) in enumerate(zip(found, wanted, strict=False)):
        if have != need:
            return f"column {position + 1} must be {shown(need)} (as in {RUN}), not {shown(have)}"
    return f"has {len(found)} columns, not the {len(wanted)} that {RUN} declares"


def _read_scenarios(path: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    lines: dict[str, int] = {}
    values: list[tuple[int, ...]] = []
    for line, (scenario, *cells) in _rows(path, ["scenario", *names]):
        if not is_config_id(scenario):
            raise InputError(
                path, f"scenario id {shown(scenario)} may hold letters, digits and _ . = - only", line=line
            )
        if scenario in lines:
            raise InputError(path, f"scenario {scenario} is already in line {lines[scenario]}", line=line)
        row = tuple(_integer(path, line, name, cell) for name, cell in zip(names, cells, strict=True))
        lines[scenario] = line
        values.append(row)
    if not values:
        raise InputError(path, "holds no scenario")
    return tuple(lines), np.array(values, dtype=np.int64)


def _integer(path: Path, line: int, name: str, cell: str) -> int:
    if not _INTEGER.fullmatch(cell) or abs(int(cell)) > _LARGEST:
        raise InputError(path, f"{name} must be an integer within 62 bits, not {shown(cell)}", line=line)
    return int(cell)


def _read_times(
    path: Path, configs: tuple[TableConfig, ...], scenarios: tuple[str, ...], cells: Cells
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index = {scenario: i for i, scenario in enumerate(scenarios)}
    header = ["scenario", "repeat", *(config.id for config in configs)]
    lines: dict[tuple[int, int], int] = {}
    times: list[list[float]] = []
    for line, (scenario, repeat, *values) in _rows(path, header):
        if scenario not in index:
            raise InputError(path, f"scenario {shown(scenario)} is not in {SCENARIOS}", line=line)
        if not _REPEAT.fullmatch(repeat):
            raise InputError(path, f"repeat must count from 1, not {shown(repeat)}", line=line)
        key = (index[scenario], int(repeat))
        if key in lines:
            raise InputError(
                path, f"scenario {scenario} repeat {repeat} is already in line {lines[key]}", line=line
            )
        row = [_time(path, line, header[2 + i], value) for i, value in enumerate(values)]
        if cells is Cells.WINNERS and sum(np.isfinite(row)) != 1:
            raise InputError(path, "a table of winners has exactly one time a row", line=line)
        if cells is Cells.MEASURED and not any(np.isfinite(row)):
            raise InputError(path, "no config has a time here, so nothing can be chosen", line=line)
        lines[key] = line
        times.append(row)
    if not lines:
        raise InputError(path, "holds no row")
    keys = np.array(list(lines), dtype=np.int64)
    return keys[:, 0], keys[:, 1], np.array(times)


def _time(path: Path, line: int, config: str, cell: str) -> float:
    if cell == "":
        return np.nan
    if cell == "inf":
        return np.inf
    if not _TIME.fullmatch(cell) or not _SHORTEST_US <= float(cell) < _LONGEST_US:
        raise InputError(
            path, f"{config} must be microseconds above 0, inf or empty, not {shown(cell)}", line=line
        )
    return float(cell)


def table_files(
    run: Mapping[str, Any],
    scenarios: Sequence[Sequence[object]],
    times: Sequence[Sequence[object]],
    notes: str,
) -> dict[str, str]:
    """The texts of a table's three files by file name; `notes` head run.yaml as a comment."""
    comment = "".join(f"# {line}\n" for line in notes.splitlines())
    ids = [config["id"] for config in run["configs"]]
    return {
        RUN: comment + yaml.safe_dump(dict(run), sort_keys=False, width=120, default_flow_style=None),
        SCENARIOS: _csv([["scenario", *run["features"]], *scenarios]),
        TIMES: _csv([["scenario", "repeat", *ids], *times]),
    }


def _csv(rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()

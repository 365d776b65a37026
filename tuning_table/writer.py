"""Write a table's folder.

Rows are appended whole. A kill costs at most the row in flight, and the same run can go on in the folder.
times.csv is made first; each writer locks it. run.yaml is made last, so a folder without it holds no table.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

from tuning_table import files, reader
from tuning_table.errors import TableError, shown
from tuning_table.run_yaml import check_run, difference, run_text
from tuning_table.table import (
    FAILURES,
    FORMAT,
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

_MAY_CHANGE = ("date", "summary", "configs", "constants")  # of run.yaml, when a run goes on
_REMEDY = "choose another folder, or remove this one"
_OF_SOURCE = ", as the code that it times or checks has changed"
_NO_TIME = "no config has a time: no row in times.csv"


def create(
    folder: Path | str,
    *,
    kernel: str,
    device: Mapping[str, str | int],
    timing: str | Mapping[str, Any],
    features: Sequence[str],
    configs: Sequence[Mapping[str, str | int]],
    scenarios: Mapping[str, Sequence[int | str]],
    cells: str = Cells.MEASURED,
    **provenance: Any,
) -> "TableWriter":
    """Create a table, or go on in the folder of the same run, whose `date` and rows stay.

    The run may list more scenarios than the folder has, which gets them then, and more configs or fewer: a
    longer list leaves the new ones unmeasured, and of a shorter one no other times are kept. Its summary then
    begins anew. A table without any time is begun again, whatever run it is of.

    The arguments are the keys of run.yaml (docs/tables.md).

    Args:
        configs: `{"id": ..., "variant": ..., <parameter>: <integer>, ...}`.
        scenarios: the values of `features` by scenario id; integers, or words that `values` lists.
        provenance: `driver`, `torch`, `triton`, `source_hash` and `date`, or else `origin`; and
            `values`, if any.

    Raises:
        TableError: a reader would refuse the table; or the folder is damaged or holds anything else; or
            another process writes into it. Nothing is changed then.
    """
    folder = Path(folder)
    run = {
        "format": FORMAT,
        "kernel": kernel,
        "device": dict(device),
        "cells": str(cells),
        "timing": timing,
        **provenance,
        "features": list(features),
        "configs": [dict(config) for config in configs],
    }
    header = check_run(folder / RUN, run, {})
    rows = [[scenario, *_without_words(folder, header, values)] for scenario, values in scenarios.items()]
    texts = table_texts(run, rows, [])
    values = reader.read_scenarios(folder / SCENARIOS, texts[SCENARIOS], features)
    with files.os_errors_in_one_line(folder):
        exists = (folder / RUN).exists()
        if not exists:
            _refuse_foreign_files(folder)
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = files.open_locked(folder / TIMES, 0 if exists else os.O_CREAT)
        try:
            # Another process may have made run.yaml before this one had the lock.
            if (folder / RUN).exists() and reader.read(folder, running=True).visits:
                recorded = _same_run(folder, run, texts[SCENARIOS], descriptor)
            else:
                for name in (FAILURES, RUN):  # without the last, no table is left
                    (folder / name).unlink(missing_ok=True)
                if (folder / TIMES).read_bytes().partition(b"\n")[2]:
                    what = f"{TIMES} holds rows but {RUN} is missing: choose another folder"
                    raise TableError(folder, what)
                os.ftruncate(descriptor, 0)
                files.append_whole(descriptor, texts[TIMES])
                for name in (SCENARIOS, RUN):
                    files.replace_file(folder / name, texts[name])
                recorded = RecordedTable(header, values, ())
            for staged in folder.glob(f"{files.STAGED}*"):
                staged.unlink()
        except BaseException:
            os.close(descriptor)
            raise
    return TableWriter(folder, recorded, descriptor)


class TableWriter:
    """A table being written, locked against other writers until `close` or the end of the process."""

    def __init__(self, folder: Path, recorded: RecordedTable, descriptor: int) -> None:
        self.folder = folder
        self.header: TableHeader = recorded.header
        self.visits = recorded.visits  # of earlier runs
        self._scenarios = recorded.scenarios
        self._ids = [config.id for config in recorded.header.configs]
        self._done = {(visit.scenario, visit.repeat) for visit in recorded.visits}
        self._last = dict(sorted(self._done))  # each scenario's last repeat
        self._descriptor = descriptor
        _OPEN.add(self)

    def append(self, scenario: str, times: Mapping[str, Cell], repeat: int | None = None) -> None:
        """Write one row, whole or not at all, and before it the reasons of its failures.

        A row in which every config failed is kept in failures.csv alone, as no reader could choose from it.
        Raises TableError for anything that a reader would refuse.

        times: by the id of each config that was tried, microseconds (five digits are kept) or a Failure.
        repeat: from 1; by default one more than the scenario's last.
        """
        number = self._last.get(scenario, 0) + 1 if repeat is None else repeat
        self.append_all([Visit(scenario, number, times)])

    def append_all(self, visits: Sequence[Visit]) -> None:
        """Write rows as `append` does, with one wait for the disk. A kill costs the last of them at most."""
        added: set[tuple[str, int]] = set()
        for visit in visits:
            self._check(visit, added)
            added.add((visit.scenario, visit.repeat))
        rows, reasons = _rows_of(self.folder, self._ids, visits)
        with files.os_errors_in_one_line(self.folder):
            if reasons:
                files.append_to(
                    self.folder / FAILURES, files.csv_text([reader.FAILURES_HEADER]), files.csv_text(reasons)
                )
            if rows:
                files.append_whole(self._descriptor, files.csv_text(rows))
        self._done |= added
        for scenario, repeat in added:
            self._last[scenario] = max(repeat, self._last.get(scenario, 0))

    def _check(self, visit: Visit, added: set[tuple[str, int]]) -> None:
        """Raise TableError for a row that a reader would refuse."""
        scenario, repeat, times = visit.scenario, visit.repeat, visit.cells
        named = f"scenario {scenario} repeat {repeat}"
        measured = sum(not isinstance(cell, Failure) for cell in times.values())
        if scenario not in self._scenarios or not 1 <= repeat <= reader.LAST_REPEAT:
            raise TableError(self.folder, f"the table has no {named}")
        if unknown := times.keys() - set(self._ids):
            raise TableError(self.folder, f"the table has no config {min(unknown)}")
        if not times:
            raise TableError(self.folder, f"{named} tried no config")
        if (scenario, repeat) in added or (scenario, repeat) in self._done:
            raise TableError(self.folder, f"{named} is there already")
        if self.header.cells is Cells.WINNERS and measured != 1:
            raise TableError(self.folder, f"{named}: a table of winners has exactly one time per row")

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Replace run.yaml's `summary` (docs/tables.md) atomically."""
        run = {**self.header.provenance, "summary": dict(summary)}
        check_run(self.folder / RUN, run, {})
        with files.os_errors_in_one_line(self.folder):
            files.replace_file(self.folder / RUN, run_text(self.folder / RUN, run))

    def close(self) -> None:
        """Release the lock; nothing can be appended afterwards."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A forked process would keep the lock after its parent's death.
_OPEN: "weakref.WeakSet[TableWriter]" = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: list(map(TableWriter.close, _OPEN)))


def _rows_of(
    folder: Path, configs: Sequence[str], visits: Sequence[Visit]
) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of times.csv and of failures.csv."""
    rows, reasons = [], []
    for visit in visits:
        place = [visit.scenario, str(visit.repeat)]
        for config, cell in visit.cells.items():
            if isinstance(cell, Failure):
                printable = "".join(c if c.isprintable() else " " for c in cell.reason)
                reasons.append([*place, config, " ".join(printable.split())])
        if any(not isinstance(cell, Failure) for cell in visit.cells.values()):
            cells = visit.cells.items()
            texts = {c: "inf" if isinstance(cell, Failure) else time_text(folder, cell) for c, cell in cells}
            rows.append([*place, *(texts.get(config, "") for config in configs)])
        else:
            reasons.append([*place, "", _NO_TIME])
    return rows, reasons


def time_text(folder: Path, microseconds: float) -> str:
    """A time as times.csv holds it: five digits, no exponent. Raises TableError for what is no time."""
    text = f"{microseconds:.5g}"
    if not reader.SHORTEST_US <= float(text) < reader.LONGEST_US:
        what = f"{shown(microseconds)} us is no time of a launch (at least {reader.SHORTEST_US})"
        raise TableError(folder, what)
    return f"{float(text):.0f}" if "e" in text else text


def table_texts(
    run: Mapping[str, Any],
    scenarios: Sequence[Sequence[object]],
    times: Sequence[Sequence[object]],
    notes: str = "",
) -> dict[str, str]:
    """The texts of a table's three files by file name, unchecked.

    run: the content of run.yaml. notes: its comment. scenarios, times: the rows below the header.
    """
    comment = "".join(f"# {line}\n" for line in notes.splitlines())
    ids = [config["id"] for config in run["configs"]]
    return {
        RUN: comment + run_text(Path(RUN), run),
        SCENARIOS: files.csv_text([["scenario", *run["features"]], *scenarios]),
        TIMES: files.csv_text([["scenario", "repeat", *ids], *times]),
    }


def _without_words(folder: Path, header: TableHeader, values: Sequence[int | str]) -> Iterator[int | str]:
    """The values of a scenario, with the integers of its words."""
    for name, value in zip_longest(header.features, values):
        numbers = {word: number for number, word in header.words.get(name, {}).items()}
        if isinstance(value, str) and value not in numbers:
            words = ", ".join(numbers) or "none"
            raise TableError(folder, f"{name} has the word {shown(value)}; `values` lists: {words}")
        yield numbers[value] if isinstance(value, str) else value


def _refuse_foreign_files(folder: Path) -> None:
    """Take a folder that is missing, empty or left by a creation that was killed."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.name not in (SCENARIOS, TIMES) and not path.name.startswith(files.STAGED):
            what = f"holds {path.name} but no {RUN}, so no table: choose another folder"
            raise TableError(folder, what)


def _same_run(folder: Path, run: Mapping[str, Any], scenarios: str, descriptor: int) -> RecordedTable:
    """Return what the folder holds, if that is the same run; only then rows that were cut off are removed."""
    recorded = reader.read_run(folder)
    provenance = recorded.header.provenance
    if differing := difference(provenance, run, _MAY_CHANGE):
        place, have, need = differing
        why = _OF_SOURCE if place == "source_hash" else ""
        raise TableError(folder, f"holds a run with {place} {have}, but this run has {need}{why}: {_REMEDY}")
    _refuse_other_configs(folder, provenance["configs"], run["configs"])
    text = (folder / SCENARIOS).read_text()
    if text != scenarios:
        listed = set(scenarios.splitlines())
        for line, have in enumerate(text.splitlines(), 1):
            if have not in listed:
                what = f"holds {shown(have)}, which this run does not list: {_REMEDY}"
                raise TableError(folder / SCENARIOS, what, line)
        files.replace_file(folder / SCENARIOS, scenarios)
    for path in filter(Path.exists, (folder / TIMES, folder / FAILURES)):
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # a row that was cut off
    ids = [config["id"] for config in run["configs"]]
    kept = {key: provenance[key] for key in ("date", "summary") if key in provenance}
    if provenance["configs"] != run["configs"] or reader.columns_of((folder / TIMES).read_text()) != ids:
        _put_other_columns(folder, ids, recorded.visits, descriptor)
        kept.pop("summary", None)
    if {**run, **kept} != provenance:
        files.replace_file(folder / RUN, run_text(folder / RUN, {**run, **kept}))
    return reader.read_run(folder)


def _refuse_other_configs(
    folder: Path, have: Sequence[Mapping[str, Any]], need: Sequence[Mapping[str, Any]]
) -> None:
    """Raise TableError unless one list of configs holds the other."""
    theirs, ours = ({config["id"]: config for config in configs} for configs in (have, need))
    for id in filter(theirs.__contains__, ours):
        if differing := difference(theirs[id], ours[id], ()):
            what = "the list of configs changed: {} with {} {}, but this run has {}".format(id, *differing)
            raise TableError(folder, f"{what}: {_REMEDY}")
    gone, added = ([id for id in one if id not in other] for one, other in ((theirs, ours), (ours, theirs)))
    if gone and added:
        what = f"the list of configs changed: {gone[0]} is gone and {added[0]} is new"
        raise TableError(folder, f"{what}; a table goes on with more configs, or with fewer: {_REMEDY}")


def _put_other_columns(folder: Path, ids: list[str], visits: Sequence[Visit], descriptor: int) -> None:
    """Rewrite times with the configs `ids`. descriptor: the table's lock, then that of the new times.csv.

    Where a kill leaves the new times.csv beside an old run.yaml, the next run ends this.
    """
    cells = [{c: cell for c, cell in visit.cells.items() if c in ids} for visit in visits]
    kept = [replace(visit, cells=of_kept) for visit, of_kept in zip(visits, cells, strict=True) if of_kept]
    rows, reasons = _rows_of(folder, ids, kept)
    files.replace_file(folder / TIMES, files.csv_text([["scenario", "repeat", *ids], *rows]))
    locked = files.open_locked(folder / TIMES, 0)
    os.dup2(locked, descriptor, inheritable=False)
    os.close(locked)
    files.replace_file(folder / FAILURES, files.csv_text([reader.FAILURES_HEADER, *reasons]))

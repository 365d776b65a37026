"""The folder that a tuning run fills: run.yaml, scenarios.csv, times.csv and failures.csv.

Rows are appended whole, so a killed run loses at most the row in flight, and the same run goes on in it.
times.csv is made first and locked by whoever writes; run.yaml is made last, so a folder without it holds
no run.
"""

import os
import weakref
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import Header, Recorded, Visit
from attn_kernels.tuning.table.atomic_files import (
    STAGED,
    append_whole,
    open_locked,
    remove_cut_off,
    replace_file,
    told_in_one_line,
    whole_lines,
)
from attn_kernels.tuning.table.rows import (
    FAILURES_HEAD,
    LAST_REPEAT,
    failures_rows,
    read_failures,
    read_scenarios,
    read_times,
    scenarios_text,
    times_head,
    times_row,
)
from attn_kernels.tuning.table.run_file import check_header, read_run, run_text
from attn_kernels.tuning.table.same_run import check_same_run

RUN, SCENARIOS, TIMES, FAILURES = "run.yaml", "scenarios.csv", "times.csv", "failures.csv"


class TableFolder:
    """A table being filled, locked against other runs until `close` or the end of the process.

    `visits` are those that earlier runs left, `seconds` how long they took.
    """

    def __init__(self, folder: Path, recorded: Recorded, times: int) -> None:
        self.folder, self.header, self.visits = folder, recorded.header, recorded.visits
        self._date, self._scenarios = recorded.date, recorded.scenarios
        self.seconds = recorded.seconds
        self._configs = {config.id for config in recorded.header.configs}
        self._done = {(visit.scenario, visit.repeat) for visit in recorded.visits}
        self._times = times
        _OPEN.add(self)

    @classmethod
    def open(
        cls, folder: Path, header: Header, scenarios: Sequence[tuple[str, Sequence[int]]], date: str
    ) -> Self:
        """Create the folder, or go on in one that holds the same run (its `date` stays).

        `scenarios` are ids with the values of `header.features`. Raises TuningError, having changed
        nothing, if the folder holds anything else, is damaged, or another run is writing into it.
        """
        check_header(header)
        texts = {SCENARIOS: scenarios_text(header.features, scenarios), RUN: run_text(header, date)}
        with told_in_one_line(folder):
            exists = (folder / RUN).exists()
            if not exists:
                _refuse_foreign(folder)
                folder.mkdir(parents=True, exist_ok=True)
            times = open_locked(folder / TIMES, 0 if exists else os.O_CREAT)
            try:
                # Whoever held the lock may have made run.yaml meanwhile.
                if (folder / RUN).exists():
                    recorded = _same_run(folder, header, texts[SCENARIOS], times)
                else:
                    recorded = _create(folder, header, date, texts, times)
                for litter in folder.glob(f"{STAGED}*"):
                    litter.unlink()
            except BaseException:
                os.close(times)
                raise
        return cls(folder, recorded, times)

    def append(self, visit: Visit) -> None:
        """Write one row, whole or not at all, and the reasons of its failures before it.

        A visit in which every config failed has no row in times.csv (no reader could choose from it);
        it is kept in failures.csv alone. Raises TuningError, for a time below 0.001 us too.
        """
        key = (visit.scenario, visit.repeat)
        if visit.scenario not in self._scenarios or not 1 <= visit.repeat <= LAST_REPEAT:
            raise TuningError(f"{self.folder}: the table has no {_named(visit)}")
        for config in visit.cells:
            if config not in self._configs:
                raise TuningError(f"{self.folder}: the table has no config {config}")
        if not visit.cells:
            raise TuningError(f"{self.folder}: {_named(visit)} tried no config")
        if key in self._done:
            raise TuningError(f"{self.folder}: {_named(visit)} is there already")
        row = times_row(visit, self.header)
        with told_in_one_line(self.folder):
            failures = failures_rows(visit, has_row=bool(row))
            if failures:
                self._append_failures(failures)
            if row:
                append_whole(self._times, row)
        self._done.add(key)

    def _append_failures(self, rows: str) -> None:
        descriptor = os.open(self.folder / FAILURES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            head = "" if os.fstat(descriptor).st_size else FAILURES_HEAD
            append_whole(descriptor, head + rows)
        finally:
            os.close(descriptor)

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Replace run.yaml's `summary` (keys: `runfile.SUMMARY`; plain numbers) atomically."""
        text = run_text(self.header, self._date, summary)
        with told_in_one_line(self.folder):
            replace_file(self.folder / RUN, text)

    def close(self) -> None:
        """Give the lock back; nothing can be appended after."""
        if self._times >= 0:
            os.close(self._times)
            self._times = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A forked worker would keep the lock after its parent was killed.
_OPEN: "weakref.WeakSet[TableFolder]" = weakref.WeakSet()


def _close_all() -> None:
    for folder in _OPEN:
        folder.close()


os.register_at_fork(after_in_child=_close_all)


def read_folder(folder: Path) -> Recorded:
    """The table in `folder`, whole rows only, without changing or locking it. Raises TuningError."""
    with told_in_one_line(folder):
        if not (folder / RUN).is_file():
            raise TuningError(f"{folder}: holds no table: there is no {RUN}")
        header, date, seconds = read_run(folder / RUN, (folder / RUN).read_bytes())
        scenarios = read_scenarios(folder / SCENARIOS, whole_lines(folder / SCENARIOS), header.features)
        failures = whole_lines(folder / FAILURES) if (folder / FAILURES).exists() else ""
        reasons, without_time = read_failures(folder / FAILURES, failures)
        visits = read_times(folder / TIMES, whole_lines(folder / TIMES), header, scenarios, reasons)
    timed = {(visit.scenario, visit.repeat) for visit in visits}
    failed = (
        Visit(*key, reasons.get(key, {})) for key in without_time if key not in timed and key[0] in scenarios
    )
    return Recorded(header, date, scenarios, (*visits, *failed), seconds)


def _named(visit: Visit) -> str:
    return f"scenario {visit.scenario} repeat {visit.repeat}"


def _refuse_foreign(folder: Path) -> None:
    """Only a folder that is missing, empty or left by a creation that was killed may be filled."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.name not in (RUN, SCENARIOS, TIMES) and not path.name.startswith(STAGED):
            raise TuningError(f"{folder}: holds {path.name} but no {RUN}, so no table: choose another --out")


def _create(folder: Path, header: Header, date: str, texts: Mapping[str, str], times: int) -> Recorded:
    if (folder / TIMES).read_bytes().partition(b"\n")[2]:
        raise TuningError(f"{folder}: {TIMES} holds rows but {RUN} is missing: choose another --out")
    os.ftruncate(times, 0)
    append_whole(times, times_head(header))
    for name in (SCENARIOS, RUN):
        replace_file(folder / name, texts[name])
    return Recorded(header, date, read_scenarios(folder, texts[SCENARIOS], header.features), ())


def _same_run(folder: Path, header: Header, scenarios: str, times: int) -> Recorded:
    """What the folder holds, if that is the same run; only then rows that were cut off are removed."""
    recorded = read_folder(folder)
    check_same_run(folder, recorded.header, header)
    found = (folder / SCENARIOS).read_bytes().decode(errors="replace")
    if found != scenarios:
        pairs = zip_longest(found.split("\n"), scenarios.split("\n"))
        line, (have, need) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        raise TuningError(
            f"{folder / SCENARIOS}:{line}: holds {have!r:.120}, but this run has {need!r:.120}: "
            "choose another --out, or remove the folder"
        )
    remove_cut_off(folder / TIMES, times)
    if (folder / FAILURES).exists():
        failures = os.open(folder / FAILURES, os.O_RDWR)
        try:
            remove_cut_off(folder / FAILURES, failures)
        finally:
            os.close(failures)
    return recorded

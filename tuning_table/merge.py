"""Merge tables of one GPU model, such as the shards of a run, into one."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from tuning_table.errors import TableError, shown
from tuning_table.reader import read_run
from tuning_table.run_yaml import difference
from tuning_table.table import Cells, RecordedTable, Visit
from tuning_table.writer import create

# Tables may differ in these keys of run.yaml. What follows from them is joined.
COURSE = ("date", "scenario_set", "seed", "strategy", "configs", "constants", "summary")


class Merged(NamedTuple):
    """What a merge did."""

    rows: int  # that were added
    repeated: int  # that were there already


def merge(tables: Sequence[Path], folder: Path) -> Merged:
    """Write one table of all rows; rows that several tables hold count once, others are further repeats.

    If the folder holds the table already, rows that it lacks are added. Raises TableError if the tables
    differ, and names the difference, or are of winners; nothing is changed then.
    """
    runs = [read_run(table) for table in tables]
    for table, run in zip(tables, runs, strict=True):
        if run.header.cells is Cells.WINNERS:
            raise TableError(table, "a table of winners cannot be merged: its other times are unknown")
    for (table, first), (other, run) in combinations(zip(tables, runs, strict=True), 2):
        if what := _difference(first, run):
            raise TableError(other, f"cannot be merged: {table} has {what}")
    provenance = dict(_joined(runs))
    for key in ("format", "configs", "summary"):
        provenance.pop(key, None)
    configs = list(_configs(runs).values())
    scenarios = {name: row for run in runs for name, row in run.scenarios.items()}
    with create(folder, configs=configs, scenarios=scenarios, **provenance) as merged:
        rows = Counter(map(_content, merged.visits))
        last = Counter(dict(sorted((visit.scenario, visit.repeat) for visit in merged.visits)))
        added: list[Visit] = []
        repeated = 0
        for run in runs:
            mine: Counter[object] = Counter()
            for visit in run.visits:
                content = _content(visit)
                mine[content] += 1
                if mine[content] <= rows[content]:
                    repeated += 1
                    continue
                rows[content] += 1
                last[visit.scenario] += 1
                added.append(replace(visit, repeat=last[visit.scenario]))
        merged.append_all(added)
        # Only runs have a summary; shards run side by side.
        if "origin" not in provenance and (added or "summary" not in merged.header.provenance):
            visited = {visit.scenario for visit in (*merged.visits, *added)}
            seconds = max(run.header.seconds for run in runs)
            merged.summarise({"seconds": seconds, "scenarios": len(visited)})
    return Merged(len(added), repeated)


def _difference(first: RecordedTable, other: RecordedTable) -> str | None:
    """Name the difference because of which two tables cannot become one; None if they can."""
    if differing := difference(first.header.provenance, other.header.provenance, COURSE):
        return "{} {}, but this one has {}".format(*differing)
    configs = _configs([first])
    for id, fields in _configs([other]).items():
        if differing := difference(configs.get(id, fields), fields, ()):
            return f"config {id} with " + "{} {}, but this one has {}".format(*differing)
    for scenario, features in other.scenarios.items():
        recorded = first.scenarios.get(scenario, features)
        if recorded != features:
            return f"scenario {scenario} with features {shown(recorded)}, but this one has {shown(features)}"
    return None


def _content(visit: Visit) -> object:
    """What makes a row the same row in two tables."""
    return visit.scenario, frozenset(visit.cells.items())


def _configs(runs: Sequence[RecordedTable]) -> dict[str, Mapping[str, Any]]:
    """All configs of tables by their ids, as run.yaml holds them. A table lists those that it may time."""
    return {config["id"]: config for run in runs for config in run.header.provenance["configs"]}


def _joined(runs: Sequence[RecordedTable]) -> Iterator[tuple[str, Any]]:
    """run.yaml of the merged table: what differs is joined if it is text, and else left out."""
    headers = [run.header.provenance for run in runs]
    for key, value in headers[0].items():
        values = list(dict.fromkeys(str(header.get(key)) for header in headers))
        if key == "date":
            yield key, max(values)
        elif key not in COURSE or len(values) == 1:
            yield key, value
        elif key == "scenario_set":
            yield key, "; ".join(values)

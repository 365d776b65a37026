"""Merge tables of one GPU model, such as the shards of a run, into one."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import device_key
from tuning_table.reader import read_run
from tuning_table.run_yaml import difference
from tuning_table.table import Cells, RecordedRun, Visit
from tuning_table.visit_log import Workers, log_visits, read_visit_log
from tuning_table.writer import create

# Tables may differ in these keys of run.yaml. What follows from them is joined.
COURSE = ("date", "scenario_set", "seed", "strategy", "configs", "summary")


@dataclass(frozen=True)
class Source:
    """A table to merge."""

    folder: Path
    run: RecordedRun
    workers: Workers


@dataclass(frozen=True)
class Merged:
    """What a merge did."""

    rows: int  # that were added
    repeated: int  # that were there already


def read_sources(folders: Sequence[Path]) -> list[Source]:
    """Read the tables to merge. Raises TableError, also for a table of winners."""
    sources = []
    for folder in folders:
        run = read_run(folder)
        if run.header.cells is Cells.WINNERS:
            raise TableError(folder, "a table of winners cannot be merged: its other times are unknown")
        sources.append(Source(folder, run, _workers(folder, run.header.provenance, run.visits)))
    return sources


def why_separate(first: Source, other: Source) -> str | None:
    """Name the difference because of which two tables cannot become one; None if they can."""
    if found := difference(first.run.header.provenance, other.run.header.provenance, COURSE):
        return "{} {}, but this one has {}".format(*found)
    configs = _configs([first])
    for id, fields in _configs([other]).items():
        if found := difference(configs.get(id, fields), fields, ()):
            return f"config {id} with " + "{} {}, but this one has {}".format(*found)
    for scenario, features in other.run.scenarios.items():
        known = first.run.scenarios.get(scenario, features)
        if known != features:
            return f"scenario {scenario} with features {shown(known)}, but this one has {shown(features)}"
    return None


def merge(sources: Sequence[Source], folder: Path) -> Merged:
    """Write one table of all rows; equal rows of one worker count once, others are further repeats.

    If the folder holds the table already, rows that it lacks are added. Raises TableError if the tables
    differ, and names the difference; nothing is changed then.
    """
    for first, other in combinations(sources, 2):
        if what := why_separate(first, other):
            raise TableError(other.folder, f"cannot be merged: {first.folder} has {what}")
    provenance = dict(_joined(sources))
    for key in ("format", "configs", "summary"):
        provenance.pop(key, None)
    configs = list(_configs(sources).values())
    scenarios = {name: row for source in sources for name, row in source.run.scenarios.items()}
    with create(folder, configs=configs, scenarios=scenarios, **provenance) as table:
        there = _workers(folder, table.header.provenance, table.visits)
        rows = Counter(_content(visit, there) for visit in table.visits)
        last: Counter[str] = Counter()
        for visit in table.visits:
            last[visit.scenario] = max(last[visit.scenario], visit.repeat)
        added: list[Visit] = []
        log: dict[tuple[str, int], str] = {}
        repeated = 0
        for source in sources:
            mine: Counter[object] = Counter()
            for visit in source.run.visits:
                content = _content(visit, source.workers)
                mine[content] += 1
                if mine[content] <= rows[content]:
                    repeated += 1
                    continue
                rows[content] += 1
                last[visit.scenario] += 1
                added.append(replace(visit, repeat=last[visit.scenario]))
                log[visit.scenario, last[visit.scenario]] = source.workers[visit.scenario, visit.repeat]
        log_visits(folder, log)
        table.append_all(added)
        if "origin" not in provenance:  # only runs have a summary; shards run side by side
            visited = {visit.scenario for visit in (*table.visits, *added)}
            seconds = max(source.run.header.seconds for source in sources)
            table.summarise({"seconds": seconds, "scenarios": len(visited)})
    return Merged(len(added), repeated)


def separate(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """Group tables that can become one, by a folder's name: the device's key, and a number if it is taken."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        fitting = (g for g in groups.values() if not any(why_separate(other, source) for other in g))
        group = next(fitting, None)
        if group is None:
            key = device_key(source.run.header.device_name)
            taken = sum(name == key or name.startswith(f"{key}-") for name in groups)
            group = groups.setdefault(f"{key}-{taken + 1}" if taken else key, [])
        group.append(source)
    return groups


def _content(visit: Visit, workers: Workers) -> object:
    """What makes a row the same row in two tables."""
    return visit.scenario, workers[visit.scenario, visit.repeat], frozenset(visit.cells.items())


def _workers(folder: Path, provenance: Mapping[str, Any], visits: Sequence[Visit]) -> Workers:
    """Who measured each row. Where visits.csv does not say, the run's date stands for the worker."""
    log = read_visit_log(folder)
    unnamed = f"run of {provenance.get('date', 'an imported table')}"
    return {row: log.get(row, unnamed) for row in ((visit.scenario, visit.repeat) for visit in visits)}


def _configs(sources: Sequence[Source]) -> dict[str, Mapping[str, Any]]:
    """All configs of tables by their ids, as run.yaml holds them. A table lists those that it may time."""
    return {config["id"]: config for source in sources for config in source.run.header.provenance["configs"]}


def _joined(sources: Sequence[Source]) -> Iterator[tuple[str, Any]]:
    """run.yaml of the merged table: what differs is joined if it is text, and else left out."""
    runs = [source.run.header.provenance for source in sources]
    for key, value in runs[0].items():
        values = list(dict.fromkeys(str(run.get(key)) for run in runs))
        if key == "date":
            yield key, max(values)
        elif key not in COURSE or len(values) == 1:
            yield key, value
        elif key == "scenario_set":
            yield key, "; ".join(values)

"""Merge tables of one GPU model, such as the shards of a run, into one."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tuning_table.errors import TableError, shown
from tuning_table.names import device_key
from tuning_table.reader import read_run
from tuning_table.table import Cells, Failure, RecordedRun, TableHeader, Visit
from tuning_table.visit_log import TOO_SLOW, MeasuredBy, log_visits, read_visit_log, reference_us
from tuning_table.writer import create, difference

# Tables may differ in these keys of run.yaml. What follows from them is joined.
COURSE = ("date", "scenario_set", "seed", "strategy", "configs", "summary")


@dataclass(frozen=True)
class Source:
    """A table to merge."""

    folder: Path
    run: RecordedRun
    log: Mapping[tuple[str, int], MeasuredBy]


@dataclass
class Merged:
    """What a merge did."""

    folder: Path
    rows: int = 0  # that were added
    repeated: int = 0  # that were there already
    slowdowns: dict[str, float] = field(default_factory=dict)  # the greatest of each worker
    slow_rows: Counter[str] = field(default_factory=Counter)  # of each worker, left out


def read_sources(folders: Sequence[Path]) -> list[Source]:
    """Read the tables to merge. Raises TableError, also for a table of winners."""
    sources = []
    for folder in folders:
        run = read_run(folder)
        sources.append(Source(folder, run, _whole_log(folder, run.header, run.visits)))
    for source in sources:
        if source.run.header.cells is Cells.WINNERS:
            raise TableError(
                source.folder, "a table of winners cannot be merged: its other times are unknown"
            )
    return sources


def why_separate(first: Source, other: Source) -> str | None:
    """Name the difference because of which two tables cannot become one; None if they can."""
    if found := difference(first.run.header.provenance, other.run.header.provenance, COURSE):
        place, theirs, ours = found
        return f"{place} {theirs}, but this one has {ours}"
    configs = _configs([first])
    for id, fields in _configs([other]).items():
        listed = configs.get(id, fields)
        if listed != fields and (found := difference(listed, fields, ())):
            place, theirs, ours = found
            return f"config {id} with {place} {theirs}, but this one has {ours}"
    for scenario, features in other.run.scenarios.items():
        known = first.run.scenarios.get(scenario, features)
        if known != features:
            return f"scenario {scenario} with features {shown(known)}, but this one has {shown(features)}"
    return None


def merge(sources: Sequence[Source], folder: Path) -> Merged:
    """Write one table of all rows; equal rows of one worker count once, others are further repeats.

    Rows of workers that are TOO_SLOW are left out, so that the next run of the table measures them again. If
    the folder holds the table already, rows that it lacks are added.

    Raises TableError if the tables differ, and names the difference; nothing is changed then.
    """
    for first, other in combinations(sources, 2):
        if what := why_separate(first, other):
            raise TableError(other.folder, f"cannot be merged: {first.folder} has {what}")
    done = Merged(folder)
    logs = _with_slowdowns(sources)
    provenance = dict(_joined(sources))
    features, device = provenance.pop("features"), provenance.pop("device")
    configs = list(_configs(sources).values())
    scenarios = {name: row for source in sources for name, row in source.run.scenarios.items()}
    for key in ("format", "configs", "summary"):
        provenance.pop(key, None)
    with create(
        folder, device=device, configs=configs, features=features, scenarios=scenarios, **provenance
    ) as table:
        there = _whole_log(folder, table.header, table.visits)
        rows: defaultdict[str, Counter[object]] = defaultdict(Counter)
        last: Counter[str] = Counter()
        for visit in table.visits:
            rows[visit.scenario][_content(visit, there)] += 1
            last[visit.scenario] = max(last[visit.scenario], visit.repeat)
        added: list[Visit] = []
        lines: list[MeasuredBy] = []
        for source, log in zip(sources, logs, strict=True):
            mine: defaultdict[str, Counter[object]] = defaultdict(Counter)
            for visit in source.run.visits:
                line = log[visit.scenario, visit.repeat]
                if line.slowdown is not None:
                    done.slowdowns[line.worker] = max(line.slowdown, done.slowdowns.get(line.worker, 0.0))
                    if line.slowdown >= TOO_SLOW:
                        done.slow_rows[line.worker] += 1
                        continue
                content = _content(visit, log)
                mine[visit.scenario][content] += 1
                if mine[visit.scenario][content] <= rows[visit.scenario][content]:
                    done.repeated += 1
                    continue
                rows[visit.scenario][content] += 1
                last[visit.scenario] += 1
                added.append(replace(visit, repeat=last[visit.scenario]))
                lines.append(replace(line, repeat=last[visit.scenario]))
        log_visits(folder, lines)
        table.append_all(added)
        if "origin" not in provenance:  # only runs have a summary
            table.summarise(_summary(sources, [*table.visits, *added]))
    done.rows = len(added)
    return done


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


def _content(visit: Visit, log: Mapping[tuple[str, int], MeasuredBy]) -> object:
    """What makes a row the same row in two tables."""
    return log[visit.scenario, visit.repeat].worker, frozenset(visit.cells.items())


def _whole_log(
    folder: Path, header: TableHeader, visits: Sequence[Visit]
) -> dict[tuple[str, int], MeasuredBy]:
    """The line of every row. Rows without one stand for a worker that is named by the run's date."""
    found = read_visit_log(folder)
    unnamed = f"run of {header.provenance.get('date', 'an imported table')}"
    return {
        (visit.scenario, visit.repeat): found.get(
            (visit.scenario, visit.repeat), MeasuredBy(visit.scenario, visit.repeat, unnamed, None, None)
        )
        for visit in visits
    }


def _configs(sources: Sequence[Source]) -> dict[str, Mapping[str, Any]]:
    """All configs of tables by their ids, as run.yaml holds them. A table lists those that it may time."""
    return {config["id"]: config for source in sources for config in source.run.header.provenance["configs"]}


def _with_slowdowns(sources: Sequence[Source]) -> list[dict[tuple[str, int], MeasuredBy]]:
    """Each source's lines, with slowdowns against all workers of the tables that have the same scenarios."""
    sets = {str(source.run.header.provenance.get("scenario_set")) for source in sources}
    logs = [dict(source.log) for source in sources]
    if len(sets) > 1:  # other scenarios have another calibration
        return logs
    calibrations: defaultdict[str, list[float]] = defaultdict(list)
    for log in logs:
        for line in log.values():
            if line.calibration_us is not None:
                calibrations[line.worker].append(line.calibration_us)
    typical = reference_us(calibrations)
    for log in logs:
        for key, line in log.items():
            if typical is not None and line.calibration_us is not None:
                log[key] = replace(line, slowdown=line.calibration_us / typical)
    return logs


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


def _summary(sources: Sequence[Source], visits: Sequence[Visit]) -> dict[str, object]:
    """The summary of the merged table. Its seconds are those of the longest run: shards run side by side."""
    cells: dict[tuple[str, str], str] = {}
    for visit in visits:
        for config, cell in visit.cells.items():
            why = cell.reason if isinstance(cell, Failure) else ""
            cells[visit.scenario, config] = cells.get((visit.scenario, config)) or why
    failures = Counter(why for why in cells.values() if why)
    return {
        "seconds": max([source.run.header.seconds for source in sources] + [0.1]),
        "scenarios": len({visit.scenario for visit in visits}),
        "rows": len(visits),
        "cells_measured": len(cells),
        "cells_failed": sum(failures.values()),
        "failures": dict(failures),
    }

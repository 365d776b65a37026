"""Everything that `benchmarks.trees.tuned` finds, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.trees.compare_tables import ModuleSlowdowns, TableComparison, compare_modules, compare_tables
from benchmarks.trees.score_choices import (
    KERNEL,
    CommittedTrees,
    Optimism,
    Slowdowns,
    TimedTable,
    choices,
    entries,
    groups,
    launch_config,
    optimism,
    read_timed_table,
    share_of_gap,
    single_best,
    summary,
)
from benchmarks.trees.search_loss import SearchLoss, search_loss
from treegen.core.spec import Config
from treegen.crossval.choices import decisions_of

SETS = {  # folders of a device
    "tuned": "{}",
    "untuned": "untuned_{}",
    "untuned options": "untuned_options_{}",
    "other heads": "other_heads_{}",
    "second run": "{}_second",
}

Tables = Mapping[tuple[str, str], TimedTable]
"""By device and set."""


@dataclass(frozen=True)
class TableScores:
    """All choices, scored by one table."""

    device: str
    set: str
    folder: str
    run: Mapping[str, Any]  # run.yaml without its configs
    single: str  # the single best config of the device's tuned table, in every set
    gap_closed: float | None
    optimism: Optimism | None
    figures: Mapping[str, Mapping[str, Slowdowns]]  # by group of scenarios and way of choosing
    scenarios: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class DeviceComparison:
    """Two devices in scenarios of one set: their best configs, and both modules on each device."""

    first: str
    second: str
    set: str
    best: TableComparison
    on_first: ModuleSlowdowns
    on_second: ModuleSlowdowns


@dataclass(frozen=True)
class RunComparison:
    """Two runs on one device."""

    device: str
    timing: tuple[str, str]  # each run's rules of timing
    pair: TableComparison


@dataclass(frozen=True)
class TunedResults:
    """Everything that is printed; tuned.json holds just this."""

    tables: Sequence[TableScores]
    devices: Sequence[DeviceComparison]
    noise: Sequence[RunComparison]
    searches: Sequence[SearchLoss]


def read_tables(root: Path, devices: Sequence[str], trees: CommittedTrees) -> tuple[Tables, list[str]]:
    """The tables that exist, and a line for each that does not. Raises InputError."""
    tables, missing = {}, []
    for device in devices:
        for name, pattern in SETS.items():
            folder = root / pattern.format(device)
            if name == "tuned" or folder.is_dir():
                tables[device, name] = read_timed_table(folder, device, name, trees)
            else:
                missing.append(f"no table {folder}: left out")
    return tables, missing


def results_of(tables: Tables, devices: Sequence[str], trees: CommittedTrees) -> TunedResults:
    """Score and compare all tables.

    Raises InputError for a device without a module, ValueError for tables that contradict each other, and
    TuningError for a sweep that cannot be replayed.
    """
    singles = {device: single_best(tables[device, "tuned"]) for device in devices}
    scores = [table_scores(table, singles[table.device], trees) for table in tables.values()]
    pairs, noise, searches = [], [], []
    for first, second in combinations(devices, 2):
        for name in ("tuned", "untuned"):
            if (first, name) in tables and (second, name) in tables:
                pairs.append(compare_devices(tables[first, name], tables[second, name], trees))
    for device in devices:
        tuned = tables[device, "tuned"]
        if again := tables.get((device, "second run")):
            one, two = (str(table.problem.table.provenance["timing"]) for table in (tuned, again))
            noise.append(RunComparison(device, (one, two), compare_tables(tuned, again)))
        if untuned := tables.get((device, "untuned")):
            searches.append(search_loss(tuned, untuned))
    return TunedResults(scores, pairs, noise, [search for search in searches if search])


def table_scores(table: TimedTable, single: Config, trees: CommittedTrees) -> TableScores:
    """Score all choices by one table."""
    source, chosen = table.problem.table, choices(table, single, trees)
    slowdowns = {name: table.times_of(decisions) / table.best for name, decisions in chosen.items()}
    return TableScores(
        table.device,
        table.set,
        source.folder.as_posix(),
        {name: value for name, value in source.provenance.items() if name != "configs"},
        str(launch_config(single)),
        share_of_gap(slowdowns["chosen"], slowdowns["single"]),
        optimism(table.problem),
        {
            group: {name: summary(ratios[rows]) for name, ratios in slowdowns.items()}
            for group, rows in groups(table.problem).items()
        },
        entries(table, chosen),
    )


def compare_devices(first: TimedTable, second: TimedTable, trees: CommittedTrees) -> DeviceComparison:
    """Compare two devices in the scenarios of one set."""
    one, other = (trees.modules[KERNEL, table.device].tree for table in (first, second))
    return DeviceComparison(
        first.device,
        second.device,
        first.set,
        compare_tables(first, second),
        compare_modules(first, decisions_of(one, first.problem), decisions_of(other, first.problem)),
        compare_modules(second, decisions_of(other, second.problem), decisions_of(one, second.problem)),
    )

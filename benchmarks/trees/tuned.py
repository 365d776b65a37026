"""Score the choices of the generated modules by measured tables, without a GPU.

    python -m benchmarks.trees.tuned --out results/

For each device it reads the table that its module is compiled from and, where it exists, the full sweep of
models that were not tuned (`other_models_DEVICE`). `treegen eval` scores fresh fits on held-out
scenarios; this scores the committed modules.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.common.environment import stop
from benchmarks.common.table import figure
from benchmarks.trees import tuned_plots
from benchmarks.trees.score_choices import (
    CHOICES,
    KERNEL,
    NEAR,
    CommittedModules,
    ModuleSlowdowns,
    Slowdowns,
    TableComparison,
    TimedTable,
    choices,
    compare_modules,
    compare_tables,
    entries,
    groups,
    launch_config,
    read_timed_table,
    single_best,
    summary,
)
from treegen.core.errors import InputError
from treegen.core.spec import Config
from treegen.crossval.choices import decisions_of
from treegen.read.spec import find_spec, read_spec
from treegen.review.modules import read_modules

DEVICES = "nvidia_h100,nvidia_h200"
SETS = {  # folders of a device
    "tuned": "{}",
    "other models": "other_models_{}",
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
class TunedResults:
    """Everything that is printed."""

    tables: Sequence[TableScores]
    devices: Sequence[DeviceComparison]


def read_tables(root: Path, devices: Sequence[str], committed: CommittedModules) -> tuple[Tables, list[str]]:
    """The tables that exist, and a line for each that does not. Raises InputError."""
    tables, missing = {}, []
    for device in devices:
        for name, pattern in SETS.items():
            folder = root / pattern.format(device)
            if name == "tuned" or folder.is_dir():
                tables[device, name] = read_timed_table(folder, device, name, committed)
            else:
                missing.append(f"no table {folder}: left out")
    return tables, missing


def results_of(tables: Tables, devices: Sequence[str], committed: CommittedModules) -> TunedResults:
    """Score and compare all tables.

    Raises InputError for a device without a module, and ValueError for tables that contradict each other.
    """
    singles = {device: single_best(tables[device, "tuned"]) for device in devices}
    scores = [table_scores(table, singles[table.device], committed) for table in tables.values()]
    pairs = []
    for first, second in combinations(devices, 2):
        for name in SETS:
            one, other = tables.get((first, name)), tables.get((second, name))
            if one and other and scenario_set(one) == scenario_set(other):
                pairs.append(compare_devices(one, other, committed))
    return TunedResults(scores, pairs)


def scenario_set(table: TimedTable) -> object:
    """The set that a table was measured on, with its digest."""
    return table.problem.table.provenance.get("scenario_set")


def table_scores(table: TimedTable, single: Config, committed: CommittedModules) -> TableScores:
    """Score all choices by one table."""
    source, chosen = table.problem.table, choices(table, single, committed)
    slowdowns = {name: table.times_of(decisions) / table.best for name, decisions in chosen.items()}
    return TableScores(
        table.device,
        table.set,
        source.folder.as_posix(),
        {name: value for name, value in source.provenance.items() if name != "configs"},
        str(launch_config(single)),
        {
            group: {name: summary(ratios[rows]) for name, ratios in slowdowns.items()}
            for group, rows in groups(table.problem).items()
        },
        entries(table, chosen),
    )


def compare_devices(first: TimedTable, second: TimedTable, committed: CommittedModules) -> DeviceComparison:
    """Compare two devices in the scenarios of one set."""
    one, other = (committed.modules[KERNEL, table.device].heuristic for table in (first, second))
    return DeviceComparison(
        first.device,
        second.device,
        first.set,
        compare_tables(first, second),
        compare_modules(first, decisions_of(one, first.problem), decisions_of(other, first.problem)),
        compare_modules(second, decisions_of(other, second.problem), decisions_of(one, second.problem)),
    )


HEAD = f"{'geomean':>7} {'95%':>6} {'max':>6} {'untimed':>7}"


def lines(results: TunedResults, worst: int) -> list[str]:
    """All lines. worst: how many of the worst choices of a table to list."""
    found = [
        "Slowdown: time over the best time measured in a scenario. untimed: scenarios in which the choice",
        "has no time in the table; they count in no other column.",
    ]
    for scores in results.tables:
        found += table_lines(scores, worst)
    for pair in results.devices:
        found += device_lines(pair)
    return found


def cells(found: Slowdowns) -> str:
    mean, p95, most = figure(found.geomean, ".3f"), figure(found.p95, ".3f"), figure(found.most, ".2f")
    return f"{mean:>7} {p95:>6} {most:>6} {found.untimed or '-':>7}"


def row(label: str, found: Slowdowns) -> str:
    return f"{label:58} {cells(found)}"


def table_lines(scores: TableScores, worst: int) -> list[str]:
    run = scores.run
    versions = ", ".join(f"{name} {run[name]}" for name in ("torch", "triton", "driver") if name in run)
    found = [
        "",
        f"{scores.device}, {scores.set}: {scores.folder}",
        f"{run['device']['name']}, {str(run.get('date', ''))[:10]}, {versions}",
        f"{'':31}" + " ".join(f"| {title:29}" for title in CHOICES.values()),
        f"{'':24}{'number':>6} " + " ".join(f"| {HEAD}" for _ in CHOICES),
    ]
    for group, figures in scores.figures.items():
        count = figures["chosen"].scenarios
        found.append(f"{group:24}{count:6} " + " ".join(f"| {cells(figures[name])}" for name in CHOICES))
    found.append(f"single best: {scores.single}")
    chosen = [(entry, *entry["choices"]["chosen"]) for entry in scores.scenarios]
    untimed = Counter(config for _, config, time in chosen if time is None)
    found += [f"chosen but untimed: {config} ({count})" for config, count in untimed.most_common()]
    timed = [(time / entry["best"][1], time, config, entry) for entry, config, time in chosen if time]
    ranked = sorted(timed, key=lambda one: -one[0])[:worst]
    return found + (["worst choices:", *(worst_line(*one) for one in ranked)] if ranked else [])


def worst_line(slowdown: float, time: float, config: str, entry: Mapping[str, Any]) -> str:
    best, least = entry["best"]
    return f"  {slowdown:6.2f} {entry['id']:42} {config} {time:.1f} us, {best} {least:.1f} us"


def device_lines(pair: DeviceComparison) -> list[str]:
    first, second, best = pair.first, pair.second, pair.best
    lines = [
        "",
        f"{first} and {second}, {pair.set}: of the cells that both timed, the best config differs "
        f"in {best.differ} of {best.scenarios} scenarios",
        f"{'':58} {HEAD}",
        row(f"best of {first} on {second}", best.first_on_second),
        row(f"best of {second} on {first}", best.second_on_first),
    ]
    for here, there, modules in ((first, second, pair.on_first), (second, first, pair.on_second)):
        lines += [
            row(f"own module on {here}", modules.own),
            row(f"module of {there} on {here} (other choice in {modules.differ})", modules.other),
            row("    its time over that of the own module", modules.other_over_own),
        ]
    shift = figure(best.near_shift, ".3f")
    near = f"{second} over {first}, {best.near_cells} cells within {NEAR} of the best: median {shift}"
    return [*lines, near]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.trees.tuned",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tables", type=Path, default=Path("tuning_data/unified_attention"), help="folder of the tables")
    add("--devices", default=DEVICES, help=f"device keys, with commas between (default {DEVICES})")
    add("--worst", type=int, default=5, help="how many of the worst choices of a table to list (default 5)")
    add("--out", type=Path, help="folder for a plot a device, tuned_DEVICE.png")
    args = parser.parse_args(arguments)
    devices = list(dict.fromkeys(name for name in args.devices.split(",") if name))
    if not devices or args.worst < 0:
        stop("--devices needs a device key, --worst a count")
    try:
        spec = read_spec(find_spec(None))
        committed = CommittedModules(spec, read_modules(spec))
        tables, missing = read_tables(args.tables, devices, committed)
        results = results_of(tables, devices, committed)
    except (InputError, ValueError) as error:
        stop(str(error))
    for line in [*missing, *lines(results, args.worst)]:
        print(line)
    if args.out:
        try:
            args.out.mkdir(parents=True, exist_ok=True)
            print("wrote", *tuned_plots.draw(results.tables, args.out))
        except ImportError:
            print("no plots: matplotlib is not installed")
        except OSError as error:
            stop(f"{args.out}: cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
    Modules,
    Slowdowns,
    TimedTable,
    chosen_by,
    compare_tables,
    entries,
    groups,
    launch_config,
    read_timed_table,
    single_best,
    summary,
)
from treegen.core.errors import InputError
from treegen.core.spec import Config, Spec
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


def read_tables(root: Path, devices: Sequence[str], spec: Spec) -> tuple[Tables, list[str]]:
    """The tables that exist, and a line for each that does not. Raises InputError."""
    tables, missing = {}, []
    for device in devices:
        for name, pattern in SETS.items():
            folder = root / pattern.format(device)
            if name == "tuned" or folder.is_dir():
                tables[device, name] = read_timed_table(folder, device, name, spec)
            else:
                missing.append(f"no table {folder}: left out")
    return tables, missing


def scenario_set(table: TimedTable) -> object:
    """The set that a table was measured on, with its digest."""
    return table.problem.table.provenance.get("scenario_set")


def table_scores(table: TimedTable, single: Config, modules: Modules) -> TableScores:
    """Score all choices by one table. Raises InputError for a device without a module."""
    source = table.problem.table
    always = (single,) * len(table.problem.scenarios)
    chosen = {"chosen": chosen_by(table.device, table, modules), "single": always}
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


HEAD = f"{'geomean':>7} {'95%':>6} {'max':>6} {'untimed':>7}"


def lines(
    tables: Tables, scores: Sequence[TableScores], devices: Sequence[str], modules: Modules, worst: int
) -> list[str]:
    """All lines. worst: how many of the worst choices of a table to list.

    Raises InputError for a device without a module, and ValueError for tables that contradict each other.
    """
    printed = [
        "Slowdown: time over the best time measured in a scenario. untimed: scenarios in which the choice",
        "has no time in the table; they count in no other column.",
    ]
    for one in scores:
        printed += table_lines(one, worst)
    for pair in combinations(devices, 2):
        for name in SETS:
            first, second = (tables.get((device, name)) for device in pair)
            if first and second and scenario_set(first) == scenario_set(second):
                printed += device_lines(first, second, modules)
    return printed


def cells(ratios: Slowdowns) -> str:
    mean, p95, most = figure(ratios.geomean, ".3f"), figure(ratios.p95, ".3f"), figure(ratios.most, ".2f")
    return f"{mean:>7} {p95:>6} {most:>6} {ratios.untimed or '-':>7}"


def row(label: str, ratios: Slowdowns) -> str:
    return f"{label:58} {cells(ratios)}"


def table_lines(scores: TableScores, worst: int) -> list[str]:
    run = scores.run
    versions = ", ".join(f"{name} {run[name]}" for name in ("torch", "triton", "driver") if name in run)
    lines = [
        "",
        f"{scores.device}, {scores.set}: {scores.folder}",
        f"{run['device']['name']}, {str(run.get('date', ''))[:10]}, {versions}",
        f"{'':31}" + " ".join(f"| {title:29}" for title in CHOICES.values()),
        f"{'':24}{'number':>6} " + " ".join(f"| {HEAD}" for _ in CHOICES),
    ]
    for group, figures in scores.figures.items():
        count = figures["chosen"].scenarios
        lines.append(f"{group:24}{count:6} " + " ".join(f"| {cells(figures[name])}" for name in CHOICES))
    lines.append(f"single best: {scores.single}")
    chosen = [(entry, *entry["choices"]["chosen"]) for entry in scores.scenarios]
    untimed = Counter(config for _, config, time in chosen if time is None)
    lines += [f"chosen but untimed: {config} ({count})" for config, count in untimed.most_common()]
    timed = [(time / entry["best"][1], time, config, entry) for entry, config, time in chosen if time]
    ranked = sorted(timed, key=lambda one: -one[0])[:worst]
    return lines + (["worst choices:", *(worst_line(*one) for one in ranked)] if ranked else [])


def worst_line(slowdown: float, time: float, config: str, entry: Mapping[str, Any]) -> str:
    best, least = entry["best"]
    return f"  {slowdown:6.2f} {entry['id']:42} {config} {time:.1f} us, {best} {least:.1f} us"


def device_lines(first: TimedTable, second: TimedTable, modules: Modules) -> list[str]:
    """Two devices in scenarios of one set: their best configs, and each one's module on the other."""
    best = compare_tables(first, second)
    lines = [
        "",
        f"{first.device} and {second.device}, {first.set}: of the cells that both timed, the best config "
        f"differs in {best.differ} of {best.scenarios} scenarios",
        f"{'':58} {HEAD}",
        row(f"best of {first.device} on {second.device}", best.first_on_second),
        row(f"best of {second.device} on {first.device}", best.second_on_first),
    ]
    for here, there in ((first, second), (second, first)):
        own, other = (chosen_by(table.device, here, modules) for table in (here, there))
        differ = sum(a != b for a, b in zip(own, other, strict=True))
        label = f"module of {there.device} on {here.device} (other choice in {differ})"
        lines.append(row(label, summary(here.times_of(other) / here.best)))
    return lines


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
    add("--out", type=Path, help="folder for a plot of each device, tuned_DEVICE.png")
    args = parser.parse_args(arguments)
    devices = list(dict.fromkeys(name for name in args.devices.split(",") if name))
    if not devices or args.worst < 0:
        stop("--devices needs a device key, --worst a count")
    try:
        spec = read_spec(find_spec(None))
        modules = read_modules(spec)
        tables, missing = read_tables(args.tables, devices, spec)
        singles = {device: single_best(tables[device, "tuned"]) for device in devices}
        scores = [table_scores(table, singles[table.device], modules) for table in tables.values()]
        print("\n".join([*missing, *lines(tables, scores, devices, modules, args.worst)]))
    except (InputError, ValueError) as error:
        stop(str(error))
    if args.out:
        try:
            args.out.mkdir(parents=True, exist_ok=True)
            print("wrote", *tuned_plots.draw(scores, args.out))
        except ImportError:
            print("no plots: matplotlib is not installed")
        except OSError as error:
            stop(f"{args.out}: cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

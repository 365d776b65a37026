"""Score the choices of the generated modules by measured tables, without a GPU.

    python -m benchmarks.trees.tuned --out results/

For each device it reads the table that its module is compiled from, and the full sweep of models that were
not tuned (`other_models_DEVICE`); of `mixed_attention`, also the sweep of steps that were not tuned. Where a
table has scenarios that the other device's lacks, those that both have are scored by themselves, too.
`treegen eval` scores fresh fits on held-out scenarios; this scores the committed modules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common.environment import parser_of, pyplot_or_stop, stop
from treegen.core.errors import InputError
from treegen.core.launches import ABSENT
from treegen.core.problem import Problem, common_rows
from treegen.core.spec import Spec
from treegen.crossval.score import Ints, Score
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import find_spec, read_spec
from treegen.write.modules import Module, ModuleKey, read_modules

KERNEL = "unified_attention"
DEVICES = ("nvidia_h100", "nvidia_h200")
SETS = {"tuned": "{}", "other models": "other_models_{}"}  # folders of a device
MIXED = "mixed_attention"
MIXED_TABLES = {
    "nvidia_h100": "nvidia_h100",
    "nvidia_h200": "nvidia_h200",
    "untuned_nvidia_h200": "nvidia_h200",
}
KINDS = ("decode", "spec", "mixed", "chunk", "prefill")
# Colours that colour-blind readers tell apart (Okabe and Ito), and a marker each.
STYLES = {
    "single": ("single best config", "#e69f00", "^"),
    "chosen": ("chosen by the generated module", "#0072b2", "o"),
}
HEAD = f"{'geomean':>7} {'95%':>6} {'max':>6} {'untimed':>7}"
WORST = 5  # choices of a table that are listed
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TimedTable:
    """A table, and the slowdowns of what is chosen in its scenarios."""

    device: str
    set: str
    problem: Problem
    times: Floats  # [scenarios, configs] median microseconds; NaN where untimed or failed
    single: int  # the column of the single best config of the device's tuned table
    chosen: Ints  # [scenarios] the columns that the device's module chooses

    @property
    def best(self) -> Floats:
        """[scenarios] the best time."""
        return np.asarray(np.nanmin(self.times, axis=1))

    def slowdowns(self, columns: Ints | int) -> Floats:
        """[scenarios] the times of choices over the best ones; NaN where a choice is untimed."""
        times = self.times[np.arange(len(self.times)), columns]
        return np.where(np.equal(columns, ABSENT), np.nan, times / self.best)

    @property
    def ways(self) -> dict[str, Floats]:
        """[scenarios] the slowdowns of what is chosen, and of the single best config."""
        return {"chosen": self.slowdowns(self.chosen), "single": self.slowdowns(self.single)}

    @property
    def kinds(self) -> npt.NDArray[np.str_]:
        """[scenarios] the kind that an id names, as in `serving0-decode_even-02-h32.8.128-p16`."""
        return np.array([id.split("-")[1].split("_")[0] for id in self.problem.scenarios])


def single_best(times: Floats) -> int:
    """The config of least geometric mean slowdown; an untimed config scores as 4x slower than the best.

    `treegen eval` scores it as 2x slower. In these sparse tables, a config with few times would then win.
    """
    logs = np.log(times / np.nanmin(times, axis=1)[:, None])
    return int(np.where(np.isnan(logs), math.log(4), logs).sum(axis=0).argmin())


def best_of_each(ones: Floats, twos: Floats) -> tuple[Floats, Floats, int, int]:
    """Two devices' best configs in the same scenarios, by the cells that both timed.

    Returns [scenarios] the slowdowns of the first one's best configs on the second, and of the second one's
    on the first; in how many scenarios they differ; and how many scenarios there are.
    """
    both = ~np.isnan(ones) & ~np.isnan(twos)
    some = both.any(axis=1)
    ones, twos = (np.where(both, times, np.inf)[some] for times in (ones, twos))
    rows, best_one, best_two = np.arange(len(ones)), ones.argmin(axis=1), twos.argmin(axis=1)
    on_second, on_first = twos[rows, best_one] / twos.min(axis=1), ones[rows, best_two] / ones.min(axis=1)
    return on_second, on_first, int((best_one != best_two).sum()), len(ones)


def read_tables(spec: Spec, modules: dict[ModuleKey, Module]) -> dict[tuple[str, str], TimedTable]:
    """The tables by device and set. Raises InputError."""
    tables, kernel = {}, spec.kernels[KERNEL]
    for device in DEVICES:
        for name, pattern in SETS.items():
            table = read_table(Path("tuning_data", KERNEL, pattern.format(device)))
            problem = build_problem(kernel, spec.devices[device], table)
            times = np.where(np.isfinite(problem.times()), problem.times(), np.nan)
            if name == "tuned":
                single = problem.configs[single_best(times)]
            chosen = Score.of(problem, modules[KERNEL, device].heuristic).columns
            column = problem.configs.index(single)
            tables[device, name] = TimedTable(device, name, problem, times, column, chosen)
    return tables


def cells(slowdowns: Floats) -> str:
    """The figures of HEAD; NaN is untimed, and is in no other figure."""
    timed = slowdowns[~np.isnan(slowdowns)]
    untimed = len(slowdowns) - len(timed) or "-"
    if not timed.size:
        return f"{'-':>7} {'-':>6} {'-':>6} {untimed:>7}"
    mean = np.exp(np.log(timed).mean())
    return f"{mean:7.3f} {np.percentile(timed, 95):6.3f} {timed.max():6.2f} {untimed:>7}"


def table_lines(table: TimedTable, rows: Ints, which: str = "") -> list[str]:
    """The slowdowns in rows of a table by kind, and the worst choices there; `which` names the rows."""
    run, ids = table.problem.table.provenance, table.problem.scenarios
    ways = {name: slowdowns[rows] for name, slowdowns in table.ways.items()}
    names = [table.problem.table.configs[column].id for column in table.problem.table_columns]
    versions = ", ".join(f"{name} {run[name]}" for name in ("torch", "triton", "driver"))
    lines = [
        "",
        f"{table.device}, {table.set}: {table.problem.table.folder.as_posix()}{which}",
        f"{run['device']['name']}, {str(run['date'])[:10]}, {versions}",
        f"{'':31}" + " ".join(f"| {title:29}" for title in ("chosen", "single best")),
        f"{'':24}{'number':>6} " + " ".join(f"| {HEAD}" for _ in ways),
    ]
    kinds = table.kinds[rows]
    groups = {"all": kinds != ""} | {f"kind {kind}": kinds == kind for kind in KINDS}
    for group, inside in groups.items():
        figures = (cells(slowdowns[inside]) for slowdowns in ways.values())
        lines.append(f"{group:24}{inside.sum():6} " + " ".join(f"| {text}" for text in figures))
    lines += [f"single best: {names[table.single]}", "worst choices:"]
    for row in rows[np.argsort(-ways["chosen"], kind="stable")[:WORST]]:
        times, columns = table.times[row], (table.chosen[row], np.nanargmin(table.times[row]))
        chosen, best = (f"{names[column]} {times[column]:.1f} us" for column in columns)
        lines.append(f"  {times[columns[0]] / times[columns[1]]:6.2f} {ids[row]:42} {chosen}, {best}")
    return lines


def mixed_lines(spec: Spec, modules: dict[ModuleKey, Module]) -> list[str]:
    """The slowdowns of the modules of `mixed_attention`. Raises InputError."""
    lines, kernel = ["", f"{MIXED + ', module in table':54}number {HEAD}"], spec.kernels[MIXED]
    for folder, device in MIXED_TABLES.items():
        problem = build_problem(kernel, spec.devices[device], read_table(Path("tuning_data", MIXED, folder)))
        times = np.where(np.isfinite(problem.times()), problem.times(), np.nan)
        chosen = Score.of(problem, modules[MIXED, device].heuristic).columns
        table = TimedTable(device, folder, problem, times, single_best(times), chosen)
        lines.append(f"{f'{device} in {folder}':54}{len(times):6} {cells(table.ways['chosen'])}")
    return lines


def device_lines(first: TimedTable, second: TimedTable, modules: dict[ModuleKey, Module]) -> list[str]:
    """Two devices in scenarios of one set: their best configs, and each one's module on the other."""
    here, there = common_rows(first.problem, second.problem)
    columns = [second.problem.configs.index(config) for config in first.problem.configs]
    on_second, on_first, differ, count = best_of_each(first.times[here], second.times[there][:, columns])
    lines = [
        "",
        f"{first.device} and {second.device}, {first.set}: of the cells that both timed, the best config "
        f"differs in {differ} of {count} scenarios",
        f"{'':58} {HEAD}",
        f"{f'best of {first.device} on {second.device}':58} {cells(on_second)}",
        f"{f'best of {second.device} on {first.device}':58} {cells(on_first)}",
    ]
    for one, other, rows in ((first, second, here), (second, first, there)):
        chosen = Score.of(one.problem, modules[KERNEL, other.device].heuristic).columns
        differ = int((chosen != one.chosen)[rows].sum())
        label = f"module of {other.device} on {one.device} (other choice in {differ})"
        lines.append(f"{label:58} {cells(one.slowdowns(chosen)[rows])}")
    return lines


def draw(tables: Sequence[TimedTable], path: Path) -> None:
    """The slowdowns in a device's tables."""
    pyplot = pyplot_or_stop()
    kinds, best = (np.concatenate([getattr(table, name) for table in tables]) for name in ("kinds", "best"))
    is_other = np.concatenate([[table.set != "tuned"] * len(table.best) for table in tables])
    order = np.lexsort((best, np.array([KINDS.index(kind) for kind in kinds])))
    figure, axes = pyplot.subplots(figsize=(12.3, 6))
    for name, (label, colour, marker) in STYLES.items():
        slowdowns = np.concatenate([table.ways[name] for table in tables])[order]
        for other, what in ((False, label), (True, f"{label}, other models")):
            rows = np.flatnonzero(is_other[order] == other)
            look: dict[str, Any] = {"s": 13, "alpha": 0.7, "edgecolors": "none", "zorder": 3}
            if other:
                look = {"s": 42, "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
            axes.scatter(rows, slowdowns[rows], color=colour, marker=marker, label=what, **look)
    axes.axhline(1.0, color="black", linewidth=1.4, zorder=2, label="best config measured")
    start = 0
    for kind in KINDS:
        end = start + int((kinds == kind).sum())
        at = ((start + end - 1) / 2, 1.015)
        centred = {"xycoords": ("data", "axes fraction"), "ha": "center", "fontsize": 10}
        axes.annotate(f"{kind}\n({end - start})", at, **centred)
        axes.axvline(end - 0.5, color="black", linewidth=0.7, alpha=0.35)
        start = end
    axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.set_yticks(ticks := (1, 1.1, 1.25, 1.5, 2, 3, 4), map(str, ticks))
    axes.set(ylabel="time / best time measured (log)", xlabel="scenarios, by kind and best time")
    axes.set(xlim=(-2, len(best) + 1), ylim=(0.95, None), xticks=[])
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.1), ncols=3, fontsize=9.5, frameon=False)
    means = ", ".join(
        f"{cells(table.ways['chosen']).split()[0]} in {len(table.best)} {table.set} scenarios"
        for table in tables
    )
    run = tables[0].problem.table.provenance
    title = f"{run['device']['name']}, {str(run['date'])[:10]}: geometric mean of time chosen / best {means}"
    figure.suptitle(title, x=0.07, y=0.975, ha="left", fontsize=11)
    figure.subplots_adjust(left=0.068, right=0.985, top=0.78, bottom=0.06)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all figures; a table or a module that cannot be read is wrong use, which exits with 2."""
    parser = parser_of(__doc__, "benchmarks.trees.tuned")
    parser.add_argument("--out", type=Path, help="folder for a plot of each device, tuned_DEVICE.png")
    args = parser.parse_args(arguments)
    try:
        spec = read_spec(find_spec(None))
        modules = read_modules(spec)
        tables = read_tables(spec, modules)
        mixed = mixed_lines(spec, modules)
    except InputError as error:
        stop(str(error))
    print("Slowdown: time over the best time measured in a scenario. untimed: scenarios in which the choice")
    print("has no time in the table; they count in no other column.")
    for (device, name), table in tables.items():
        print(*table_lines(table, np.arange(len(table.times))), sep="\n")
        for other in set(DEVICES) - {device}:
            rows, _ = common_rows(table.problem, tables[other, name].problem)
            if len(rows) < len(table.times):
                print(*table_lines(table, rows, f", scenarios that {other} has, too"), sep="\n")
    for name in SETS:
        first, second = (tables[device, name] for device in DEVICES)
        print(*device_lines(first, second, modules), sep="\n")
    print(*mixed, sep="\n")
    if args.out:
        for device in DEVICES:
            path = args.out / f"tuned_{device}.png"
            draw([tables[device, name] for name in SETS], path)
            print("wrote", path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

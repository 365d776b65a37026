"""Judge the generated modules by measured tables, without a GPU.

    python -m benchmarks.trees.tuned --out results/


Of each device it reads the table that its module is compiled from, and where there are such the full sweep of
scenarios that were not tuned (`untuned_DEVICE`) and a second run (`DEVICE_second`).
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from attn_kernels.choose.heuristic import choose_for_key
from attn_kernels.core.config import Config, complete
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.space.rules import fixed_choice
from benchmarks.common.environment import stop, write_atomically
from benchmarks.trees import tuned_lines, tuned_plots
from benchmarks.trees.judge import (
    Choice,
    Features,
    Measured,
    gap_closed,
    groups,
    judge,
    measured,
    single_best,
    summary,
)
from benchmarks.trees.judge_pairs import compare, cross
from benchmarks.trees.judge_search import best_of, optimism, portfolio_of, replay
from benchmarks.trees.tuned_results import CHOICES, Devices, Noise, Results, Search, Verdict
from treegen.core.errors import InputError
from treegen.core.table import Table

DEVICES = "nvidia_h100,nvidia_h200"
SETS = {"tuned": "{}", "untuned": "untuned_{}", "second run": "{}_second"}  # folders of a device
BUDGETS = (100.0, 150.0, 200.0, 250.0, 300.0)  # seconds of the replay's clock


@dataclass(frozen=True)
class Source:
    """A table as it was read."""

    device: str
    set: str
    table: Table
    scenarios: tuple[Measured, ...]


def module_choice(key: str) -> Choice:
    """What the generated module of this key chooses. Raises ValueError."""
    choose = choose_for_key(key)

    def chosen(features: Features) -> Config:
        return complete(choose(**features))

    return chosen


def read_sources(root: Path, devices: Sequence[str]) -> tuple[dict[tuple[str, str], Source], list[str]]:
    """The tables by device and set, and a line for each that is not there. Raises InputError."""
    found, missing = {}, []
    for device in devices:
        for name, pattern in SETS.items():
            folder = root / pattern.format(device)
            if name == "tuned" or folder.is_dir():
                found[device, name] = Source(device, name, *measured(folder))
            else:
                missing.append(f"no table {folder}: left out")
    return found, missing


def verdict(source: Source, single: Config) -> Verdict:
    choices: dict[str, Choice] = {
        "chosen": module_choice(source.device),
        "vllm": fixed_choice,
        "single": lambda features: single,
        "fallback": module_choice("default"),
    }
    judged = judge(source.scenarios, choices)
    figures = {
        group: {name: summary(entry.slowdown(name) for entry in own) for name in CHOICES}
        for group, own in groups(judged).items()
    }
    run = {name: value for name, value in source.table.provenance.items() if name != "configs"}
    gap = gap_closed(judged, "chosen", "single")
    folder = source.table.folder.as_posix()
    look = optimism(source.scenarios)
    return Verdict(source.device, source.set, folder, run, str(single), gap, look, figures, judged)


def search(tuned: Source, untuned: Source) -> Search | None:
    """None where the tuned table is not a run's of a named scenario set."""
    portfolio = portfolio_of(tuned.table, tuned.scenarios)
    course = tuned.table.provenance.get("summary", {})
    if portfolio is None or "cells_possible" not in course:
        return None
    return Search(
        tuned.device,
        course["seconds"],
        course["cells_measured"],
        course["cells_possible"],
        [str(config) for config in portfolio],
        best_of(portfolio, untuned.scenarios),
        replay(untuned.table.folder, BUDGETS),
    )


def results_of(sources: Mapping[tuple[str, str], Source], devices: Sequence[str]) -> Results:
    """Raises ValueError for a device without a module, TuningError for a sweep that cannot be replayed."""
    singles = {device: single_best(sources[device, "tuned"].scenarios) for device in devices}
    verdicts = [verdict(source, singles[source.device]) for source in sources.values()]
    pairs, noise, searches = [], [], []
    for first, second in combinations(devices, 2):
        for name in ("tuned", "untuned"):
            if (first, name) in sources and (second, name) in sources:
                one, other = sources[first, name].scenarios, sources[second, name].scenarios
                mine, theirs = module_choice(first), module_choice(second)
                crossed = cross(one, mine, theirs), cross(other, theirs, mine)
                pairs.append(Devices(first, second, name, compare(one, other), *crossed))
    for device in devices:
        tuned = sources[device, "tuned"]
        if again := sources.get((device, "second run")):
            timing = str(tuned.table.provenance["timing"]), str(again.table.provenance["timing"])
            noise.append(Noise(device, timing, compare(tuned.scenarios, again.scenarios)))
        if untuned := sources.get((device, "untuned")):
            searches.append(search(tuned, untuned))
    return Results(verdicts, pairs, noise, [found for found in searches if found])


def write(out: Path, results: Results) -> str:
    """Write tuned.json and draw it; says what is there now."""
    source = out / "tuned.json"
    write_atomically(source, json.dumps(dataclasses.asdict(results), indent=1, allow_nan=False) + "\n")
    try:
        return f"wrote {source} {' '.join(map(str, tuned_plots.draw(source)))}"
    except ImportError:
        return f"wrote {source}; no matplotlib, no plots; later: python -m benchmarks.trees.tuned_plots"


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
    add("--out", type=Path, help="folder for tuned.json and plots")
    args = parser.parse_args(arguments)
    devices = list(dict.fromkeys(name for name in args.devices.split(",") if name))
    if not devices or args.worst < 0:
        stop("--devices needs a device key, --worst a count")
    try:
        sources, missing = read_sources(args.tables, devices)
        results = results_of(sources, devices)
    except (InputError, TuningError, ValueError) as error:
        stop(str(error))
    for line in [*missing, *tuned_lines.lines(results, args.worst)]:
        print(line)
    if args.out:
        try:
            print(write(args.out, results))
        except OSError as error:
            stop(f"{args.out}: cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

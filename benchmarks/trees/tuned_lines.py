"""The printed lines of `benchmarks.trees.tuned`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.common.table import figure
from benchmarks.trees.compare_tables import CellSpread, TableComparison
from benchmarks.trees.score_choices import CHOICES, Slowdowns
from benchmarks.trees.search_loss import SearchLoss
from benchmarks.trees.tuned_results import DeviceComparison, RunComparison, TableScores, TunedResults

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
    for noise in results.noise:
        found += run_lines(noise)
    for search in results.searches:
        found += search_lines(search)
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
    gap = figure(scores.gap_closed, ".0%")
    found.append(f"single best: {scores.single}; gap to it that the chosen configs close: {gap}")
    if look := scores.optimism:
        found.append(
            f"second look: in the other repeat, a repeat's best config takes {look.second_look - 1:.2%} more "
            "than the best median: slowdowns are overstated by about that at most"
        )
    chosen = [(entry, *entry["choices"]["chosen"]) for entry in scores.scenarios]
    untimed = Counter(config for _, config, time in chosen if time is None)
    found += [f"chosen but untimed: {config} ({count})" for config, count in untimed.most_common()]
    timed = [(time / entry["best"][1], time, config, entry) for entry, config, time in chosen if time]
    ranked = sorted(timed, key=lambda one: -one[0])[:worst]
    return found + (["worst choices:", *(worst_line(*one) for one in ranked)] if ranked else [])


def worst_line(slowdown: float, time: float, config: str, entry: Mapping[str, Any]) -> str:
    best, least = entry["best"]
    return f"  {slowdown:6.2f} {entry['id']:42} {config} {time:.1f} us, {best} {least:.1f} us"


def spreads(pair: TableComparison) -> Iterable[tuple[str, CellSpread]]:
    named = (("all cells", pair.all), ("within 1.15 of the best", pair.near))
    return ((name, spread) for name, spread in named if spread)


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
    for name, spread in spreads(best):
        lines.append(f"{second} over {first}, {name} ({spread.cells}): median {spread.shift:.3f}")
    return lines


def run_lines(noise: RunComparison) -> list[str]:
    pair = noise.pair
    lines = ["", f"{noise.device}, two runs: relative difference of a cell's medians"]
    for name, spread in spreads(pair):
        percentiles = f"{spread.median:.1%} median, {spread.p90:.1%} 90%, {spread.p99:.1%} 99%"
        shift = f"second over first, median: {spread.shift:.4f}"
        lines.append(f"{name:24} {spread.cells:6} cells: {percentiles}; {shift}")
    lines += [
        f"the winner differs in {pair.differ} of {pair.scenarios} scenarios",
        f"{'':58} {HEAD}",
        row("winner of the first run, by the second", pair.first_on_second),
        row("    where the winner differs", pair.when_differ),
        row("winner of the second run, by the first", pair.second_on_first),
    ]
    if noise.timing[0] != noise.timing[1]:
        lines.append("the runs' timing rules differ: see `timing` in their run.yaml")
    return lines


def search_lines(search: SearchLoss) -> list[str]:
    share = search.cells_measured / search.cells_possible
    timed = f"{search.cells_measured} of {search.cells_possible} cells ({share:.0%})"
    races = [
        row(f"race replayed on the untuned sweep: {run.share:.0%} of its cells", run.lost)
        for run in search.replayed
    ]
    return [
        "",
        f"{search.device}, search: {timed} in {search.seconds:.0f} s",
        f"{'':58} {HEAD}",
        row(f"best of the {len(search.portfolio)} configs timed everywhere, untuned", search.lost),
        *races,
    ]

"""What `benchmarks.trees.tuned` prints."""

from collections import Counter
from collections.abc import Sequence

from benchmarks.common.table import figure
from benchmarks.trees.judge import Judged, Summary
from benchmarks.trees.judge_pairs import Crossing, Spread
from benchmarks.trees.tuned_results import CHOICES, Devices, Noise, Results, Search, Verdict

HEAD = f"{'geomean':>7} {'95%':>6} {'max':>6} {'untimed':>7}"


def lines(results: Results, worst: int) -> list[str]:
    found = [
        "Slowdown: time over the best time measured in a scenario. untimed: scenarios in which the choice",
        "has no time in the table; they count in no other column.",
    ]
    for verdict in results.tables:
        found += table(verdict, worst)
    for pair in results.devices:
        found += devices(pair)
    for noise in results.noise:
        found += two_runs(noise)
    for search in results.searches:
        found += searched(search)
    return found


def cells(own: Summary) -> str:
    mean, p95, most = figure(own.geomean, ".3f"), figure(own.p95, ".3f"), figure(own.most, ".2f")
    return f"{mean:>7} {p95:>6} {most:>6} {own.untimed or '-':>7}"


def table(verdict: Verdict, worst: int) -> list[str]:
    run = verdict.run
    versions = ", ".join(f"{name} {run[name]}" for name in ("torch", "triton", "driver") if name in run)
    found = [
        "",
        f"{verdict.device}, {verdict.set}: {verdict.folder}",
        f"{run['device']['name']}, {str(run.get('date', ''))[:10]}, {versions}",
        f"{'':31}" + " ".join(f"| {title:29}" for title in CHOICES.values()),
        f"{'':24}{'number':>6} " + " ".join(f"| {HEAD}" for _ in CHOICES),
    ]
    for group, figures in verdict.figures.items():
        count = figures["chosen"].scenarios
        found.append(f"{group:24}{count:6} " + " ".join(f"| {cells(figures[name])}" for name in CHOICES))
    found.append(
        f"single best: {verdict.single}; gap to it that the chosen configs close: "
        f"{figure(verdict.gap_closed, '.0%')}"
    )
    if look := verdict.optimism:
        found.append(
            f"second look: in the other repeat, what one repeat finds best takes {look.second_look - 1:.2%} "
            "more than the best median: slowdowns are overstated by about that at most"
        )
    return found + untimed(verdict.scenarios) + worst_of(verdict.scenarios, worst)


def untimed(judged: Sequence[Judged]) -> list[str]:
    """Which chosen configs have no time, and in how many scenarios."""
    counts = Counter(entry.choices["chosen"][0] for entry in judged if entry.slowdown("chosen") is None)
    return [f"chosen but untimed: {config} ({count})" for config, count in counts.most_common()]


def worst_of(judged: Sequence[Judged], count: int) -> list[str]:
    ranked = sorted(judged, key=lambda entry: -(entry.slowdown("chosen") or 0))[:count]
    found = []
    for entry in ranked:
        config, time = entry.choices["chosen"]
        if time is not None:
            best, least = entry.best
            slow = f"{time / least:6.2f} {entry.id:42}"
            found.append(f"  {slow} {config} {time:.1f} us, {best} {least:.1f} us")
    return ["worst choices:", *found] if found else []


def devices(pair: Devices) -> list[str]:
    best = pair.best
    found = [
        "",
        f"{pair.first} and {pair.second}, {pair.set}: of the cells that both timed, the best config differs "
        f"in {best.differ} of {best.scenarios} scenarios",
        f"{'':58} {HEAD}",
        f"{f'best of {pair.first} on {pair.second}':58} {cells(best.first_on_second)}",
        f"{f'best of {pair.second} on {pair.first}':58} {cells(best.second_on_first)}",
    ]
    for here, there, crossed in (
        (pair.first, pair.second, pair.on_first),
        (pair.second, pair.first, pair.on_second),
    ):
        found += crossing(here, there, crossed)
    for name, own in (("all cells", best.all), ("within 1.15 of the best", best.near)):
        if own:
            found.append(f"{pair.second} over {pair.first}, {name} ({own.cells}): median {own.shift:.3f}")
    return found


def crossing(here: str, there: str, crossed: Crossing) -> list[str]:
    return [
        f"{f'own module on {here}':58} {cells(crossed.own)}",
        f"{f'module of {there} on {here} (other choice in {crossed.differ})':58} {cells(crossed.other)}",
        f"{'    its time over that of the own module':58} {cells(crossed.other_over_own)}",
    ]


def two_runs(noise: Noise) -> list[str]:
    pair = noise.pair
    found = ["", f"{noise.device}, two runs: relative difference of a cell's medians"]
    for name, own in (("all cells", pair.all), ("within 1.15 of the best", pair.near)):
        if own:
            found.append(f"{name:24} {spread(own)}")
    found += [
        f"the winner differs in {pair.differ} of {pair.scenarios} scenarios",
        f"{'':58} {HEAD}",
        f"{'winner of the first run, by the second':58} {cells(pair.first_on_second)}",
        f"{'    where the winner differs':58} {cells(pair.when_differ)}",
        f"{'winner of the second run, by the first':58} {cells(pair.second_on_first)}",
    ]
    if noise.timing[0] != noise.timing[1]:
        found.append("the runs' timing rules differ: see `timing` in their run.yaml")
    return found


def spread(own: Spread) -> str:
    return (
        f"{own.cells:6} cells: {own.median:.1%} median, {own.p90:.1%} 90%, {own.p99:.1%} 99%; "
        f"second over first, median: {own.shift:.4f}"
    )


def searched(search: Search) -> list[str]:
    share = search.cells_measured / search.cells_possible
    found = [
        "",
        f"{search.device}, search: {search.cells_measured} of {search.cells_possible} cells ({share:.0%}) in "
        f"{search.seconds:.0f} s",
        f"{'':58} {HEAD}",
        f"{f'best of the {len(search.portfolio)} configs timed everywhere, untuned':58} {cells(search.lost)}",
    ]
    for run in search.replayed:
        label = f"race replayed on the untuned sweep: {run.share:.0%} of its cells"
        found.append(f"{label:58} {cells(run.lost)}")
    return found

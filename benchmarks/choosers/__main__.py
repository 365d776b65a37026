"""What is a way of choosing configs worth on models that it has not seen? All ways, on the committed tables.

    python -m benchmarks.choosers

docs/choosers.md describes the ways and the figures. Needs no GPU and no torch; `pip install --no-deps
helion==1.5.1` adds Helion.
"""

import argparse
import math
import platform
import sys
from collections.abc import Mapping, Sequence

import sklearn

from benchmarks.choosers.judge import AUTOTUNER, Figures, judge_numbered
from benchmarks.choosers.tables import CASES, Case, read
from benchmarks.choosers.ways import WAYS
from benchmarks.common.table import aligned, figure
from treegen.core.errors import InputError
from treegen.crossval.parallel import processes

LEGEND = """\
Slowdown: time of the launched config over the best time in the scenario, geometric mean.
no time: choices that the table did not time there; they count as 2x slower than the best, except in `worst`.
fell back: choices that failed or that a constraint forbids, and no choice; the kernel's fallback is launched.
beaten: over 1% slower than the one config that is best in the known scenarios.
choice, build: CPU time to choose for a model that was met before, and to learn."""

HEAD = ("mean", "95%", "worst", "no time", "fell back", "beaten", "to review", "choice", "bytes", "build")


def table(case: Case, figures_of_ways: Mapping[str, Figures | str]) -> list[str]:
    """The lines of a case, the best mean first."""
    seen, unseen = read(case)
    others = (
        "on groups of models left out in turn" if unseen is None else f"on {len(unseen.cost)} of other models"
    )
    title = f"{case.name}: {len(seen.configs)} configs, {len(seen.cost)} scenarios, judged {others}"
    order = sorted(figures_of_ways.items(), key=lambda pair: mean(pair[1]))
    rows = [[way, *cells(result)] for way, result in order if not isinstance(result, str)]
    left_out = [f"{way}: left out: {result}" for way, result in order if isinstance(result, str)]
    return ["", title, *aligned([["", *HEAD], *rows]), *left_out]


def cells(result: Figures) -> list[str]:
    """The figures of HEAD."""
    q = result.quality
    shares = (q.unmeasured / q.choices, result.fell_back, result.worse)
    return [
        *(figure(q.slowdown, ".3f"), figure(q.percentile95, ".2f"), figure(q.worst, ".2f")),
        *(f"{share:.0%}" if share else "-" for share in shares),
        *(f"{result.size:,} {result.unit}", scaled(result.nanoseconds, "ns us ms")),
        *(scaled(result.stored, "B KB MB"), "-" if result.seconds is None else f"{result.seconds:.2f} s"),
    ]


def scaled(value: float, units: str) -> str:
    """Three digits of a value in the first of these units, or in a thousand times as large ones."""
    unit, *larger = units.split(maxsplit=1)
    return scaled(value / 1000, larger[0]) if value >= 999.5 and larger else f"{value:.3g} {unit}"


def mean(result: Figures | str) -> float:
    return math.inf if isinstance(result, str) or result.quality.slowdown is None else result.quality.slowdown


def summary(cells_of_ways: Mapping[str, Sequence[Figures | str]]) -> list[str]:
    """A line per way, with its mean on each case."""
    rows = [["", *(case.name for case in CASES)]]
    for way, results in cells_of_ways.items():
        means = ("-" if math.isinf(mean(result)) else f"{mean(result):.3f}" for result in results)
        rows.append([way, *means])
    return ["", "Mean slowdowns on other models", *aligned(rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.choosers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args(arguments)
    ways = [*WAYS, AUTOTUNER]
    try:
        with processes(2) as parallel_map:
            tasks = [(way, number) for number in range(len(CASES)) for way in ways]
            figures = parallel_map("ways", judge_numbered, tasks)
        cells_of_ways = {way: figures[place :: len(ways)] for place, way in enumerate(ways)}
        print(LEGEND)
        for number, case in enumerate(CASES):
            print(*table(case, {way: rows[number] for way, rows in cells_of_ways.items()}), sep="\n")
        print(*summary(cells_of_ways), sep="\n")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\nPython {platform.python_version()}, scikit-learn {sklearn.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What is a way of choosing configs worth on models that it has not seen? All ways, on the committed tables.

    python -m benchmarks.choosers

Each way learns from a table and chooses in the scenarios of other models. docs/choosers.md describes the ways
and the figures. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean

import sklearn

from benchmarks.choosers.judge import AUTOTUNER, Figures, judge_numbered
from benchmarks.choosers.tables import CASES, Case, read
from benchmarks.choosers.ways import WAYS
from benchmarks.common.table import figure
from treegen.core.errors import InputError
from treegen.crossval.parallel import processes

LEGEND = """\
Slowdown: time of the launched config over the best time in the scenario, geometric mean.
no time: choices that the table did not time there; they count as 2x slower than the best, except in `worst`.
fell back: choices that failed or that a constraint forbids, and no choice; the kernel's fallback is launched.
beaten: over 1% slower than the one config that is best in the known scenarios.
choice, build: CPU time to choose for a model that was met before, and to learn."""

_HEAD = f"{'mean':>7}{'95%':>7}{'worst':>7}{'no time':>9}{'fell back':>11}{'beaten':>8}"
_HEAD += f"{'to review':>16}{'choice':>10}{'bytes':>9}{'build':>8}"


def table(case: Case, found: Mapping[str, Figures | str]) -> list[str]:
    """The lines of a case, the best mean first."""
    known, unseen = read(case)
    judged = unseen or known
    others = (
        "groups of models left out in turn" if unseen is None else f"on {len(judged.cost)} of other models"
    )
    lines = ["", f"{case.name}: {len(known.configs)} configs, {len(known.cost)} scenarios, judged {others}"]
    lines.append(f"{'':24}{_HEAD}")
    order = sorted(found, key=lambda way: _mean(found[way]))
    return lines + [f"{way:24}{row(found[way])}" for way in order]


def row(found: Figures | str) -> str:
    if isinstance(found, str):
        return f"  left out: {found}"
    q = found.quality
    text = f"{figure(q.slowdown, '.3f'):>7}{figure(q.percentile95, '.2f'):>7}{figure(q.worst, '.2f'):>7}"
    text += f"{share(q.unmeasured / q.choices):>9}{share(found.fell_back):>11}{share(found.worse):>8}"
    text += f"{found.size:>8,} {found.unit:7}{duration(found.nanoseconds):>10}{size(found.stored):>9}"
    return text + f"{'-' if found.seconds is None else f'{found.seconds:.2f} s':>8}"


def share(value: float) -> str:
    return f"{value:.0%}" if value else "-"


def duration(nanoseconds: float) -> str:
    """In ns, us or ms."""
    for unit, scale in (("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def size(count: int) -> str:
    """In bytes, KB or MB."""
    for unit, scale in (("MB", 10**6), ("KB", 1000)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"


def _mean(found: Figures | str) -> float:
    return math.inf if isinstance(found, str) or found.quality.slowdown is None else found.quality.slowdown


def summary(cases: Sequence[Case], found: Mapping[str, Sequence[Figures | str]]) -> list[str]:
    """A line a way: the mean of each case."""
    lines = ["", "Mean slowdowns on other models", f"{'':24}" + "".join(f"{case.name:>18}" for case in cases)]
    timed = {way: [_mean(one) for one in row if not isinstance(one, str)] for way, row in found.items()}
    for way in sorted(found, key=lambda way: fmean(timed[way] or [math.inf])):
        cells = ["-" if isinstance(one, str) else f"{_mean(one):.3f}" for one in found[way]]
        lines.append(f"{way:24}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.choosers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    jobs = parser.parse_args(arguments).jobs
    ways = [*WAYS, AUTOTUNER]
    try:
        with processes(max(1, jobs)) as parallel_map:
            tasks = [(way, number) for number in range(len(CASES)) for way in ways]
            figures = parallel_map("ways", judge_numbered, tasks)
        found = {way: figures[place :: len(ways)] for place, way in enumerate(ways)}
        print(LEGEND)
        for number, case in enumerate(CASES):
            print("\n".join(table(case, {way: rows[number] for way, rows in found.items()})))
        print("\n".join(summary(CASES, found)))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\nPython {platform.python_version()}, scikit-learn {sklearn.__version__}, {jobs} processes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

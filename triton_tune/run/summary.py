"""The result of a tuning run, for run.yaml and for the terminal."""

from collections.abc import Mapping
from statistics import quantiles

from triton_tune.core.problem import SearchProblem, Times

MOST_WINNERS = 8  # that are named


def summarise(problem: SearchProblem, times: Times, seconds: float, finished: bool) -> dict[str, object]:
    """run.yaml's `summary`.

    Noise is the relative difference between two repeats of a cell; median and percentiles over these cells.
    """
    failures = times.failures()
    summary: dict[str, object] = {
        "seconds": max(0.1, round(seconds, 1)),  # a table needs a number above 0
        "finished": finished,
        "scenarios": sum(bool(times.measured(scenario)) for scenario in problem.scenarios),
        "rows": times.num_visits,
        "cells_measured": times.num_measured(),
        "cells_possible": problem.possible,
        "cells_failed": sum(failures.values()),
        "failures": failures,
    }
    differences = times.differences()
    if len(differences) > 1:
        cuts = quantiles(differences, n=100, method="inclusive")
        for name, percent in (("noise_median", 50), ("noise_p90", 90), ("noise_p99", 99)):
            summary[name] = round(cuts[percent - 1], 5)
    return summary


def lines_of(summary: Mapping[str, object], problem: SearchProblem, times: Times) -> list[str]:
    """Describe the summary in lines for the terminal."""
    measured, possible = int(str(summary["cells_measured"])), int(str(summary["cells_possible"]))
    lines = [
        f"{summary['scenarios']} of {len(problem.scenarios)} scenarios, {summary['rows']} rows, "
        f"{measured} of {possible} cells ({measured / max(1, possible):.0%}), {summary['seconds']} s",
    ]
    if "noise_median" in summary:
        noise = (f"{float(str(summary[key])):.1%}" for key in ("noise_median", "noise_p90", "noise_p99"))
        lines.append("two repeats of a cell differ by {} (median), {} (90%), {} (99%)".format(*noise))
    wins: dict[str, int] = {}
    for scenario in problem.scenarios:
        medians = times.medians(scenario)
        if medians:
            config = min(medians, key=medians.__getitem__)
            winner = problem.variants[config] or config
            wins[winner] = wins.get(winner, 0) + 1
    ranked = sorted(wins.items(), key=lambda item: -item[1])[:MOST_WINNERS]
    if ranked:
        lines.append("fastest: " + ", ".join(f"{winner} in {count}" for winner, count in ranked))
    failures = times.failures()
    lines.append(f"failed cells: {sum(failures.values())}")
    lines += [f"  {count}: {reason}" for reason, count in sorted(failures.items(), key=lambda item: -item[1])]
    return lines

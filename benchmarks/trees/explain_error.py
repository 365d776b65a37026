"""How far the times that `treegen explain` predicts are from measured ones, and how often its ranges hold.

    python -m benchmarks.trees.explain_error

Leave-one-out: the time of each scenario, under the config that the device's committed module launches there,
is predicted from all other scenarios of the table, and so are the ratios of the runners-up. Then the
scenarios of a table that no tuning run saw, from the whole table. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from treegen.crossval.choices import decide
from treegen.read.build_problem import build_problem
from treegen.read.table_file import read_table
from treegen.review.explain.estimate import Figure, estimate
from treegen.review.explain.request import Request
from treegen.review.explain.space import space_of
from treegen.review.explain.subject import Subject, read_subject, subject_of

KERNEL = "unified_attention"
DEVICES = ("nvidia_h100", "nvidia_h200")
UNSEEN = "tuning_data/unified_attention/untuned_{device}"
TOP = 5  # runners-up, as `treegen explain` shows


@dataclass(frozen=True)
class Outcome:
    """A scenario. time: its prediction and the truth, None where either is missing; ratios: of runners-up."""

    scenario: str
    time: tuple[Figure, float] | None
    ratios: tuple[tuple[Figure, float], ...]


def main() -> None:
    """Print a line a device and kind of scenario."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", nargs="+", default=DEVICES)
    print(
        "error: |log(predicted / measured)|; held: measured ones within the range that is meant to hold 80%"
    )
    print(f"{'':46}     of  missing  median     90%    held  median range")
    for device in parser.parse_args().devices:
        subject = read_subject(Request(None, KERNEL, device, {}, TOP))
        left_out = list(_left_out(subject))
        _lines(f"{device}, left out", left_out)
        for kind in sorted({_kind(outcome) for outcome in left_out}):
            _line(f"{device}, left out, {kind}", [o.time for o in left_out if _kind(o) == kind])
        unseen = subject_of(
            subject.spec,
            subject.module,
            (),
            build_problem(
                subject.kernel, subject.problem.device, read_table(Path(UNSEEN.format(device=device)))
            ),
        )
        _lines(f"{device}, unseen", list(_predictions(subject, unseen, range(len(unseen.times)))))


def _left_out(subject: Subject) -> Iterator[Outcome]:
    every = np.arange(len(subject.times))
    for row in every:
        others = every[every != row]
        rest = replace(subject, problem=subject.problem.rows(others), times=subject.times[others])
        yield from _predictions(rest, subject, [int(row)])


def _predictions(known: Subject, judge: Subject, rows: Sequence[int]) -> Iterator[Outcome]:
    """Scenarios of `judge` as predicted from those of `known`."""
    space = space_of(known.problem)
    decisions = decide(known.module.tree, judge.problem.rows(np.array(rows)))
    for row, config in zip(rows, decisions, strict=True):
        values = dict(zip(judge.problem.names, judge.problem.features[row].tolist(), strict=True))
        scenario = judge.problem.scenarios[row]
        found = estimate(known, config, values, space.points, space.at(values), None)
        column = judge.column(config)
        truth = math.nan if column is None else float(judge.times[row, column])
        if found is None or math.isnan(truth):
            yield Outcome(scenario, None, ())
            continue
        ratios = []
        for runner in found.runners_up[:TOP]:
            other = judge.column(runner.config)
            if other is not None and np.isfinite(judge.times[row, other]):
                ratios.append((runner.ratio, float(judge.times[row, other]) / truth))
        yield Outcome(scenario, (found.time, truth), tuple(ratios))


def _kind(outcome: Outcome) -> str:
    """What the tuning run calls such batches: the second word of the id."""
    return outcome.scenario.split("-")[1]


def _lines(title: str, outcomes: Sequence[Outcome]) -> None:
    _line(title, [outcome.time for outcome in outcomes])
    _line(f"{title}, runners-up", [pair for outcome in outcomes for pair in outcome.ratios])


def _line(title: str, pairs: Sequence[tuple[Figure, float] | None]) -> None:
    known = [pair for pair in pairs if pair is not None]
    errors = [abs(math.log(figure.value / truth)) for figure, truth in known]
    held = np.mean([figure.low <= truth <= figure.high for figure, truth in known])
    width = np.median([figure.high / figure.value for figure, _ in known])
    print(
        f"{title:46}{len(pairs):7}{len(pairs) - len(known):9}{np.median(errors):8.3f}"
        f"{np.quantile(errors, 0.9):8.3f}{held:8.1%}      / and x {width:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

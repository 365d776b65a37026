"""Compare the times that `treegen explain` predicts with measured ones, and count how often its ranges hold.

    python -m benchmarks.trees.explain_error

Leave-one-out: each scenario is predicted from all other scenarios of the table. The figures are the time of
the config that the device's committed module launches, and the ratios of the runners-up. Then a table that no
tuning run saw is predicted from the whole table. Needs no GPU and no torch.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from treegen.crossval.choices import decisions_of
from treegen.read.build_problem import build_problem
from treegen.read.table_file import read_table
from treegen.review.explain.estimate import RangedValue, estimate
from treegen.review.explain.feature_space import feature_space
from treegen.review.explain.tuned_module import TunedModule, read_tuned_module, with_times

KERNEL = "unified_attention"
DEVICES = ("nvidia_h100", "nvidia_h200")
UNSEEN = "tuning_data/unified_attention/untuned_{device}"
TOP = 5  # runners-up, as `treegen explain` shows

Pair = tuple[RangedValue, float]
"""A prediction and the measured value."""


@dataclass(frozen=True)
class PredictedScenario:
    """The predictions for one scenario."""

    kind: str  # of batch: the second word of the scenario's id
    time: Pair | None  # None where the prediction or the measurement is missing
    ratios: tuple[Pair, ...] = ()  # of runners-up


def main() -> None:
    """Print a line for each device and kind of scenario."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", nargs="+", default=DEVICES)
    devices = parser.parse_args().devices
    print("error: |log(predicted / measured)|; held: measured ones within the range that should hold 80%")
    print(f"{'':46}     of  missing  median     90%    held  median range")
    for device in devices:
        tuned = read_tuned_module(None, KERNEL, device)
        left_out = [scenario for row in range(len(tuned.times)) for scenario in _left_out(tuned, row)]
        _print_lines(f"{device}, left out", left_out)
        for kind in sorted({scenario.kind for scenario in left_out}):
            _print_line(f"{device}, left out, {kind}", [f.time for f in left_out if f.kind == kind])
        table = read_table(Path(UNSEEN.format(device=device)))
        problem = build_problem(tuned.kernel, tuned.problem.device, table)
        unseen = with_times(tuned.spec, tuned.module, (), problem)
        _print_lines(f"{device}, unseen", list(_predictions(tuned, unseen, range(len(unseen.times)))))


def _left_out(tuned: TunedModule, row: int) -> Iterator[PredictedScenario]:
    others = np.delete(np.arange(len(tuned.times)), row)
    rest = replace(tuned, problem=tuned.problem.rows(others), times=tuned.times[others])
    yield from _predictions(rest, tuned, [row])


def _predictions(known: TunedModule, truth: TunedModule, rows: Sequence[int]) -> Iterator[PredictedScenario]:
    """Predict scenarios of `truth` from those of `known`."""
    space = feature_space(known.problem)
    decisions = decisions_of(known.module.tree, truth.problem.rows(np.array(rows)))
    for row, config in zip(rows, decisions, strict=True):
        values = dict(zip(truth.problem.names, truth.problem.features[row].tolist(), strict=True))
        kind = truth.problem.scenarios[row].split("-")[1]
        prediction = estimate(known, config, values, space.points, space.at(values), None)
        columns = {config: column for column, config in enumerate(truth.problem.configs)}
        time = float(truth.times[row, columns[config]]) if config in columns else math.nan
        if prediction is None or math.isnan(time):
            yield PredictedScenario(kind, None)
            continue
        ratios = [
            (runner.ratio, float(truth.times[row, columns[runner.config]]) / time)
            for runner in prediction.runners_up[:TOP]
            if runner.config in columns and np.isfinite(truth.times[row, columns[runner.config]])
        ]
        yield PredictedScenario(kind, (prediction.time, time), tuple(ratios))


def _print_lines(title: str, predictions: Sequence[PredictedScenario]) -> None:
    _print_line(title, [prediction.time for prediction in predictions])
    _print_line(f"{title}, runners-up", [pair for prediction in predictions for pair in prediction.ratios])


def _print_line(title: str, pairs: Sequence[Pair | None]) -> None:
    known = [pair for pair in pairs if pair is not None]
    errors = [abs(math.log(predicted.value / truth)) for predicted, truth in known]
    held = np.mean([predicted.low <= truth <= predicted.high for predicted, truth in known])
    width = np.median([predicted.high / predicted.value for predicted, _ in known])
    print(
        f"{title:46}{len(pairs):7}{len(pairs) - len(known):9}{np.median(errors):8.3f}"
        f"{np.quantile(errors, 0.9):8.3f}{held:8.1%}      / and x {width:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

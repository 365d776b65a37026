"""Which recorded batches lie outside of what a table measured."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attn_kernels.measure.batches import Batch
from attn_kernels.tuning.likeness import ATTENTION
from attn_kernels.tuning.scenarios.scenario import Scenario
from triton_tune.core.errors import TuningError
from tuning_table import read_run

MOST_LINES = 20
Features = Callable[[Batch], Mapping[str, int]]


def outside(counts: Mapping[Scenario, int], table: Path, features_of: Features) -> list[str]:
    """Lines about the batches outside of a table, the most frequent first.

    A batch lies outside if no scenario of the table has its shape: heads, head size, page size, size of a
    cache's element. It also does if a length is below or above those of all scenarios of its shape.

    Args:
        counts: how often each batch was planned.
        features_of: the features of the table's kernel, of a batch.

    Raises:
        TuningError: a table of other features.
        TableError: a table that cannot be read.
    """
    run = read_run(table)
    ranges: dict[tuple[int, ...], dict[str, tuple[int, int]]] = {}
    for values in run.scenarios.values():
        row = dict(zip(run.header.features, values, strict=True))
        of_shape = ranges.setdefault(_shape(row), {})
        for name, value in row.items():
            low, high = of_shape.get(name, (value, value))
            of_shape[name] = min(low, value), max(high, value)

    found: list[tuple[int, Scenario, str]] = []
    for scenario, count in counts.items():
        features = features_of(scenario.batch)
        if tuple(features) != tuple(run.header.features):
            raise TuningError(
                f"{table}: a table of other features; name one of the kernel that --kernel names"
            )
        why = _why(features, ranges.get(_shape(features)))
        if why:
            found.append((count, scenario, why))
    found.sort(key=lambda entry: -entry[0])
    total, lost = sum(counts.values()), sum(count for count, _, _ in found)
    lines = [
        f"{lost} of {total} plans ({100 * lost / total:.1f}%), {len(found)} of {len(counts)} recorded "
        f"batches, lie outside of {table}"
    ]
    lines += [f"{count:10} plans  {scenario.id}: {why}" for count, scenario, why in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        lines.append(f"and {len(found) - MOST_LINES} batches more")
    return lines


def _shape(features: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(features[name] for name in ATTENTION.shape)


def _why(features: Mapping[str, int], ranges: Mapping[str, tuple[int, int]] | None) -> str:
    """The reason why a batch lies outside; empty if it does not."""
    if ranges is None:
        return "no scenario has " + ", ".join(f"{name}={features[name]}" for name in ATTENTION.shape)
    beyond = [
        f"{name}={features[name]}, but {low} to {high} was measured"
        for name, (low, high) in ranges.items()
        if not low <= features[name] <= high
    ]
    return "; ".join(beyond)

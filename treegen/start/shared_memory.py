"""A constraint on shared memory, found in the failures of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuning_table import read_run
from tuning_table.table import TOO_LARGE, Failure

Floats = npt.NDArray[np.float64]
_REASON = re.compile(f"{TOO_LARGE}: shared memory, ([0-9]+) of ([0-9]+)")
_OF_LAUNCH = ("num_warps", "num_ctas", "maxnreg")  # Triton's options, which are no sizes of tiles
_STAGES = "num_stages"
_LARGEST = 1 << 40  # bytes per block, beyond which a formula is none of shared memory


def shared_memory_constraint(tables: Sequence[tuple[Path, int]], features: Sequence[str]) -> str | None:
    """The condition that all configs break which failed for lack of shared memory, and none that worked.

    Tiles of two operands or one, times stages, as Triton buffers what a loop loads. Of formulas that tell
    apart what failed and what worked, the one that is nearest to proportional to the bytes in failures.csv.

    Args:
        tables: folders, with the bytes that a block has on the device.
        features: integers that may decide, too, where parameters alone do not.
    """
    values: list[Mapping[str, int]] = []  # of parameters and features, by cell
    bytes_of: list[tuple[float, float]] = []  # that Triton asked for, NaN where the config worked; the limit
    for folder, limit in tables:
        run = read_run(folder)
        parameters = {config.id: config.parameters for config in run.header.configs}
        for visit in run.visits:
            row = dict(zip(run.header.features, run.scenarios[visit.scenario], strict=True))
            for config, cell in visit.cells.items():
                match = _REASON.match(cell.reason) if isinstance(cell, Failure) else None
                if match or not isinstance(cell, Failure):
                    values.append({**row, **parameters[config]})
                    bytes_of.append((float(match[1]) if match else np.nan, limit))
    needed, limits = np.array(bytes_of).reshape(-1, 2).T
    if np.isnan(needed).all():
        return None
    sizes = [name for name in parameters[config] if name not in (*_OF_LAUNCH, _STAGES)]
    return _best(values, needed, limits, sizes) or _best(values, needed, limits, [*sizes, *features])


def _best(
    values: Sequence[Mapping[str, int]], needed: Floats, limit: Floats, names: Sequence[str]
) -> str | None:
    """The formula over these names with the least spread of the bytes of an element."""
    if any(name not in own for own in values for name in names):
        return None
    columns = {name: np.array([own.get(name, 1) for own in values], float) for name in (*names, _STAGES)}
    staged = all(_STAGES in own for own in values)
    failed = ~np.isnan(needed)
    formulas: list[tuple[float, str]] = []
    for text, elements in _formulas(columns, names, staged=staged):
        if elements.max() > _LARGEST or elements.min() < 1:
            continue
        least = (limit[failed] / elements[failed]).max()  # bytes of an element: more than this
        most = (limit[~failed] / elements[~failed]).min(initial=np.inf)  # and at most this
        each = needed[failed] / elements[failed]
        size = min(int(np.median(each)), int(min(most, _LARGEST)))
        if size <= least:
            size = int(least) + 1
        if least < size <= most:
            factor = "" if size == 1 else f"{size} * "
            formulas.append((float(np.ptp(np.log(each))), f"{factor}{text} <= shared_memory"))
    return min(formulas, key=lambda one: one[0])[1] if formulas else None


def _formulas(
    columns: Mapping[str, Floats], names: Sequence[str], *, staged: bool
) -> Iterator[tuple[str, Floats]]:
    """Numbers of elements: of two tiles with a side in common, of one tile; of each stage, of all but one."""
    tiles = []
    for a, b in combinations(names, 2):
        for k in (name for name in names if name not in (a, b)):
            tiles.append((f"({a} + {b}) * {k}", (columns[a] + columns[b]) * columns[k]))
    tiles += [(f"{a} * {b}", columns[a] * columns[b]) for a, b in combinations(names, 2)]
    tiles += [(name, columns[name]) for name in names]
    for text, elements in tiles:
        if staged:
            stages = columns[_STAGES]
            yield f"{text} * {_STAGES}", elements * stages
            yield f"{text} * max(1, {_STAGES} - 1)", elements * np.maximum(1, stages - 1)
        yield text, elements

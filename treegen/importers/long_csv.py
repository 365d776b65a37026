"""Import a long CSV file: one row per measurement, with columns of features, of parameters and of the time.

A second row of the same shape and config is its second repeat. An empty time is no measurement, and `inf` a
failure. Parameters that are texts, such as the names of algorithms, make the variant of a config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    UNITS_TO_US,
    ImportOptions,
    Measurement,
    Measurements,
    read_csv,
    time_of,
    value_of,
)
from tuning_table.names import is_variant


def read(source: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The measurements of one CSV file. Raises InputError."""
    if not options.features or options.time is None:
        what = "which columns are the features and which is the time: --features M,N,K --time time_us"
        raise InputError(source, f"a CSV file does not say {what}")
    unit = options.unit or options.time.rpartition("_")[2]
    if unit not in UNITS_TO_US:
        units = " or ".join(UNITS_TO_US)
        raise InputError(source, f"column {shown(options.time)} does not end in a unit; give --unit {units}")
    rows = read_csv(source, (*options.features, *options.parameters, options.time))
    others = [name for name in rows[0] if name not in (*options.features, options.time)]
    columns = options.parameters or others
    if not columns:
        raise InputError(source, "has no column of parameters beside the features and the time")
    timed = [(line, row) for line, row in enumerate(rows, 2) if row[options.time]]
    if not timed:
        raise InputError(source, f"holds no time in the column {options.time}")
    words = [name for name in columns if name != "variant" and _is_text([row[name] for _, row in timed])]
    words = ["variant", *words] if "variant" in rows[0] else words
    variants = _variants(source, dict.fromkeys(tuple(row[name] for name in words) for _, row in timed))
    measurements = tuple(
        Measurement(
            {name: _value(source, line, row, name) for name in options.features},
            {name: _value(source, line, row, name) for name in columns if name not in words},
            _time(source, line, row[options.time], unit),
            variants[tuple(row[name] for name in words)],
        )
        for line, row in timed
    )
    if options.kernel is None:
        raise InputError(source, "a CSV file does not name the kernel; name it with --kernel NAME")
    device, timing = options.needed_device(source, "a CSV file"), f"column {options.time} in {unit}"
    origin = {"tool": "CSV"}
    yield Measurements(source, options.kernel, device, measurements, origin, Cells.MEASURED, timing, notes="")


def _is_text(cells: Sequence[str]) -> bool:
    """Return whether a column holds different texts."""
    return len(set(cells)) > 1 and all(isinstance(value_of(cell), str) for cell in cells)


def _variants(source: Path, words: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str | None]:
    """The variant that each combination of texts becomes: `("Radix-Sort", "row")` is `radix_sort_row`."""
    found: dict[tuple[str, ...], str | None] = {}
    for texts in words:
        variant = re.sub("[^a-z0-9]+", "_", " ".join(texts).lower()).strip("_") if texts else None
        if variant is not None and not is_variant(variant):
            raise InputError(source, f"has the variant {shown(' '.join(texts))}, which begins with no letter")
        if variant in found.values():
            raise InputError(source, f"has two texts that would be the variant {shown(variant)}")
        found[texts] = variant
    return found


def _value(source: Path, line: int, row: Mapping[str, str], name: str) -> int | float | str | None:
    if not row[name]:
        raise InputError(source, f"the cell of {name} is empty", line=line)
    return value_of(row[name])


def _time(source: Path, line: int, text: str, unit: str) -> float:
    if (time := time_of(source, text, unit, line)) <= 0:
        raise InputError(source, f"the time {shown(text)} is not above 0; a failure is inf", line=line)
    return time

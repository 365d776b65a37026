"""Import the measurements of Helion's ahead-of-time tuning (https://github.com/pytorch/helion, version 1.5).

`helion.autotuner.aot_runner` writes `measurements_<hardware>.csv`: one row for each shape and config, with
the shape's features and the config as JSON, and the time in milliseconds. The file does not name the GPU;
its name holds Helion's id of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    check_nesting,
    files_of,
    flattened,
    microseconds,
    read_csv,
)
from treegen.importers.tables import merged

TOOL = "Helion"
_COLUMNS = ("kernel_name", "config", "shape_features", "timing_ms")
_PREFIX = "measurements_"
_NOTES = """\
Imported by `treegen import helion`, not measured by this project.
The source does not say which versions of Helion, Triton and the driver were used."""


def read_helion(source: Path, options: ImportOptions) -> list[Measurements]:
    """The times of every measurements_*.csv at or below `source`, by kernel. Raises InputError."""
    return merged(
        part for path in files_of(source, f"{_PREFIX}*.csv", TOOL) for part in _read_file(path, options)
    )


def _read_file(path: Path, options: ImportOptions) -> list[Measurements]:
    device = options.device
    if device is None and path.stem.startswith(_PREFIX):
        device = path.stem.removeprefix(_PREFIX)
    rows: dict[str, list[Measurement]] = {}
    for line, row in enumerate(read_csv(path, _COLUMNS, TOOL), 2):
        shape, config = (_json_cell(path, line, row, name) for name in ("shape_features", "config"))
        try:
            time = microseconds(path, float(row["timing_ms"]), "ms", line)
        except ValueError:
            raise InputError(path, f"timing_ms is {shown(row['timing_ms'])}, no number", line=line) from None
        rows.setdefault(row["kernel_name"], []).append(Measurement(shape, config, time))
    device = device or options.needed_device(path, "this name of a file")
    return [
        Measurements(
            TOOL,
            path,
            kernel,
            device,
            Cells.MEASURED,
            tuple(found),
            "Helion's do_bench",
            _NOTES,
            {"tool": TOOL},
        )
        for kernel, found in rows.items()
    ]


def _json_cell(path: Path, line: int, row: Mapping[str, str], name: str) -> dict[str, Value]:
    try:
        content = json.loads(row[name])
        check_nesting(content)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(path, f"{name} is {shown(row[name])}, no JSON object", line=line)
    return {key: plain for part, value in content.items() for key, plain in flattened(part, value).items()}

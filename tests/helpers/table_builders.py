"""A small table of a run, for the tests of writing tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import contents as contents

import tuning_table
from tuning_table import Failure, TableError, TableWriter
from tuning_table.table import Visit


def config(name: str, **parameters: int) -> dict[str, str | int]:
    return {"id": name, "variant": "qblock", "block_m": 16, "num_warps": 4, **parameters}


# The arguments of `create`.
RUN: Mapping[str, Any] = {
    "kernel": "attention",
    "device": {
        "name": "NVIDIA H100 80GB HBM3",
        "arch": "sm_90",
        "multiprocessors": 132,
        "cache_bytes": 52428800,
    },
    "timing": "graph replay, cold L2: median of 3",
    "driver": "550.54",
    "torch": "2.11",
    "triton": "3.6.0",
    "source_hash": "0" * 64,
    "date": "2026-01-02",
    "scenario_set": "serving (digest 12ab)",
    "seed": 0,
    "strategy": "full",
    "features": ("num_seqs", "max_seq_len"),
    "configs": (config("M16"), config("M32", block_m=32), config("M64", block_m=64)),
    "scenarios": {"decode-0": (1, 2048), "prefill-0": (512, 512), "mixed-0": (7, -1)},
}
VISITS = (
    Visit(
        "prefill-0", 1, {"M16": 706.34, "M32": Failure("OutOfResources: shared memory, 300000"), "M64": 17.8}
    ),
    Visit("decode-0", 1, {"M16": 5.1234}),
    Visit("decode-0", 2, {"M16": 5.1, "M64": Failure('wrong: "nan"\nat [0, 1]')}),
)


def start(folder: Path, **changes: Any) -> TableWriter:
    return tuning_table.create(folder, **{**RUN, **changes})


def append(table: TableWriter, visit: Visit) -> None:
    table.append(visit.scenario, visit.cells, visit.repeat)


def filled(folder: Path, *visits: Visit, **changes: Any) -> Path:
    with start(folder, **changes) as table:
        for visit in visits or VISITS:
            append(table, visit)
    return folder


def refusal(folder: Path, **changes: Any) -> str:
    """The one line with which writing into `folder` is refused; nothing may change."""
    before = contents(folder)
    with pytest.raises(TableError) as caught:
        start(folder, **changes)
    assert contents(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def error_of_reading(folder: Path) -> str:
    with pytest.raises(TableError) as caught:
        tuning_table.read(folder)
    return str(caught.value)

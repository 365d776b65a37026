"""The committed tables can be read, and the imported one is the published one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from treegen_builders import REPOSITORY

from treegen.core.names import device_key
from treegen.core.table import Cells, median_times
from treegen.read.table_file import read_table

FOLDER = REPOSITORY / "tuning_data/kernel_unified_attention_2d"


def test_the_imported_table() -> None:
    table = read_table(FOLDER / "amd_mi300x")
    assert table.device_name == "AMD Instinct MI300X"
    assert (table.kernel, table.cells) == ("kernel_unified_attention_2d", Cells.WINNERS)
    assert (len(table.scenarios), len(table.configs)) == (89, 6)
    times = median_times(table)
    assert (np.isfinite(times).sum(axis=1) == 1).all() and np.isfinite(times).any(axis=0).all()
    origin = table.provenance["origin"]
    assert origin["licence"] == "Apache-2.0" and "arXiv 2511.11581" in origin["published_by"]
    assert origin["evaluated_configs"] == 540


JUDGES = ("untuned", "untuned_options", "other_heads")
TABLES = sorted({path.parent for path in (REPOSITORY / "tuning_data").rglob("run.yaml")})


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_committed_table_can_be_read(folder: Path) -> None:
    table = read_table(folder)
    key = device_key(table.device_name)
    assert table.kernel == folder.parent.name
    assert folder.name in (key, f"{key}_second", *(f"{name}_{key}" for name in JUDGES))

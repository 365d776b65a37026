"""The committed tables are the published ones: two GPUs, 89 scenarios each, winners only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from treegen_builders import REPOSITORY

from treegen.names import device_key
from treegen.table import Cells, median_times
from treegen.tablefile import read_table

FOLDER = REPOSITORY / "tuning_data/kernel_unified_attention_2d"
GPUS = {"nvidia_h100": ("NVIDIA H100 80GB HBM3", 7), "amd_mi300x": ("AMD Instinct MI300X", 6)}


@pytest.mark.parametrize("key", GPUS)
def test_an_imported_table(key: str) -> None:
    table = read_table(FOLDER / key)
    name, configs = GPUS[key]
    assert (table.device_name, device_key(table.device_name)) == (name, key)
    assert (table.kernel, table.cells) == ("kernel_unified_attention_2d", Cells.WINNERS)
    assert (len(table.scenarios), len(table.configs)) == (89, configs)
    times = median_times(table)
    assert (np.isfinite(times).sum(axis=1) == 1).all() and np.isfinite(times).any(axis=0).all()
    origin = table.provenance["origin"]
    assert origin["licence"] == "Apache-2.0" and "arXiv 2511.11581" in origin["published_by"]
    assert origin["evaluated_configs"] == 540


def test_both_gpus_were_tuned_on_the_same_scenarios() -> None:
    texts = {(FOLDER / key / "scenarios.csv").read_text() for key in GPUS}
    assert len(texts) == 1


TABLES = sorted({path.parent for path in (REPOSITORY / "tuning_data").rglob("run.yaml")})


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_committed_table_can_be_read(folder: Path) -> None:
    table = read_table(folder)
    assert table.kernel == folder.parent.name and device_key(table.device_name) == folder.name

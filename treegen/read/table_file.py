"""A tuning table as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tuning_table
from treegen.core.errors import table_errors_as_input_errors
from treegen.core.table import Table


def read_table(folder: Path) -> Table:
    """The table in `folder`; scenarios that no row reached are left out.

    Raises InputError, naming file and row, for anything missing, malformed or contradictory.
    """
    with table_errors_as_input_errors():
        recorded = tuning_table.read(folder)
    header = recorded.header
    reached = {row.scenario for row in recorded.rows}
    scenarios = [scenario for scenario in recorded.scenarios if scenario in reached]
    position = {scenario: i for i, scenario in enumerate(scenarios)}
    return Table(
        folder=folder,
        kernel=header.kernel,
        device_name=header.device_name,
        cells=header.cells,
        feature_names=header.features,
        configs=header.configs,
        scenarios=tuple(scenarios),
        features=np.array([recorded.scenarios[scenario] for scenario in scenarios], dtype=np.int64),
        row_scenario=np.array([position[row.scenario] for row in recorded.rows], dtype=np.int64),
        row_repeat=np.array([row.repeat for row in recorded.rows], dtype=np.int64),
        times=np.array([row.times for row in recorded.rows]),
        provenance=header.provenance,
        words=header.words,
    )

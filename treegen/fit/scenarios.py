"""The scenarios of a problem, by what a heuristic first tells apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from treegen.core.errors import InputError
from treegen.core.expr import names
from treegen.core.launches import as_columns, first_of
from treegen.core.problem import Problem


class Scenarios:
    """The scenarios of a problem, by regime and by class of models."""

    def __init__(self, problem: Problem) -> None:
        """Raises InputError for a condition on a feature that the table does not hold."""
        self.problem, kernel, count = problem, problem.kernel, len(problem.cost)
        asked = {name for when in kernel.conditions for name in names(when)}
        if missing := sorted(asked - {*problem.names, *problem.device.limits}):
            what = f"does not hold {missing[0]}, about which regimes or classes of the kernel ask"
            raise InputError(problem.table.folder, what)
        self.columns = as_columns({n: problem.column(n) for n in problem.names})
        known: dict[str, Any] = {**self.columns, **problem.device.limits}
        regime = first_of(kernel.regimes, known, count)
        self.regimes = [np.flatnonzero(regime == place) for place in range(len(kernel.regimes))]
        self.group = first_of(kernel.classes, known, count)  # [scenarios] the number of the class
        self.column = {config: place for place, config in enumerate(problem.configs)}

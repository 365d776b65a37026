"""Measure the worth of each stage of the fit: held-out figures of the spec's tables without that stage.

    python -m benchmarks.fit.stages

Five folds, two repeats. A choice without a time scores as 2x slower than the best. Needs no GPU and no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from treegen.build import fit_tree, read_problems
from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import leaves, size
from treegen.crossval.choices import decisions_of, joined, score_decisions
from treegen.crossval.folds import split_copies
from treegen.crossval.heldout import quality
from treegen.fit.growth import grow
from treegen.fit.significance import copies
from treegen.read.spec_file import read_spec

_REPEATS = 2
_SEARCH = "treegen.fit.search"

WITHOUT: dict[str, dict[str, Callable[..., Any]]] = {
    "(all stages)": {},
    "interpolation": {f"{_SEARCH}.interpolate": lambda features, loss: (features[:0], loss[:0])},
    "local search": {f"{_SEARCH}.local_search": grow},
    "search on measured scenarios": {f"{_SEARCH}._refined": lambda measured, tree: tree},
    "isolation of failures": {f"{_SEARCH}.isolate_failures": lambda training, tree: tree},
    "shortlist": {f"{_SEARCH}.shortlist": lambda loss, unit: np.arange(loss.shape[1])},
    "config pruning": {f"{_SEARCH}.prune_configs": lambda training, tree, price: tree},
    "split pruning": {"treegen.build.prune_splits": lambda costs, tree: tree},
}


def main() -> None:
    """Print a line per stage and table."""
    problems = [p for p in read_problems(read_spec(Path("treegen.yaml"))) if p.table.cells is Cells.MEASURED]
    print(f"{'without':30}{'table':14}{'slowdown':>9}{'no time':>9}{'leaves':>8}{'configs':>9}")
    for stage, replacements in WITHOUT.items():
        with ExitStack() as stack:
            for name, replacement in replacements.items():
                stack.enter_context(patch(name, replacement))
            for problem in problems:
                print(f"{stage:30}{problem.device.key:14}{_figures(problem)}", flush=True)


def _figures(problem: Problem) -> str:
    choices, sizes, configs = [], [], []
    for fold in split_copies(copies(problem.features), 5, _REPEATS):
        tree, unseen = fit_tree(problem.rows(fold.train)), problem.rows(fold.test)
        choices.append(score_decisions(decisions_of(tree, unseen), unseen))
        sizes.append(size(tree))
        configs.append(len({leaf.config for leaf, _ in leaves(tree)}))
    held_out = quality(joined(choices), problem.table.cells)
    no_time = (held_out.unmeasured + held_out.failed) / held_out.choices
    return f"{held_out.slowdown:9.4f}{no_time:9.2%}{np.mean(sizes):8.1f}{np.mean(configs):9.1f}"


if __name__ == "__main__":
    main()

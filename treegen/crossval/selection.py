"""Choose between two ways of fitting by cross-validation within the table: inner, where folds are fitted."""

from __future__ import annotations

import numpy as np

from treegen.core.problem import Problem
from treegen.crossval.choices import Fit, decisions_of, penalise_untimed, score_decisions
from treegen.crossval.folds import split_copies
from treegen.fit.significance import CostDrop, copies, is_significant

_FOLDS = 3
_FEWEST = 100  # scenarios with different features; fewer say too little
_Z_OTHER = 1.0  # as in the one-standard-error rule (Breiman et al., 1984, section 3.4.3)


def is_better(problem: Problem, usual: Fit, other: Fit) -> bool:
    """Return whether the other way chooses better in held-out scenarios, by one standard error.

    Trees that are scored by further folds of the same table must choose anew in each, as this looks at all
    of the problem's scenarios.
    """
    copy = copies(problem.features)
    if copy.max() + 1 < _FEWEST:
        return False
    drops, groups = [], []
    for fold in split_copies(copy, _FOLDS, 1):
        known, unseen = problem.rows(fold.train), problem.rows(fold.test)
        before, after = (
            penalise_untimed(score_decisions(decisions_of(fit(known), unseen), unseen).cost)
            for fit in (usual, other)
        )
        drops.append(before - after)
        groups.append(copy[fold.test])
    drop = np.concatenate(drops)
    return is_significant(CostDrop(drop, drop, np.concatenate(groups)), _Z_OTHER)

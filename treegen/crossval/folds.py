"""The scenarios that are held out, and the parts of the others that a learning curve trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import RepeatedKFold

SEED = 0


@dataclass(frozen=True)
class Fold:
    """Ascending rows of a problem, each array [scenarios] int64."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def split(scenarios: int, folds: int, repeats: int) -> tuple[Fold, ...]:
    """Repeated k-fold cross-validation: every repeat shuffles anew and holds out each scenario once."""
    splitter = RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=SEED)
    return tuple(Fold(train, test) for train, test in splitter.split(np.empty(scenarios)))


def split_copies(copies: npt.NDArray[np.int64], folds: int, repeats: int) -> tuple[Fold, ...]:
    """`split`, but copies of a scenario stay together, so that no held-out scenario was seen in training.

    copies: [scenarios], equal for copies; all numbers from 0 to the greatest.
    """
    sides = split(int(copies.max()) + 1, folds, repeats)
    return tuple(Fold(*(np.flatnonzero(np.isin(copies, s)) for s in (f.train, f.test))) for f in sides)


def nested(fold: Fold, parts: Sequence[Fraction], seed: int) -> tuple[Fold, ...]:
    """The fold with ascending parts of its training scenarios, each of which contains the one before."""
    # RandomState: its streams are the same in every version of NumPy, those of Generator are not.
    order = np.random.RandomState(seed).permutation(fold.train)
    return tuple(Fold(np.sort(order[: int(len(order) * part)]), fold.test) for part in parts)


def resampled(scenarios: int, samples: int) -> tuple[npt.NDArray[np.int64], ...]:
    """`samples` bootstrap samples, each of as many rows as there are, drawn with replacement, ascending."""
    random = np.random.RandomState(SEED)
    return tuple(np.sort(random.randint(scenarios, size=scenarios)) for _ in range(samples))

"""Small inputs of the search for a tree: samples without a table behind them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from treegen.fit.index_tree import IndexTree, count_leaves, height
from treegen.fit.training_set import TrainingSet

COSTS = st.integers(0, 9) | st.integers(0, 1) | st.sampled_from([0, 1 << 36])


def sample(
    answers: object, loss: object, *, least: int = 1, depth: int = 4, leaves: int = 8, price: int = 0
) -> TrainingSet:
    """answers: [questions, rows]; loss: [rows, configs]."""
    loss = np.array(loss, dtype=np.float64)
    return TrainingSet(
        np.array(answers, dtype=np.float64).reshape(-1, len(loss)), loss, least, depth, leaves, price
    )


@st.composite
def samples(draw: st.DrawFn, rows: int = 10, questions: int = 5, least: int = 3) -> TrainingSet:
    """Questions may repeat or part nothing, rows may say the same to all of them, costs may tie."""
    height, width = draw(st.integers(1, rows)), draw(st.integers(1, 4))
    says = draw(
        st.lists(st.lists(st.booleans(), min_size=height, max_size=height), min_size=1, max_size=questions)
    )
    loss = draw(st.lists(st.lists(COSTS, min_size=width, max_size=width), min_size=height, max_size=height))
    return sample(
        says,
        loss,
        least=draw(st.integers(1, least)),
        depth=draw(st.integers(0, 3)),
        leaves=draw(st.integers(1, 6)),
        price=draw(st.sampled_from([0, 0, 1, 3])),
    )


def shapes(sample: TrainingSet) -> st.SearchStrategy[IndexTree]:
    """Any tree over a sample's questions and configs, within no limits."""
    config, question = (st.integers(0, side - 1) for side in (sample.loss.shape[1], len(sample.answers)))
    return st.recursive(config, lambda below: st.tuples(question, below, below), max_leaves=6)


def leaves_of(
    sample: TrainingSet, shape: IndexTree, rows: list[int] | None = None
) -> Iterator[tuple[int, list[int]]]:
    """The config and the rows of every leaf, yes sides first."""
    rows = list(range(len(sample.loss))) if rows is None else rows
    if not isinstance(shape, tuple):
        yield shape, rows
        return
    yes = [row for row in rows if sample.answers[shape[0], row]]
    yield from leaves_of(sample, shape[1], yes)
    yield from leaves_of(sample, shape[2], [row for row in rows if row not in yes])


def price(sample: TrainingSet, shape: IndexTree) -> int:
    """The loss of all rows, and what the leaves cost."""
    lost = sum(int(sample.loss[row, config]) for config, rows in leaves_of(sample, shape) for row in rows)
    return lost + sample.leaf_price * count_leaves(shape)


def allowed(sample: TrainingSet, shape: IndexTree) -> bool:
    """Whether a tree is within the sample's limits."""
    large = all(len(rows) >= sample.least for _, rows in leaves_of(sample, shape))
    within = height(shape) <= sample.max_depth and count_leaves(shape) <= sample.max_leaves
    return within and (large or not isinstance(shape, tuple))

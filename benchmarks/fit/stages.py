"""The fit without one of its stages at a time: what `benchmarks.fit.tables` calls `without STAGE`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from treegen.fit.local_search import grow

_SEARCH = "treegen.fit.search"

WITHOUT: dict[str, dict[str, Callable[..., Any]]] = {
    "interpolation": {f"{_SEARCH}.interpolate": lambda features, loss: (features[:0], loss[:0])},
    "local search": {f"{_SEARCH}.local_search": grow},
    "search on measured scenarios": {f"{_SEARCH}._refined": lambda measured, tree: tree},
    "isolation of failures": {f"{_SEARCH}.isolate_failures": lambda training, tree: tree},
    "shortlist": {f"{_SEARCH}.shortlist": lambda loss, unit: np.arange(loss.shape[1])},
    "config pruning": {f"{_SEARCH}.prune_configs": lambda training, tree, price: tree},
    "split pruning": {"treegen.build.prune_splits": lambda costs, tree: tree},
}
"""What stands in for each stage."""


@contextmanager
def without(stage: str | None) -> Iterator[None]:
    """Leave a stage out of every fit within the block; None leaves all in."""
    with ExitStack() as stack:
        for name, replacement in WITHOUT[stage].items() if stage else ():
            stack.enter_context(patch(name, replacement))
        yield

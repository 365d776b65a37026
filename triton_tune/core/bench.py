"""The interface of benches, which measure visits."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from triton_tune.core.problem import PlannedVisit
from tuning_table.table import Visit

Advance = Callable[[int, int], None]  # is called with the jobs done and the jobs in all


class Bench(Protocol):
    """Measures visits. All times are seconds of `clock`."""

    def clock(self) -> float: ...

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        """Compile until the time `until`. Returns the visits without the configs that were not compiled."""

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        """The visits in the order in which they end; none begins after `until`."""

"""What measures: GPUs, or a recorded table in their place."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from attn_kernels.tuning.problem import Task
from tuning_table.table import Visit

Advance = Callable[[int, int], None]  # done, of all


class Bench(Protocol):
    """Measures tasks. Times are seconds of its own clock, which a replay sets forward."""

    def clock(self) -> float: ...

    def compile(self, tasks: Sequence[Task], until: float, advance: Advance) -> tuple[Task, ...]:
        """Compile what the tasks launch; the tasks, without configs for which the time until `until` was
        too short."""

    def measure(self, tasks: Sequence[Task], until: float) -> Iterator[Visit]:
        """Visits in the order in which they end; none is begun after `until`."""

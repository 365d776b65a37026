"""What a tuning run would do and how long it would take: `attn-tune --dry-run`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from attn_kernels.tuning.bench.replay import CELL_S, COMPILE_S, VISIT_S
from attn_kernels.tuning.problem import Problem, Task, Times
from attn_kernels.tuning.search.search import STRATEGIES
from attn_kernels.tuning.space.candidates import Possible

REFERENCE_WORKERS = 15  # that compiled at COMPILE_S a launch


@dataclass(frozen=True)
class Plan:
    """How a run would go: from the `times` and the `spent` seconds that its table holds already."""

    strategy: str
    budget: float
    spent: float
    times: Times
    workers: int
    devices: int

    def seconds(self, problem: Problem, tasks: Iterable[Task]) -> float:
        """About how long these take, compiling included; scaled from an H100."""
        visits = list(tasks)
        launches = {(problem.shape(task.scenario), config) for task in visits for config in task.configs}
        compiling = COMPILE_S * REFERENCE_WORKERS / max(1, self.workers) * len(launches)
        cells = sum(len(task.configs) for task in visits)
        return compiling + (VISIT_S * len(visits) + CELL_S * cells) / self.devices


def describe(possible: Possible, kinds: Counter[str], plan: Plan) -> list[str]:
    """Lines for a person."""
    problem = possible.problem
    shapes = Counter(problem.shape(scenario) for scenario in problem.scenarios)
    variants = Counter(problem.variants[config] for config in problem.configs)
    everything = [Task(scenario, 1, row) for scenario, row in problem.candidates.items()]
    lines = [
        f"{len(problem.scenarios)} scenarios at {len(shapes)} shapes: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        f"{len(problem.configs)} configs: "
        + ", ".join(f"{count} {name}" for name, count in variants.most_common()),
        f"{problem.possible} cells are possible; dropped beforehand:",
        *(f"  {count} {reason}" for reason, count in possible.dropped.items()),
        f"all of it, once, would take about {plan.seconds(problem, everything):.0f} s; "
        f"the budget is {plan.budget:.0f} s, of which {plan.spent:.0f} s are used",
    ]
    if plan.spent >= plan.budget:
        return [*lines, "the budget is used up; a larger --budget goes on"]
    planned = STRATEGIES[plan.strategy](problem).next_round(plan.times, plan.spent / plan.budget)
    if planned is None:
        return [*lines, "nothing is left to measure"]
    cells = sum(len(task.configs) for task in planned.tasks)
    return [
        *lines,
        f"{plan.strategy} goes on with {planned.name!r}: {len(planned.tasks)} scenarios, {cells} cells, "
        f"about {plan.seconds(problem, planned.tasks):.0f} s; the end comes with the budget, or earlier",
    ]

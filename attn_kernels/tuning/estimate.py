"""What a tuning run would do and how long it would take: `attn-tune --dry-run`."""

from collections import Counter

from attn_kernels.tuning.candidates import Possible
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.replay import CELL_S, COMPILE_S, VISIT_S
from attn_kernels.tuning.search import REPEATS, STRATEGIES

REFERENCE_WORKERS = 15  # that compiled at COMPILE_S a launch


def describe(
    possible: Possible, kinds: Counter[str], strategy: str, budget: float, workers: int
) -> list[str]:
    """Lines for a person; the times are those of an H100 and scale with the processes that compile."""
    problem = possible.problem
    shapes = Counter(problem.shape(scenario) for scenario in problem.scenarios)
    configs = {config for row in problem.candidates.values() for config in row}
    variants = Counter(problem.variants[config] for config in configs)
    lines = [
        f"{len(problem.scenarios)} scenarios at {len(shapes)} shapes: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        f"{len(configs)} configs: " + ", ".join(f"{count} {name}" for name, count in variants.most_common()),
        f"{problem.possible} cells are possible; dropped beforehand:",
        *(f"  {count} {reason}" for reason, count in possible.dropped.items()),
    ]
    compile_s = COMPILE_S * REFERENCE_WORKERS / max(1, workers)
    launches = {(problem.shape(s), config) for s, row in problem.candidates.items() for config in row}
    full = len(launches) * compile_s + REPEATS * (
        VISIT_S * len(problem.scenarios) + CELL_S * problem.possible
    )
    lines.append(f"all of it, twice, would take about {full:.0f} s ({len(launches)} launches to compile)")
    first = STRATEGIES[strategy](problem).next_round(Times(), 0.0)
    if first is not None:
        jobs = {(problem.shape(task.scenario), config) for task in first.tasks for config in task.configs}
        cells = sum(len(task.configs) for task in first.tasks)
        seconds = len(jobs) * compile_s + VISIT_S * len(first.tasks) + CELL_S * cells
        lines.append(
            f"strategy {strategy} begins with {first.name!r}: {len(first.tasks)} scenarios, {cells} cells, "
            f"about {seconds:.0f} s; it ends after {budget:.0f} s, or earlier if nothing is left"
        )
    return lines

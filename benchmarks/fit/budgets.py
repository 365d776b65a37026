"""How good is a module if the budget of its run ends early?

    python -m benchmarks.fit.budgets treegen.yaml
    python -m benchmarks.fit.budgets SPEC --table examples/matmul/untuned_data/matmul/nvidia_h200 --printed

Of each table, groups such as models are held out in folds; single scenarios, where there are no groups. A run
over the other scenarios is replayed from the table until a share of its cells is timed, repeats included. A
module is fitted to that, and judged by all times of the held-out scenarios. A figure is the geometric mean of
its choices' times over the best ones; `single` is that of the best single config by all times. `--printed`
adds what `treegen build` says of the same early tables, its own groups held out. Needs no GPU.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from attn_kernels.tuning.space.space import ATTENTION
from treegen.build import read_problems
from treegen.core.problem import UNIT, Problem
from treegen.core.table import Cells
from treegen.crossval.folds import Fold, cross_validate, folds_of, group_folds
from treegen.crossval.score import Score, penalised
from treegen.fit.fit import fit
from treegen.read.problem import as_table, build_problem, read_table
from treegen.read.spec import read_spec
from triton_tune.core.problem import Advance, Likeness, PlannedVisit, SearchProblem, Times
from triton_tune.search.loop import tune
from triton_tune.search.race import Race
from tuning_table import read_run
from tuning_table.table import RecordedTable, Visit

SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)


@dataclass
class Replay:
    """A bench on which a cell takes a second, and its time comes from a table."""

    times: Times
    now: float = 0.0

    def clock(self) -> float:
        return self.now

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        return tuple(tasks)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for task in tasks:
            if self.now >= until:
                return
            self.now += len(task.configs)
            row = self.times.measured(task.scenario)
            cells = {config: row[config][(task.repeat - 1) % len(row[config])] for config in task.configs}
            yield Visit(task.scenario, task.repeat, cells)


class Silent:
    """Progress that nobody watches."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, done: int) -> None: ...


def early(recorded: RecordedTable, scenarios: Sequence[str], share: float, seed: int) -> RecordedTable:
    """What a table of some scenarios holds once a share of its cells is timed.

    Only what the whole table holds can be timed. Scenarios with one config are left out, as a build does.
    """
    names, all_times = recorded.header.features, Times(recorded.visits)
    configs = [config.id for config in recorded.header.configs]
    problem = SearchProblem(
        features={s: dict(zip(names, recorded.scenarios[s], strict=True)) for s in scenarios},
        candidates={s: tuple(c for c in configs if c in all_times.measured(s)) for s in scenarios},
        variants={config.id: config.variant or "" for config in recorded.header.configs},
        seed=seed,
        likeness=ATTENTION if set(ATTENTION.shape) <= set(names) else Likeness(),
    )
    visits: list[Visit] = []
    search, bench = Race(problem), Replay(all_times)
    tune(search, bench, Times(), visits.append, Silent(), budget=share * problem.possible)
    early_times = Times(visits)
    compared = (visit for visit in visits if len(early_times.measured(visit.scenario)) > 1)
    return replace(recorded, visits=tuple(compared))


def early_problems(problem: Problem, share: float, seed: int) -> list[tuple[Fold, Problem]]:
    """The folds, each with what a run over its training scenarios leaves at a share of the cells."""
    recorded, found = read_run(problem.table.folder), []
    for fold in group_folds(problem) or folds_of(problem):
        table = early(recorded, [problem.scenarios[row] for row in fold.train], share, seed)
        found.append(
            (fold, build_problem(problem.kernel, problem.device, as_table(problem.table.folder, table)))
        )
    return found


def slowdown(problem: Problem, tables: Sequence[tuple[Fold, Problem]]) -> float:
    """The held-out mean of modules that are fitted to early tables, by all times."""
    costs = [penalised(Score.of(problem.rows(fold.test), fit(table)).cost) for fold, table in tables]
    return math.exp(float(np.concatenate(costs).mean()) / UNIT)


def printed(tables: Sequence[tuple[Fold, Problem]]) -> float:
    """What a build says of early tables, on average; NaN where it says nothing."""
    said = []
    for _, table in tables:
        evaluation = cross_validate(table, fit)
        figure = evaluation and (evaluation.groups or evaluation.folds).quality.slowdown
        said.append(math.log(figure) if figure else math.nan)
    return math.exp(float(np.mean(said)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per table: the mean of several runs at each share, and the least and the greatest."""
    parser = argparse.ArgumentParser(description="Judge modules of runs whose budgets end early.")
    parser.add_argument("spec", type=Path)
    parser.add_argument(
        "--table", type=Path, help="of a kernel of the spec (default: all tables that it names)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs (default: 3)")
    parser.add_argument("--printed", action="store_true", help="a line more: what treegen build would say")
    options = parser.parse_args(arguments)
    spec = read_spec(options.spec)
    if options.table:
        table = read_table(options.table)
        kernel = spec.kernels[table.kernel]
        problems = [build_problem(kernel, spec.devices[next(iter(kernel.tables))], table)]
    else:
        by_table = {(p.kernel.name, p.table.folder): p for p in reversed(read_problems(spec))}
        problems = [p for p in reversed(by_table.values()) if p.table.cells is Cells.MEASURED]
    print(f"{'table':32}{'single':>8}" + "".join(f"{share:>20.0%}" for share in SHARES))
    for problem in problems:
        single = math.exp(float(penalised(problem.cost).mean(axis=0).min()) / UNIT)
        print(f"{problem.kernel.name} {problem.table.folder.name}"[:31].ljust(32) + f"{single:8.3f}", end="")
        tables = cache(partial(early_problems, problem))  # both lines judge the same ones
        for judge in (partial(slowdown, problem), printed)[: 1 + options.printed]:
            if judge is printed:
                print("  treegen build says".ljust(40), end="")
            for share in SHARES:
                runs = [judge(tables(share, seed)) for seed in range(options.seeds)]
                mean = math.exp(float(np.log(runs).mean()))
                print(f"{f'{mean:.3f} ({min(runs):.3f}-{max(runs):.3f})':>20}", end="", flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()

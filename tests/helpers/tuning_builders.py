"""Small search problems whose times come from a formula, and benches that need no device."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from attn_kernels.tuning.scenarios.scenario import FEATURES
from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.problem import Advance, PlannedVisit, Round, SearchProblem, Strategy, Times
from triton_tune.search.race import STRATEGIES, Race
from tuning_table.table import Cell, Cells, Failure, RecordedTable, TableConfig, TableHeader, Visit

VARIANTS = ("qblock", "stream_k", "pod")


def features(
    num_seqs: int, query_len: int, seq_len: int, heads: tuple[int, int] = (32, 8), element: int = 2
) -> dict[str, int]:
    tokens = num_seqs * query_len
    values = (num_seqs, tokens, num_seqs * seq_len, query_len, seq_len, *heads, 128, 16, element)
    return dict(zip(FEATURES, values, strict=True))


@dataclass(frozen=True)
class Surface:
    """A problem whose times are smooth in the logarithms of the features: each config has a best place."""

    problem: SearchProblem
    places: Mapping[str, tuple[float, ...]]
    noise: float = 0.0
    failing: frozenset[tuple[str, str]] = frozenset()

    def cell(self, scenario: str, config: str, repeat: int) -> Cell:
        if (scenario, config) in self.failing or ("*", config) in self.failing:
            return Failure("disagrees with the reference")
        there = self.problem.features[scenario]
        exponents = [math.log2(there[name]) for name in ("num_seqs", "max_query_len", "num_kv_heads")]
        point = [exponent / most for exponent, most in zip(exponents, (6, 10, 3), strict=True)]
        slower = sum(abs(a - b) for a, b in zip(point, self.places[config], strict=True))
        rng = random.Random(f"{scenario}/{config}/{repeat}")
        slower *= 5.0 if self.problem.variants[config] == "pod" else 1.0
        return 10.0 * math.exp(0.5 * slower + rng.gauss(0.0, self.noise))

    def visit(self, task: PlannedVisit) -> Visit:
        return Visit(
            task.scenario, task.repeat, {c: self.cell(task.scenario, c, task.repeat) for c in task.configs}
        )


def surface(
    *,
    scenarios: int = 24,
    configs: int = 12,
    seed: int = 0,
    noise: float = 0.0,
    failing: frozenset[tuple[str, str]] = frozenset(),
    missing: frozenset[tuple[str, str]] = frozenset(),
) -> Surface:
    """Three shapes, of which two are of one family. `missing`: pairs that are no candidates."""
    rng = random.Random(seed)
    shapes = (((32, 8), 2), ((8, 1), 2), ((32, 8), 1))
    rows = {}
    for index in range(scenarios):
        heads, element = shapes[0 if index % 6 < 4 else index % 6 - 3]
        query_len = 1 if index % 2 else 2 ** rng.randrange(10)
        rows[f"s{index}"] = features(2 ** rng.randrange(7), query_len, 1024 + index, heads, element)
    names = [f"c{index}" for index in range(configs)]
    problem = SearchProblem(
        features=rows,
        candidates={s: tuple(c for c in names if (s, c) not in missing) for s in rows},
        variants={name: VARIANTS[index % len(VARIANTS)] for index, name in enumerate(names)},
        seed=seed,
        likeness=ATTENTION,
    )
    places = {name: (rng.random(), rng.random(), rng.random()) for name in names}
    return Surface(problem, places, noise, failing)


@dataclass
class SurfaceBench:
    """Measures a surface by a clock of its own: `compile_s` a config never seen, `visit_s` a visit.

    Beside that, each cell of a visit takes `cell_s`.
    """

    surface: Surface
    compile_s: float = 0.0
    visit_s: float = 1.0
    cell_s: float = 0.0
    now: float = 100.0
    compiled: set[str] = field(default_factory=set)
    begun: list[float] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    on_visit: Callable[[int], None] = lambda count: None

    def clock(self) -> float:
        return self.now

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, progress: Advance
    ) -> tuple[PlannedVisit, ...]:
        self.deadlines.append(until)
        missing = list(dict.fromkeys(c for task in tasks for c in task.configs if c not in self.compiled))
        for done, config in enumerate(missing, start=1):
            if self.now + self.compile_s > until:  # given up half way
                self.now = max(self.now, until)
                break
            self.now += self.compile_s
            self.compiled.add(config)
            progress(done, len(missing))
        kept = (
            PlannedVisit(task.scenario, task.repeat, tuple(c for c in task.configs if c in self.compiled))
            for task in tasks
        )
        return tuple(task for task in kept if task.configs)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for task in tasks:
            if self.now >= until:
                return
            self.begun.append(self.now)
            self.on_visit(len(self.begun))
            self.now += self.visit_s + self.cell_s * len(task.configs)
            yield self.surface.visit(task)


def full(problem: SearchProblem) -> Race:
    return Race(problem, STRATEGIES["full"])


class Silent:
    """Progress that nobody watches."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, done: int) -> None: ...


@dataclass
class Listed:
    """A strategy of rounds that are listed: the next is the first with a visit that is still to come."""

    rounds: Sequence[Round]
    shares: list[float] = field(default_factory=list)

    def next_round(self, times: Times, spent: float) -> Round | None:
        self.shares.append(spent)
        for planned in self.rounds:
            tasks = tuple(
                task
                for task in planned.tasks
                if task.repeat >= times.next_repeat(task.scenario) and spent < planned.share
            )
            if tasks:
                return Round(planned.name, tasks, planned.share)
        return None


def rounds_of(
    strategy: Strategy, there: Surface, visits: list[Visit], *, spent: float = 0.0
) -> Iterator[Round]:
    """The rounds to the strategy's end. After each round, its visits are added to `visits`."""
    while (planned := strategy.next_round(Times(visits), spent)) is not None:
        yield planned
        visits += map(there.visit, planned.tasks)


def recorded_of(problem: SearchProblem, visits: Sequence[Visit]) -> RecordedTable:
    """The visits as they are read back from a table."""
    configs = tuple(TableConfig(name, variant, {"block_m": 16}) for name, variant in problem.variants.items())
    header = TableHeader(
        "attention", "a surface", Cells.MEASURED, FEATURES, configs, provenance={"seed": problem.seed}
    )
    scenarios = {s: tuple(row[name] for name in FEATURES) for s, row in problem.features.items()}
    return RecordedTable(header, scenarios, tuple(visits))

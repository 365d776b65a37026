"""Score choices of configs by a measured table: how much slower are they than the best config?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import numpy.typing as npt

from attn_kernels.core.config import Config as LaunchConfig
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.tuning.scenarios.scenario import FEATURES, KINDS
from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import Config, Spec
from treegen.core.table import Cells
from treegen.crossval.score import Score
from treegen.read.problem import build_problem, read_table
from treegen.review.modules import Module, ModuleKey, common_rows

KERNEL = "unified_attention"
CHOICES = {"chosen": "chosen", "single": "single best"}

Floats = npt.NDArray[np.float64]
Decisions = tuple[Config, ...]
"""One config per scenario, in the order of a problem's rows."""

Modules = Mapping[ModuleKey, Module]


@dataclass(frozen=True)
class TimedTable:
    """A table as a problem. times: [scenarios, configs] median microseconds; NaN where untimed or failed."""

    device: str
    set: str
    problem: Problem
    times: Floats

    @property
    def best(self) -> Floats:
        """[scenarios] the best time."""
        return np.asarray(np.nanmin(self.times, axis=1))

    def times_of(self, decisions: Decisions) -> Floats:
        """[scenarios] the time of each decision; NaN where it is untimed."""
        column = {config: i for i, config in enumerate(self.problem.configs)}
        times = (self.times[row, column[c]] if c in column else np.nan for row, c in enumerate(decisions))
        return np.fromiter(times, np.float64, len(decisions))


@dataclass(frozen=True)
class Slowdowns:
    """Ratios of times over scenarios; untimed choices are counted, and are in no other figure."""

    scenarios: int
    untimed: int
    geomean: float | None
    p95: float | None
    most: float | None


def read_timed_table(folder: Path, device: str, name: str, spec: Spec) -> TimedTable:
    """The measured table in `folder`, for a device of the spec. Raises InputError."""
    if device not in spec.devices:
        raise InputError(spec.path, f"has no device {device}; it has {', '.join(spec.devices)}")
    table = read_table(folder)
    if table.cells is not Cells.MEASURED:
        raise InputError(folder, "holds winners only; choices cannot be scored by it")
    if set(table.feature_names) != set(FEATURES):
        raise InputError(folder / "run.yaml", f"features must be those of choose(): {', '.join(FEATURES)}")
    problem = build_problem(spec.kernels[KERNEL], spec.devices[device], table)
    times = problem.times()
    return TimedTable(device, name, problem, np.where(np.isfinite(times), times, np.nan))


def single_best(table: TimedTable) -> Config:
    """The config of least geometric mean slowdown; an untimed config scores as 4x slower than the best.

    `treegen eval` scores it as 2x slower. In these sparse tables, a config with few times would then win.
    """
    logs = np.log(table.times / table.best[:, None])
    total = np.where(np.isnan(logs), math.log(4), logs).sum(axis=0)
    return table.problem.configs[int(total.argmin())]


def chosen_by(device: str, table: TimedTable, modules: Modules) -> Decisions:
    """What a device's module chooses in each scenario of a table. Raises InputError if it has none."""
    if (KERNEL, device) not in modules:
        keys = ", ".join(key for kernel, key in modules if kernel == KERNEL)
        raise InputError(device, f"has no module; the generated modules are {keys}")
    launches = Score.of(table.problem, modules[KERNEL, device].heuristic).launches
    return tuple(launches.configs[place] for place in launches.config)


def launch_config(config: Config) -> LaunchConfig:
    """A config of the spec as it is launched."""
    return LaunchConfig(config.variant, **dict(config.parameters))


def summary(ratios: Floats) -> Slowdowns:
    """Sum up ratios of times; NaN is untimed."""
    timed = ratios[~np.isnan(ratios)]
    if not len(timed):
        return Slowdowns(len(ratios), len(ratios), None, None, None)
    p95, most = float(np.percentile(timed, 95)), float(timed.max())
    return Slowdowns(len(ratios), len(ratios) - len(timed), geometric_mean(timed.tolist()), p95, most)


def groups(problem: Problem) -> dict[str, list[int]]:
    """The rows of all scenarios, and of each kind."""
    kinds = [kind(id, values) for id, values in scenarios(problem)]
    rows = {f"kind {name}": [row for row, of in enumerate(kinds) if of == name] for name in KINDS}
    return {"all": list(range(len(kinds)))} | {name: members for name, members in rows.items() if members}


def entries(table: TimedTable, chosen: Mapping[str, Decisions]) -> list[dict[str, Any]]:
    """Each scenario's id and kind, and (config, microseconds) of the best and of each choice."""
    times = {name: table.times_of(decisions) for name, decisions in chosen.items()}
    result = []
    for row, (id, values) in enumerate(scenarios(table.problem)):
        best = table.problem.configs[int(np.nanargmin(table.times[row]))]
        entry: dict[str, Any] = {"id": id, "kind": kind(id, values)}
        entry["best"] = str(launch_config(best)), float(table.best[row])
        entry["choices"] = {
            name: (str(launch_config(chosen[name][row])), None if np.isnan(taken[row]) else float(taken[row]))
            for name, taken in times.items()
        }
        result.append(entry)
    return result


def scenarios(problem: Problem) -> list[tuple[str, dict[str, int]]]:
    """Id and features of each scenario."""
    features = (dict(zip(problem.names, row, strict=True)) for row in problem.features.tolist())
    return list(zip(problem.scenarios, features, strict=True))


def kind(id: str, features: Mapping[str, int]) -> str:
    """A batch's kind: decode, prefill, chunk, spec or mixed.

    Features do not always separate chunks from mixed batches, as they do not hold the shortest query. With a
    window they do not always show a whole prompt. The scenario's id decides, if it names one of the three.
    """
    longest, tokens = features["max_query_len"], features["num_query_tokens"]
    if longest == 1:
        return "decode"
    if tokens == features["num_kv_tokens"] or "prefill" in id.split("-"):
        return "prefill"
    if longest <= MAX_DRAFT:
        return "spec"
    named = {"chunk", "mixed"} & set(id.split("-"))
    if len(named) == 1:
        return named.pop()
    # At least half of a mixed batch's sequences decode; no other query is longer than the longest.
    return "mixed" if 2 * tokens <= features["num_seqs"] * (1 + longest) else "chunk"


@dataclass(frozen=True)
class TableComparison:
    """Two tables, by the cells that both timed."""

    scenarios: int
    differ: int  # scenarios in which another config is the best
    first_on_second: Slowdowns  # the first table's best config, by the second table
    second_on_first: Slowdowns


def compare_tables(first: TimedTable, second: TimedTable) -> TableComparison:
    """Compare two tables. Raises ValueError where one id names two different scenarios."""
    one, other = first.problem, second.problem
    here, there = common_rows(one, other)
    same_id = set(one.scenarios) & set(other.scenarios)
    if changed := same_id - {one.scenarios[row] for row in here}:
        raise ValueError(f"scenario {min(changed)} has other features in the two tables")
    shared = [config for config in one.configs if config in other.configs]
    ones = first.times[here][:, [one.configs.index(config) for config in shared]]
    twos = second.times[there][:, [other.configs.index(config) for config in shared]]
    both = ~np.isnan(ones) & ~np.isnan(twos)
    some = both.any(axis=1)
    both = both[some]
    ones, twos = (np.where(both, times[some], np.inf) for times in (ones, twos))
    rows, best_one, best_two = np.arange(len(both)), ones.argmin(axis=1), twos.argmin(axis=1)
    on_second = twos[rows, best_one] / twos[rows, best_two]
    on_first = ones[rows, best_two] / ones[rows, best_one]
    return TableComparison(
        len(both), int((best_one != best_two).sum()), summary(on_second), summary(on_first)
    )

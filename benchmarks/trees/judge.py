"""Judge choices of configs by a measured table: how much slower are they than the best that was timed?"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attn_kernels.core.config import Config
from attn_kernels.tuning.scenarios.scenario import FEATURES, KINDS, MAX_DRAFT
from attn_kernels.tuning.search.portfolio import ABSENT
from treegen.core.errors import InputError
from treegen.core.table import Cells, Table, median_times
from treegen.read.table_file import read_table

Features = Mapping[str, int]
Choice = Callable[[Features], Config]


@dataclass(frozen=True)
class Measured:
    """One scenario of a table. Microseconds of the configs that never failed there: of each repeat, in their
    order, and the medians."""

    id: str
    features: Features
    repeats: Mapping[Config, tuple[float, ...]]
    times: Mapping[Config, float]

    @property
    def kind(self) -> str:
        return kind(self.id, self.features)

    @property
    def shape(self) -> str:
        return shape(self.features)

    @property
    def best(self) -> Config:
        return min(self.times, key=self.times.__getitem__)

    def slowdown(self, config: Config) -> float | None:
        """Time over the best time; None if the config has no time here."""
        return self.times[config] / self.times[self.best] if config in self.times else None


@dataclass(frozen=True)
class Judged:
    """What each way of choosing took in a scenario: config and microseconds, None where it was not timed."""

    id: str
    kind: str
    shape: str
    best: tuple[str, float]
    choices: Mapping[str, tuple[str, float | None]]

    def slowdown(self, name: str) -> float | None:
        time = self.choices[name][1]
        return None if time is None else time / self.best[1]


@dataclass(frozen=True)
class Summary:
    """Ratios over scenarios. `untimed`: of `scenarios`, those without one, which no mean can hold."""

    scenarios: int
    untimed: int
    geomean: float | None
    p95: float | None
    most: float | None


def summary(ratios: Iterable[float | None]) -> Summary:
    every = list(ratios)
    known = [ratio for ratio in every if ratio is not None]
    if not known:
        return Summary(len(every), len(every), None, None, None)
    mean = math.exp(sum(map(math.log, known)) / len(known))
    return Summary(len(every), len(every) - len(known), mean, float(np.percentile(known, 95)), max(known))


def kind(id: str, features: Features) -> str:
    """Of decode, prefill, chunk, spec and mixed. Features do not always tell chunks from mixed batches, for
    they say nothing of the shortest query: the scenario's id does, if it names one of the two."""
    if features["max_query_len"] == 1:
        return "decode"
    if features["num_query_tokens"] == features["num_kv_tokens"]:
        return "prefill"
    if features["max_query_len"] <= MAX_DRAFT:
        return "spec"
    named = {"chunk", "mixed"} & set(id.split("-"))
    if len(named) == 1:
        return named.pop()
    # At least half of a mixed batch's sequences decode.
    return "mixed" if 2 * features["num_query_tokens"] <= most_if_mixed(features) else "chunk"


def most_if_mixed(features: Features) -> int:
    """Twice the query tokens of half decodes and half prompts as long as the longest."""
    return features["num_seqs"] * (1 + features["max_query_len"])


def shape(features: Features) -> str:
    """`32/8/128 p16`: query heads, KV heads, head size, page size."""
    heads = "/".join(str(features[name]) for name in ("num_query_heads", "num_kv_heads", "head_size"))
    return f"{heads} p{features['block_size']}" + (" fp8" if features["kv_element_size"] == 1 else "")


def measured(folder: Path) -> tuple[Table, tuple[Measured, ...]]:
    """The table in `folder` and its scenarios with any time. Raises InputError."""
    table = read_table(folder)
    if table.cells is not Cells.MEASURED:
        raise InputError(folder, "holds winners only, and by those nothing can be judged")
    if set(table.feature_names) != set(FEATURES):
        raise InputError(folder / "run.yaml", f"features must be those of choose(): {', '.join(FEATURES)}")
    configs = [_config(folder, entry.variant, entry.parameters) for entry in table.configs]
    medians = median_times(table)
    scenarios = []
    for place, id in enumerate(table.scenarios):
        order = np.flatnonzero(table.row_scenario == place)
        rows = table.times[order[np.argsort(table.row_repeat[order], kind="stable")]]
        timed = np.flatnonzero(np.isfinite(medians[place]))
        values = dict(zip(table.feature_names, map(int, table.features[place]), strict=True))
        repeats = {configs[i]: tuple(map(float, rows[np.isfinite(rows[:, i]), i])) for i in timed}
        if repeats:
            times = {configs[i]: float(medians[place, i]) for i in timed}
            scenarios.append(Measured(id, values, repeats, times))
    return table, tuple(scenarios)


def _config(folder: Path, variant: str | None, parameters: Mapping[str, Any]) -> Config:
    unknown = set(parameters) - set(Config._fields)
    if variant is None or unknown or not {"block_m", "tile_size"} <= set(parameters):
        raise InputError(
            folder / "run.yaml", "configs must be those of attn-kernels: a variant, block_m, ..."
        )
    return Config(variant, **parameters)


def judge(scenarios: Sequence[Measured], choices: Mapping[str, Choice]) -> list[Judged]:
    """Each scenario, with what every way of choosing takes there."""
    found = []
    for scenario in scenarios:
        chosen = {name: choose(scenario.features) for name, choose in choices.items()}
        times = {name: (str(config), scenario.times.get(config)) for name, config in chosen.items()}
        best = (str(scenario.best), scenario.times[scenario.best])
        found.append(Judged(scenario.id, scenario.kind, scenario.shape, best, times))
    return found


def single_best(scenarios: Sequence[Measured]) -> Config:
    """The config of least geometric mean slowdown. Where it has no time, a config counts as four times the
    best, as in the search: else one that was timed only where it suits would win a sparse table."""
    lost: defaultdict[Config, float] = defaultdict(lambda: ABSENT * len(scenarios))
    for scenario in scenarios:
        for config, time in scenario.times.items():
            lost[config] += math.log(time / scenario.times[scenario.best]) - ABSENT
    return min(lost, key=lambda config: (lost[config], str(config)))


def groups(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """All, then by kind, then by shape, the commonest first."""
    kinds = {f"kind {name}": [j for j in judged if j.kind == name] for name in KINDS}
    shapes: dict[str, list[Judged]] = {}
    for entry in judged:
        shapes.setdefault(f"shape {entry.shape}", []).append(entry)
    ranked = dict(sorted(shapes.items(), key=lambda item: -len(item[1])))
    return {"all": list(judged)} | {name: own for name, own in kinds.items() if own} | ranked


def gap_closed(judged: Sequence[Judged], name: str, single: str) -> float | None:
    """How much of log(single best / best) the choice removes, over scenarios where both were timed."""
    both = [(j.slowdown(name), j.slowdown(single)) for j in judged]
    logs = [(math.log(mine), math.log(other)) for mine, other in both if mine and other]
    gap = sum(other for _, other in logs)
    return 1 - sum(mine for mine, _ in logs) / gap if gap else None

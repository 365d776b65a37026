"""Score choices of configs by a measured table: how much slower are they than the best config?"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attn_kernels.core.config import Config as LaunchConfig
from attn_kernels.tuning.scenarios.scenario import FEATURES, KINDS, MAX_DRAFT
from attn_kernels.tuning.space.rules import fixed_choice
from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, Config, KernelSpec, Spec
from treegen.core.table import Cells, median_times
from treegen.crossval.choices import Decisions, decisions_of
from treegen.read.problem import build_problem, read_table
from treegen.review.modules import Module, ModuleKey

KERNEL = "unified_attention"
CHOICES = {"chosen": "chosen", "vllm": "vLLM's fixed choice", "single": "single best", "fallback": "fallback"}

Floats = npt.NDArray[np.float64]


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
        found = (self.times[row, column[c]] if c in column else np.nan for row, c in enumerate(decisions))
        return np.fromiter(found, np.float64, len(decisions))


@dataclass(frozen=True)
class Slowdowns:
    """Ratios of times over scenarios; untimed choices are counted, and are in no other figure."""

    scenarios: int
    untimed: int
    geomean: float | None
    p95: float | None
    most: float | None


@dataclass(frozen=True)
class Optimism:
    """The bias of a scenario's best time, which is too low as the least of many noisy times."""

    scenarios: int
    second_look: float  # geometric mean: one repeat's time of the other repeat's best, over the best median


@dataclass(frozen=True)
class CommittedTrees:
    """A spec and the trees of its committed modules."""

    spec: Spec
    modules: Mapping[ModuleKey, Module]


def read_timed_table(folder: Path, device: str, name: str, trees: CommittedTrees) -> TimedTable:
    """The measured table in `folder`, for a device of the spec. Raises InputError."""
    spec = trees.spec
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


def choices(table: TimedTable, single: Config, trees: CommittedTrees) -> dict[str, Decisions]:
    """Each way's config in each scenario. Raises InputError for a device without a module."""
    modules = {key: module for (kernel, key), module in trees.modules.items() if kernel == KERNEL}
    if table.device not in modules:
        raise InputError(table.device, f"has no module; the generated modules are {', '.join(modules)}")
    problem = table.problem
    return {
        "chosen": decisions_of(modules[table.device].tree, problem),
        "vllm": tuple(spec_config(fixed_choice(values), problem.kernel) for _, values in scenarios(problem)),
        "single": (single,) * len(problem.scenarios),
        "fallback": decisions_of(modules[FALLBACK_DEVICE].tree, problem),
    }


def spec_config(config: LaunchConfig, kernel: KernelSpec) -> Config:
    """A launch config in the spec's words."""
    return Config(config.variant, tuple((name, getattr(config, name)) for name in kernel.parameters))


def launch_config(config: Config) -> LaunchConfig:
    """A config of the spec as it is launched."""
    return LaunchConfig(config.variant, **dict(config.parameters))


def summary(ratios: Floats) -> Slowdowns:
    """Sum up ratios of times; NaN is untimed."""
    known = ratios[~np.isnan(ratios)]
    if not len(known):
        return Slowdowns(len(ratios), len(ratios), None, None, None)
    p95, most = float(np.percentile(known, 95)), float(known.max())
    return Slowdowns(len(ratios), len(ratios) - len(known), _geomean(known), p95, most)


def groups(problem: Problem) -> dict[str, list[int]]:
    """The rows of all scenarios, of each kind, and of each shape, the commonest first."""
    labels = [(f"kind {kind(id, values)}", f"shape {shape(values)}") for id, values in scenarios(problem)]
    shapes = Counter(label for _, label in labels)
    names = [*(f"kind {name}" for name in KINDS), *sorted(shapes, key=lambda name: (-shapes[name], name))]
    rows = {name: [row for row, of in enumerate(labels) if name in of] for name in names}
    return {"all": list(range(len(labels)))} | {name: members for name, members in rows.items() if members}


def share_of_gap(chosen: Floats, single: Floats) -> float | None:
    """The share of log(single best / best) that the chosen configs remove, where both were timed.

    chosen, single: [scenarios] slowdowns; NaN is untimed.
    """
    both = ~np.isnan(chosen) & ~np.isnan(single)
    if not both.any() or (fixed := _geomean(single[both])) <= 1:
        return None
    return 1 - math.log(_geomean(chosen[both])) / math.log(fixed)


def entries(table: TimedTable, chosen: Mapping[str, Decisions]) -> list[dict[str, Any]]:
    """Each scenario's id, kind and shape, and (config, microseconds) of the best and of each choice."""
    times = {name: table.times_of(decisions) for name, decisions in chosen.items()}
    result = []
    for row, (id, values) in enumerate(scenarios(table.problem)):
        best = table.problem.configs[int(np.nanargmin(table.times[row]))]
        entry: dict[str, Any] = {"id": id, "kind": kind(id, values), "shape": shape(values)}
        entry["best"] = str(launch_config(best)), float(table.best[row])
        entry["choices"] = {
            name: (str(launch_config(chosen[name][row])), None if np.isnan(taken[row]) else float(taken[row]))
            for name, taken in times.items()
        }
        result.append(entry)
    return result


def optimism(problem: Problem) -> Optimism | None:
    """Choose by one of the first two repeats and read the time in the other, among configs with both.

    The two times are independent. Each repeat chooses once, so that a drift between them cancels.
    """
    table, medians, logs = problem.table, median_times(problem.table), []
    for place in range(len(table.scenarios)):
        rows = np.flatnonzero(table.row_scenario == place)
        times = table.times[rows[np.argsort(table.row_repeat[rows], kind="stable")]]
        twice = np.flatnonzero(np.isfinite(medians[place]) & (np.isfinite(times).sum(axis=0) > 1))
        if len(twice):
            pairs = np.array([times[np.isfinite(times[:, column]), column][:2] for column in twice])
            least = medians[place, twice].min()
            logs += [math.log(pairs[pairs[:, by].argmin(), 1 - by] / least) for by in (0, 1)]
    return Optimism(len(logs) // 2, math.exp(sum(logs) / len(logs))) if logs else None


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


def shape(features: Mapping[str, int]) -> str:
    """`32/8/128 p16`: query heads, KV heads, head size, page size."""
    heads = "/".join(str(features[name]) for name in ("num_query_heads", "num_kv_heads", "head_size"))
    return f"{heads} p{features['block_size']}" + (" fp8" if features["kv_element_size"] == 1 else "")


def _geomean(ratios: Floats) -> float:
    return float(np.exp(np.log(ratios).mean()))

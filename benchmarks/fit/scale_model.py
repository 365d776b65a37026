"""Synthetic tables from a declared model, of which the best tree is known.

A planted tree of eight leaves splits on four of ten features, at thresholds 2^k. Every leaf has an ideal
point, and every config has a point; both are uniform in the unit square. With r the leaf of scenario s,

    log time[s, c, repeat] = size[s] + 0.5 * |ideal[r] - point[c]| + noise,    noise ~ N(0, 0.02^2)

where size[s] is the mean of the scenario's log features. Features are log-uniform integers in [1, 2^14],
times whole nanoseconds. Cells are empty as after a search. The quarter of the configs that is best in a leaf
is timed in all of its scenarios, and sixteen configs are timed everywhere. Two thirds of the other cells are
empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.spec import Budget, Config, DeviceSpec, KernelSpec, Parameter
from treegen.core.table import Cells, Table, TableConfig

FEATURES = tuple(f"feature_{i}" for i in range(10))
REPEATS = 2
PORTFOLIO = 16
KERNEL, VARIANT, PARAMETER = "synthetic", "plain", "place"
NOISE = 0.02
SPREAD = 0.5
EMPTY = 2 / 3
DEVICE = DeviceSpec("synthetic", (), None, "synthetic", {})

_OCTAVES = 14
_DEPTH = 3

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PlantedModel:
    """A planted tree of seven splits. Split i has children 2 i + 1 (at most the threshold) and 2 i + 2."""

    split_feature: Ints  # [7] columns
    threshold: Ints  # [7]
    effect: Floats  # [leaves, configs] log time beyond the scenario's size

    def leaf(self, features: Ints) -> Ints:
        """[scenarios] the planted leaf of each row of features [scenarios, 10]."""
        node = np.zeros(len(features), dtype=np.int64)
        for _ in range(_DEPTH):
            above = features[np.arange(len(features)), self.split_feature[node]] > self.threshold[node]
            node = 2 * node + 1 + above
        return node - len(self.split_feature)

    def excess(self, features: Ints, chosen: Ints) -> Floats:
        """[scenarios] the log slowdown of the chosen configs (columns) against the planted optimum."""
        leaf = self.leaf(features)
        return np.asarray(self.effect[leaf, chosen] - self.effect[leaf].min(axis=1))


def model(configs: int, seed: int) -> PlantedModel:
    """A random model. No split has the feature of its parent, so that all leaves are reached."""
    rng = np.random.default_rng(seed)
    first, second, third, fourth = rng.permutation(len(FEATURES))[:4]
    split_feature = np.array([first, second, third, fourth, third, second, fourth])
    threshold = 1 << rng.integers(5, 10, len(split_feature))
    ideal, point = rng.random((1 << _DEPTH, 1, 2)), rng.random((1, configs, 2))
    return PlantedModel(split_feature, threshold, SPREAD * np.sqrt(((ideal - point) ** 2).sum(axis=2)))


def scenarios(count: int, rng: np.random.Generator) -> Ints:
    """[count, 10] features of random scenarios."""
    return np.exp2(rng.uniform(0, _OCTAVES, (count, len(FEATURES)))).astype(np.int64)


def table(planted: PlantedModel, count: int, seed: int, folder: Path = Path("synthetic")) -> Table:
    """A table of so many scenarios, in memory."""
    rng = np.random.default_rng([seed, 1])
    features, configs = scenarios(count, rng), planted.effect.shape[1]
    leaf = planted.leaf(features)
    expected = np.log(features).mean(axis=1, keepdims=True) + planted.effect[leaf]
    rare = planted.effect > np.quantile(planted.effect, 0.25, axis=1, keepdims=True)
    rare[:, :: max(1, configs // PORTFOLIO)] = False
    empty = rare[leaf] & (rng.random((count, configs), dtype=np.float32) < EMPTY)
    expected[empty] = np.nan
    times = np.empty((REPEATS * count, configs))
    for repeat in range(REPEATS):
        rows = times[repeat * count : (repeat + 1) * count]
        rng.standard_normal(out=rows)
        rows *= NOISE
        rows += expected
        np.exp(rows, out=rows)
        np.round(rows, 3, out=rows)
    return Table(
        folder=folder,
        kernel=KERNEL,
        device_name=DEVICE.key,
        cells=Cells.MEASURED,
        feature_names=FEATURES,
        configs=tuple(TableConfig(f"c{c:03}", VARIANT, {PARAMETER: c}) for c in range(configs)),
        scenarios=tuple(f"s{s:06}" for s in range(count)),
        features=features,
        row_scenario=np.tile(np.arange(count), REPEATS),
        row_repeat=np.repeat(np.arange(1, REPEATS + 1), count),
        times=times,
    )


def kernel(folder: Path = Path("synthetic")) -> KernelSpec:
    """A kernel for such tables, with the budget of a tuned kernel."""
    return KernelSpec(
        name=KERNEL,
        features=FEATURES,
        derived={},
        split_on=FEATURES,
        variants=(VARIANT,),
        parameters={PARAMETER: Parameter("C")},
        constraints=(),
        trusted_as_measured=(),
        fallback=Config(VARIANT, ((PARAMETER, 0),)),
        budget=Budget(max_depth=6, max_leaves=16, leaf_price=0.0005, config_price=0.0005),
        translations={},
        tables={DEVICE.key: folder},
    )

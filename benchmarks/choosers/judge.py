"""What the choices of a way cost on models that it has not seen, and what the way itself costs."""

import math
import time
import timeit
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.choosers.tables import CASES, Case, Shape, read, shapes
from benchmarks.choosers.ways import (
    NONE_CHOSEN,
    WAYS,
    Chooser,
    NotApplicable,
    as_step,
    charged,
    launch_costs,
    one_config,
)
from treegen.core.launches import ABSENT
from treegen.core.problem import UNIT, Problem
from treegen.crossval.folds import group_folds
from treegen.crossval.score import Ints, Quality, penalised, quality

AUTOTUNER = "autotuner, by its key"
_WORSE = math.log(1.01) * UNIT  # two configs' times differ by about 1% in a scenario by noise alone


@dataclass(frozen=True)
class Figures:
    """The figures of one way on one case."""

    quality: Quality
    fell_back: float  # share of choices that may not be launched or are none, for which the fallback counts
    worse: float  # share over 1% slower than the single best config of the known scenarios
    size: int
    unit: str
    nanoseconds: float  # CPU time of a choice, for a model that is known
    stored: int  # bytes
    seconds: float | None  # CPU time to learn from the table; None where nothing is learned ahead


def columns(chooser: Chooser, problem: Problem) -> Ints:
    """[scenarios] the columns of the choices in a problem's costs, ABSENT or NONE_CHOSEN."""
    place = {config: column for column, config in enumerate(problem.configs)}
    chosen = []
    for shape in shapes(problem):
        config = chooser.configs.get(chooser.of_model(shape)(shape))
        chosen.append(NONE_CHOSEN if config is None else place.get(config, ABSENT))
    return np.array(chosen)


def judge_numbered(task: tuple[str, int]) -> Figures | str:
    """`judge` in a process of its own, to which a case travels as its number."""
    return judge(task[0], CASES[task[1]])


def judge(way: str, case: Case) -> Figures | str:
    """The figures of a way on a case, or why there are none. Raises InputError for a bad table."""
    seen, unseen = read(case)
    parts = (
        [(seen, unseen)]
        if unseen is not None
        else [(seen.rows(fold.train), seen.rows(fold.test)) for fold in group_folds(seen)]
    )
    try:
        results = [_results(way, case, *part) for part in parts]
        begun = time.process_time()  # after the first fits, which import packages
        chooser = autotuner(parts[0][1], case) if way == AUTOTUNER else WAYS[way](seen, case)
        seconds = None if way == AUTOTUNER else time.process_time() - begun
    except NotApplicable as error:
        return str(error)
    ids = tuple(name for _, rest in parts for name in rest.scenarios)
    cost, refused, single = (np.concatenate(found) for found in zip(*results, strict=True))
    found, worse = quality(cost, ids, seen.table.cells), penalised(cost) > penalised(single) + _WORSE
    took, size = nanoseconds(chooser, shapes(parts[0][1])), (chooser.size, chooser.unit)
    return Figures(found, float(refused.mean()), float(worse.mean()), *size, took, chooser.stored, seconds)


def _results(
    way: str, case: Case, seen: Problem, unseen: Problem
) -> tuple[Ints, npt.NDArray[np.bool_], Ints]:
    """[scenarios] costs, whether the fallback was launched, and the costs of the single best config."""
    single, fell = charged(columns(one_config(seen, case), unseen), unseen)
    if way == AUTOTUNER:
        return autotuned(unseen, case.key), np.zeros_like(fell), single
    return *charged(columns(WAYS[way](seen, case), unseen), unseen), single


def autotuned(problem: Problem, key: Sequence[str]) -> Ints:
    """[scenarios] what an autotuner's choice costs, which is the best config for the first shape of a key.

    Which shape comes first is left to chance, so the cost is the mean over all shapes of the scenario's key.
    """
    values = problem.features[:, [problem.names.index(name) for name in key]]
    same = (values[:, None] == values[None]).all(axis=2)  # [scenarios, first]
    cost = penalised(launch_costs(problem)[:, problem.cost.argmin(axis=1)])
    return np.asarray(np.rint((cost * same).sum(axis=1) / same.sum(axis=1)), dtype=np.int64)


def autotuner(problem: Problem, case: Case) -> Chooser:
    """An autotuner that has searched for every key, with the first of its scenarios in their order."""
    cache: dict[Hashable, int] = {}
    for shape, column in zip(shapes(problem), problem.cost.argmin(axis=1).tolist(), strict=True):
        cache.setdefault(tuple(shape[name] for name in case.key), column)
    step = as_step(lambda shape: cache[tuple([shape[name] for name in case.key])])
    return Chooser(dict(enumerate(problem.configs)), step, len(cache), "searches", len(repr(cache)))


def nanoseconds(chooser: Chooser, asked: Sequence[Shape]) -> float:
    """The mean time of a choice for a few shapes, whose models were met before."""
    calls = [(chooser.of_model(shape), shape) for shape in asked[:: max(1, len(asked) // 8)]]

    def choose_all() -> None:
        for step, shape in calls:
            step(shape)

    number, seconds = timeit.Timer(choose_all, timer=time.process_time).autorange()
    return seconds / number / len(calls) * 1e9

"""Ways of choosing a config: each learns from a table, and chooses for a shape as it would while serving."""

import math
import pickle
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.choosers.tables import MULTIPROCESSORS, Case, Shape, shapes
from benchmarks.fit.candidates import printed
from treegen.core.launches import ABSENT
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem, with_untimed_penalty
from treegen.core.spec import Config
from treegen.crossval.peers import asked, forest_model, least_cost
from treegen.crossval.score import Ints, costs_of, penalised

Step = Callable[[Shape], Hashable]

NEIGHBOURS = 5
NONE_CHOSEN = ABSENT - 1  # no config was chosen; ABSENT: a config was chosen that the table lacks


class NotApplicable(Exception):
    """A way's package is not installed, or the way is none for the kernel."""


@dataclass(frozen=True)
class Chooser:
    """What a way has learned."""

    configs: Mapping[Hashable, Config]  # what a choice stands for; another choice launches the fallback
    of_model: Callable[[Shape], Step]  # the function of a step for a model with these constants
    size: int
    unit: str  # of `size`: what a person who reviews it has to read
    stored: int  # bytes


def launch_costs(problem: Problem) -> Ints:
    """[scenarios, configs + 1] what is launched costs where a config is chosen, last where none is.

    The fallback is launched where a config failed in the table, breaks a constraint, or is none: a server
    must launch something. No constraint binds the fallback itself.
    """
    count, kernel = len(problem.cost), problem.kernel
    column = problem.configs.index(kernel.fallback) if kernel.fallback in problem.configs else ABSENT
    fallback = costs_of(np.full(count, column), problem)[:, None]
    cost = np.where(problem.cost >= FORBIDDEN, fallback, problem.cost)
    return np.concatenate([cost, fallback], axis=1)


def charged(chosen: Ints, problem: Problem) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """[scenarios] the costs of choices, and whether the fallback was launched in the place of another choice.

    chosen: [scenarios] columns of the problem's configs, ABSENT or NONE_CHOSEN.
    """
    rows = np.arange(len(chosen))
    column = np.where(chosen == NONE_CHOSEN, len(problem.configs), chosen)
    cost = np.where(chosen == ABSENT, UNTIMED, launch_costs(problem)[rows, column])
    is_fallback = np.array([*(config == problem.kernel.fallback for config in problem.configs), False])
    barred = np.concatenate([problem.cost >= FORBIDDEN, np.ones((len(rows), 1), dtype=bool)], axis=1)
    return cost, (chosen != ABSENT) & barred[rows, column] & ~is_fallback[column]


def as_step(choose: Step) -> Callable[[Shape], Step]:
    """A choice that is the same function for all models."""
    return lambda model: choose


def treegen(seen: Problem, case: Case) -> Chooser:
    """The module that `treegen build` prints of a fresh fit."""
    text, module = printed(seen)
    kernel = seen.kernel
    config, steps = module["Config"], kernel.steps
    configs = {config(c.variant, **dict(c.parameters)): c for c in (*seen.configs, kernel.fallback)}

    def of_model(model: Shape) -> Step:
        choose = module["for_model"](*(model[name] for name in kernel.constants))
        return lambda shape: choose(*[shape[name] for name in steps])

    return Chooser(configs, of_model, text.count("\n"), "lines", len(text))


def one_config(seen: Problem, case: Case) -> Chooser:
    """The single best config of the known scenarios, with the fallback where it must not be launched."""
    place = int(penalised(launch_costs(seen))[:, :-1].sum(axis=0).argmin())
    text = seen.kernel.constant_name(seen.configs[place])
    return Chooser(dict(enumerate(seen.configs)), as_step(lambda shape: place), 1, "line", len(text))


def _regression(seen: Problem, model: Any, size: Callable[[], int], unit: str) -> Chooser:
    cheapest, names = least_cost(model, seen), asked(seen)

    def step(shape: Shape) -> int:
        return int(cheapest(np.array([[shape[name] for name in names]]))[0])

    return Chooser(dict(enumerate(seen.configs)), as_step(step), size(), unit, len(pickle.dumps(model)))


def forest(seen: Problem, case: Case) -> Chooser:
    """The forest of `treegen eval`: roughly what the features allow."""
    model = forest_model()
    return _regression(seen, model, lambda: sum(t.tree_.node_count for t in model.estimators_), "nodes")


def neighbours(seen: Problem, case: Case) -> Chooser:
    """The least mean cost in the nearest scenarios, by the standardised logarithms of the features."""
    model = make_pipeline(StandardScaler(), KNeighborsRegressor(min(NEIGHBOURS, len(seen.cost))))
    return _regression(seen, model, lambda: len(seen.cost), "entries")


def nearest_m(seen: Problem, case: Case, entry_of: Callable[[int], int] = int) -> Chooser:
    """vLLM's rule: of a model's tuned file, the entry whose M is nearest, of least total cost.

    vLLM finds no file for another model; here, the one of nearest constants serves it (the least sum of
    absolute differences of logarithms; of equals the least constants). entry_of: the entry of an M.
    """
    constants, tokens, cost = seen.kernel.constants, case.tokens, with_untimed_penalty(seen.cost)
    rows: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for row, shape in enumerate(shapes(seen)):
        entries = rows.setdefault(tuple(shape[name] for name in constants), {})
        entries.setdefault(entry_of(shape[tokens]), []).append(row)
    files = {
        model: {entry: int(cost[inside].sum(axis=0).argmin()) for entry, inside in sorted(by_entry.items())}
        for model, by_entry in sorted(rows.items())
    }

    def of_model(model: Shape) -> Step:
        wanted = np.log2([1 + model[name] for name in constants])
        apart = np.abs(np.log2(1 + np.array([*files])) - wanted).sum(axis=1)
        file = [*files.values()][int(apart.argmin())]

        def step(shape: Shape) -> int:
            entry = entry_of(shape[tokens])
            return file[min(file, key=lambda other: abs(other - entry))]

        return step

    count, stored = sum(map(len, files.values())), len(repr(files))
    return Chooser(dict(enumerate(seen.configs)), of_model, count, "entries", stored)


def buckets(seen: Problem, case: Case) -> Chooser:
    """The same, with M rounded down to a power of two, as FlashInfer's and TensorRT-LLM's autotuners do."""
    return nearest_m(seen, case, int.bit_length)


def helion(seen: Problem, case: Case) -> Chooser:
    """Helion's ahead-of-time heuristic, by Helion's own code: few configs, and a tree by entropy."""
    try:
        from helion.autotuner import heuristic_generator as package
        from helion.autotuner.decision_tree_backend import DecisionTreeBackend
    except ImportError:
        raise NotApplicable("pip install --no-deps helion==1.5.1") from None
    raw = seen.kernel.features
    features = [{f"key_{i}": shape[name] for i, name in enumerate(raw)} for shape in shapes(seen)]
    hashes = ([str(number) for number in range(size)] for size in seen.cost.shape)
    configs = [{"config": number} for number in range(len(seen.configs))]
    cost = np.where(seen.cost >= FORBIDDEN, np.inf, with_untimed_penalty(seen.cost))
    data = package.ShapeConfigData("kernel", features, np.exp(cost / UNIT), configs, *hashes)
    chosen, _ = package.select_config_subset(data, package.PerformanceTarget(verbose=False))
    data.selected_config_indices = chosen
    asks = package.select_shape_features(features, verbose=False).selected_features
    backend = DecisionTreeBackend()
    text = backend.generate_heuristic("kernel", data, [configs[c] for c in chosen], asks).generated_code
    names: dict[str, Any] = {}
    exec(text, names)
    launched: dict[Hashable, Config] = dict(enumerate(seen.configs[column] for column in chosen))
    step = as_step(lambda shape: names["key_kernel"](*[shape[name] for name in raw]))
    return Chooser(launched, step, text.count("\n"), "lines", len(text))


def classifier(seen: Problem, case: Case) -> Chooser:
    """PyTorch's AutoHeuristic as Inductor trains it for mixed products: a classifier that may be unsure.

    A tree of the winners by entropy, at most 5 deep, with at least 1% of the scenarios per leaf, learned from
    four fifths of them. A leaf is unsure if its config is over 5% slower than the fallback in one of its
    scenarios.
    """
    names = list(dict.fromkeys([*seen.kernel.features, *asked(seen)]))
    features = np.stack([seen.column(name) for name in names], axis=1)
    rows, _ = train_test_split(np.arange(len(seen.cost)), test_size=0.2, random_state=42)
    model = DecisionTreeClassifier(max_depth=5, min_samples_leaf=0.01, criterion="entropy", random_state=42)
    model.fit(features[rows], seen.cost[rows].argmin(axis=1))
    cost = with_untimed_penalty(seen.cost)[rows, model.predict(features[rows])]
    limit = penalised(launch_costs(seen)[rows, -1]) + math.log(1.05) * UNIT
    unsafe = (cost < FORBIDDEN) & (cost > limit)
    unsure = {int(leaf) for leaf in model.apply(features[rows])[unsafe]}
    text = tree_text(model, names, unsure)
    scope: dict[str, Any] = {}
    exec(text, scope)
    stored = "\n".join(map(seen.kernel.constant_name, (seen.configs[c] for c in model.classes_))) + text
    lines, step = stored.count("\n"), as_step(scope["choose"])
    return Chooser(dict(enumerate(seen.configs)), step, lines, "lines", len(stored))


def tree_text(model: Any, names: list[str], unsure: set[int]) -> str:
    """A classifier of scikit-learn as a Python function `choose(shape)`; unsure leaves return None."""
    tree = model.tree_

    def lines(node: int, indent: str) -> list[str]:
        if tree.children_left[node] < 0:
            best = int(model.classes_[tree.value[node][0].argmax()])
            return [f"{indent}return {None if node in unsure else best}"]
        question = f"{indent}if shape[{names[tree.feature[node]]!r}] <= {float(tree.threshold[node])!r}:"
        low, high = (side[node] for side in (tree.children_left, tree.children_right))
        return [question, *lines(low, indent + "    "), *lines(high, indent)]

    return "\n".join(["def choose(shape):", *lines(0, "    "), ""])


def waves(seen: Problem, case: Case) -> Chooser:
    """Waves of programs: each config's time is bilinear in the loop's steps and in programs and waves.

    After WaveTune (arXiv:2604.10187), whose model is bilinear within each wave; here one for all waves, of
    coefficients that are not negative, by least squares of relative errors. A wave is a program for each
    multiprocessor.
    """
    if case.tiles is None:
        raise NotApplicable("the configs are no tiles")
    tiles, seen_shapes, timed = case.tiles, shapes(seen), seen.times()
    models = []
    for column, config in enumerate(seen.configs):
        rows = np.flatnonzero(np.isfinite(timed[:, column]) & seen.allowed[:, column])
        if len(rows):
            terms = np.array([_terms(*tiles(seen_shapes[row], dict(config.parameters))) for row in rows])
            fitted = LinearRegression(positive=True, fit_intercept=False)
            fitted.fit(terms / timed[rows, column][:, None], np.ones(len(rows)))
            models.append((column, dict(config.parameters), tuple(fitted.coef_.tolist())))

    def step(shape: Shape) -> int:
        times = (sum(map(mul, factors, _terms(*tiles(shape, config)))) for _, config, factors in models)
        return min(zip(times, models, strict=True), key=lambda pair: pair[0])[1][0]

    return Chooser(dict(enumerate(seen.configs)), as_step(step), len(models), "entries", len(repr(models)))


def _terms(programs: int, steps: int) -> tuple[float, ...]:
    number = -(-programs // MULTIPROCESSORS)
    return 1, steps, programs, programs * steps, number, number * steps


WAYS: Mapping[str, Callable[[Problem, Case], Chooser]] = {
    "treegen": treegen,
    "one config": one_config,
    "nearest M (vLLM)": nearest_m,
    "powers of two": buckets,
    f"{NEIGHBOURS} neighbours": neighbours,
    "Helion's tree": helion,
    "classifier (Inductor)": classifier,
    "wave model (WaveTune)": waves,
    "forest (ceiling)": forest,
}

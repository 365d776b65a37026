"""`treegen explain`: the config of one shape, why, what would change it, and what was measured near it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from treegen.core.errors import InputError, one_line, shown
from treegen.core.interval import feature_intervals, is_empty
from treegen.core.problem import UNTIMED, Problem
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.core.tree import Region, Split, Tree, halves, leaves, within
from treegen.passes.guards import outside_of
from treegen.read.problem import read_table, spec_problem
from treegen.read.spec import find_spec, read_spec
from treegen.review.modules import Module, read_modules
from treegen.review.printing import bounds_words, region_words, value_words
from treegen.review.shapes import FeatureSpace, Shape, complete, doublings, independent, outside

_WIDTH = 100
_LOUD = "bold red"


@dataclass(frozen=True)
class PathStep:
    """A split on the path: is `feature <= at_most`?"""

    feature: str
    at_most: int
    value: int  # the shape's
    kind: str  # `fitted`, or `guard` where no measured scenario goes to one side, or `beyond a guard`


@dataclass(frozen=True)
class Alternative:
    """The smallest change of the tree's features that would launch another config."""

    config: str
    distance: float  # doublings
    bounds: Region  # of the features that would have to change


@dataclass(frozen=True)
class Neighbour:
    """A measured scenario. Times are microseconds; None where none is known, as in a table of winners."""

    scenario: str
    distance: float  # doublings
    differs: Mapping[str, int]  # features with another value there, of those that imply the rest
    time: float | None  # of the launched config
    best: str
    best_time: float | None
    says: str  # how the launched config fares there


@dataclass(frozen=True)
class Explanation:
    """Everything about one shape, as plain data. Configs are named by their constants."""

    kernel: str
    device: str
    other_devices: tuple[str, ...]  # of the kernel, with a module
    module: str
    table: str
    scenarios: int
    measured_on: str
    shape: Mapping[str, int]
    assumed: tuple[str, ...]  # features taken from the scenario `source`
    source: str | None
    outside: tuple[str, ...]
    config: str
    variant: str
    parameters: Mapping[str, int]
    path: tuple[PathStep, ...]
    region: Region  # the shapes that the leaf serves
    alternatives: tuple[Alternative, ...]  # nearest first
    nearest: tuple[Neighbour, ...]  # nearest first


@dataclass(frozen=True)
class TunedModule:
    """A committed module and its table."""

    module: Module
    problem: Problem
    times: npt.NDArray[np.float64]  # [scenarios, configs] microseconds, as `Problem.times` returns them
    other_devices: tuple[str, ...]  # of the kernel, with a module and a table
    root: Path  # the spec's folder


def read_module_and_table(spec_path: Path | None, kernel_name: str, device: str | None) -> TunedModule:
    """Read a kernel's module and table; without a device, of the first that has both. Raises InputError."""
    spec = read_spec(find_spec(spec_path))
    (kernel,) = spec.selected(kernel_name)
    if device not in (None, *kernel.tables) or not kernel.tables:
        what = f"names no table of {kernel.name} for the device {shown(str(device))}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(kernel.tables)}")
    modules = read_modules(spec)
    ready = [key for key in kernel.tables if (kernel.name, key) in modules]
    key = device or next(iter(ready or kernel.tables))
    if key not in ready:
        missing = spec.output / kernel.name / f"{key}.py"
        raise InputError(missing, "no such module; `treegen build` writes it")
    others = tuple(other for other in ready if other != key)
    problem = spec_problem(kernel, spec.devices[key], read_table(kernel.tables[key]))
    root = spec.path.resolve().parent
    return TunedModule(modules[kernel.name, key], problem, problem.times(), others, root)


def explain(tuned: TunedModule, given: Mapping[str, int], top: int) -> Explanation:
    """Explain the shape of the given features. Raises InputError where they do not describe one.

    top: how many alternatives and neighbours to find.
    """
    problem, tree = tuned.problem, tuned.module.tree
    kernel, shape = problem.kernel, complete(given, problem)
    steps, config, region = trace(tree, shape.values, problem)
    space = FeatureSpace(problem)
    distances = space.distances(shape.values)
    same = (problem.features == [shape.values[name] for name in problem.names]).all(axis=1)
    nearest = np.lexsort((~same, distances))[:top].tolist()
    return Explanation(
        kernel=kernel.name,
        device=problem.device.key,
        other_devices=tuned.other_devices,
        module=os.path.relpath(tuned.module.path, tuned.root),
        table=os.path.relpath(problem.table.folder, tuned.root),
        scenarios=len(problem.cost),
        measured_on=problem.table.device_name,
        shape=shape.values,
        assumed=shape.assumed,
        source=shape.source,
        outside=outside(shape.values, problem, space),
        config=kernel.constant_name(config),
        variant=config.variant,
        parameters=dict(config.parameters),
        path=steps,
        region=region,
        alternatives=alternatives(tree, config, shape.values, problem)[:top],
        nearest=tuple(_neighbour(tuned, config, shape, row, distances[row]) for row in nearest),
    )


def trace(
    tree: Tree, values: Mapping[str, int], problem: Problem
) -> tuple[tuple[PathStep, ...], Config, Region]:
    """A shape's way through the tree, its config, and the shapes that get it by the same way.

    Raises InputError where a split needs an unknown feature.
    """
    steps = []
    region: Region = {}
    rows = np.arange(len(problem.cost))
    while isinstance(tree, Split):
        if tree.feature not in values:
            raw = ", ".join(problem.kernel.raw_parts([tree.feature])) or tree.feature
            what = f"the committed tree splits on {tree.feature}, which the table of {problem.device.key}"
            raise InputError(tree.feature, f"{what} does not hold; give {raw}")
        value, known = values[tree.feature], tree.feature in problem.names
        is_low = problem.column(tree.feature)[rows] <= tree.threshold if known else np.zeros(0, dtype=bool)
        beyond = outside_of(tree, bool(is_low.any()), bool((~is_low).any()), problem)
        goes_low = value <= tree.threshold
        side = tree.low if goes_low else tree.high
        kind = "fitted" if beyond is None else "beyond a guard" if side is beyond else "guard"
        steps.append(PathStep(tree.feature, tree.threshold, value, kind))
        region = halves(tree, region)[0 if goes_low else 1]
        rows = rows[is_low == goes_low] if known else rows
        tree = side
    return tuple(steps), tree.config, region


def alternatives(
    tree: Tree, config: Config, values: Mapping[str, int], problem: Problem
) -> tuple[Alternative, ...]:
    """By other config, the leaf that is nearest in the tree's features, each of which may change alone."""
    kernel = problem.kernel
    found: dict[str, Alternative] = {}
    for leaf, region in leaves(tree):
        bounds = {n: ends for n, ends in region.items() if n in values and not within(values[n], *ends)}
        box = feature_intervals(region, kernel, problem.device.limits)
        if leaf.config == config or not bounds or any(map(is_empty, box.values())):
            continue
        away = []
        for name, (least, greatest) in bounds.items():
            nearest = least if least is not None and values[name] < least else greatest
            ends = doublings([values[name], nearest or 0], kernel.values.get(name, {}))
            away.append(abs(ends[1] - ends[0]))
        change = Alternative(
            kernel.constant_name(leaf.config), round(float(np.hypot.reduce(away)), 6), bounds
        )
        if change.config not in found or change.distance < found[change.config].distance:
            found[change.config] = change
    return tuple(sorted(found.values(), key=lambda change: change.distance))


def _neighbour(tuned: TunedModule, config: Config, shape: Shape, row: int, distance: float) -> Neighbour:
    problem, column = tuned.problem, None
    if config in problem.configs:
        column = problem.configs.index(config)
    cost = UNTIMED if column is None else int(problem.cost[row, column])
    best = column if column is not None and cost == 0 else int(np.argmin(problem.cost[row]))
    time = best_time = None
    if problem.table.cells is Cells.WINNERS:
        says = "won" if cost == 0 else "did not win"
    elif column is None or cost >= UNTIMED:
        says, best_time = (
            "failed or may not run" if cost > UNTIMED else "was not timed",
            tuned.times[row, best],
        )
    else:
        time, best_time = tuned.times[row, column], tuned.times[row, best]
        says = "the best" if cost == 0 else f"{time / best_time:.2f}x the best"
    there = {name: int(problem.column(name)[row]) for name in independent(problem)}
    differs = {name: value for name, value in there.items() if value != shape.values[name]}
    name = problem.kernel.constant_name(problem.configs[best])
    return Neighbour(problem.scenarios[row], float(distance), differs, time, name, best_time, says)


def show(explanation: Explanation, kernel: KernelSpec, console: Console | None = None) -> None:
    """Print an explanation; colours only where the console has them."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    shape, path = explanation.shape, explanation.path
    console.print(Text(f"{explanation.kernel} on {explanation.device}", "bold"))
    table = f"{explanation.table}, {explanation.scenarios:,} scenarios on {explanation.measured_on}"
    _lines(console, [f"module {explanation.module}", f"table {table}"])
    if explanation.other_devices:
        _lines(console, [f"other devices: {', '.join(explanation.other_devices)}"])
    if explanation.outside:
        _heading(console, "OUTSIDE WHAT WAS TUNED", _LOUD)
        _lines(console, explanation.outside, _LOUD)
    _heading(console, "shape")
    raw = [name for name in shape if name in kernel.features]
    _lines(console, [_listed(raw, shape, kernel)] if raw else [])
    asked = dict.fromkeys(step.feature for step in path if step.feature not in raw)
    _lines(console, [f"so {_listed(asked, shape, kernel)}"] if asked else [])
    if explanation.source is not None:
        taken = _listed(explanation.assumed, shape, kernel)
        _lines(console, [f"not given, taken from scenario {explanation.source}: {taken}"])
    _heading(console, f"launches {explanation.config}")
    changed = [n for n, value in explanation.parameters.items() if value != kernel.parameters[n].default]
    _lines(console, [f"{explanation.variant}: {_listed(changed, explanation.parameters, kernel)}"])
    _heading(console, "why")
    steps = []
    for step in path:
        question = f"{_word(step.feature, kernel)} {bounds_words(step.feature, None, step.at_most, kernel)}?"
        answer = "yes" if step.value <= step.at_most else "no"
        steps.append([question, value_words(step.feature, step.value, kernel), answer, step.kind])
    _grid(console, ["question", "here", "answer", "kind"], steps)
    _lines(console, [f"so this leaf serves {region_words(explanation.region, kernel)}"])
    if explanation.alternatives:
        _heading(console, "what else would be launched if, nearest first")
        changes = (
            (one.config, region_words(one.bounds, kernel), f"{one.distance:.2f}")
            for one in explanation.alternatives
        )
        _grid(console, ["config", "if", "doublings away"], changes)
    _heading(console, "nearest measured scenarios")
    for near in explanation.nearest:
        _lines(console, [f"{near.scenario}, {near.distance:.2f} doublings away"])
        if near.differs:
            _lines(console, [f"there {_listed(near.differs, near.differs, kernel)}"], indent=4)
        launched = near.says if near.time is None else f"{_us(near.time)}, {near.says}"
        best = near.best if near.best_time is None else f"{_us(near.best_time)} with {near.best}"
        here = f"{launched}; best {best}" if near.best != explanation.config else launched
        _lines(console, [here], indent=4)


def _heading(console: Console, title: str, style: str = "bold") -> None:
    console.print("", Text(one_line(title), style), sep="\n")


def _lines(console: Console, lines: Iterable[str], style: str = "", indent: int = 2) -> None:
    for line in lines:  # text from outside may hold terminal escapes
        console.print(Padding(Text(one_line(line), style), (0, 0, 0, indent), expand=False))


def _grid(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        grid.add_column(column, justify="right" if column in ("here", "doublings away") else "left")
    for row in rows:
        grid.add_row(*(Text(one_line(cell)) for cell in row))
    if grid.row_count:
        console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def _listed(names: Iterable[str], values: Mapping[str, int], kernel: KernelSpec) -> str:
    return ", ".join(f"{_word(name, kernel)} {value_words(name, values[name], kernel)}" for name in names)


def _word(name: str, kernel: KernelSpec) -> str:
    return kernel.words.get(name, name)


def _us(microseconds: float) -> str:
    return f"{microseconds:,.0f} us" if microseconds >= 100 else f"{microseconds:.3g} us"

"""`treegen explain`: the config of one shape, why, what would change it, and what was measured near it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from treegen.core import expr
from treegen.core.errors import InputError, one_line
from treegen.core.heuristic import Choice, Heuristic, Split, choose, split_features
from treegen.core.problem import UNTIMED, Problem, broken_invariant, holds
from treegen.core.spec import Config, KernelSpec, ModelClass, Regime
from treegen.core.table import Cells
from treegen.review.modules import TunedModule
from treegen.review.printing import value_words
from treegen.review.shapes import FeatureSpace, Shape, complete, doublings, independent, outside

_WIDTH = 100
_LOUD = "bold red"
_RUNGS = 96  # quarter doublings that are tried on each side of a value


@dataclass(frozen=True)
class Question:
    """A question on the way to the row: is `feature <= at_most`?"""

    feature: str
    at_most: int
    value: int  # the shape's


@dataclass(frozen=True)
class Candidate:
    """A config of the cell, in the order in which they are tried."""

    config: str
    role: str  # the class of models, the row, a runner-up or the fallback
    broken: tuple[
        str, ...
    ]  # the constraints that it breaks, each with its numbers; the first that fits is launched


@dataclass(frozen=True)
class Alternative:
    """The nearest value of one feature, all else being equal, with which another config is launched."""

    feature: str
    value: int
    distance: float  # doublings
    config: str
    regime: str
    row: int
    model_class: str


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
    parameters: Mapping[str, int]
    regime: str
    row: int
    model_class: str
    path: tuple[Question, ...]
    candidates: tuple[Candidate, ...]
    alternatives: tuple[Alternative, ...]  # nearest first
    nearest: tuple[Neighbour, ...]  # nearest first


def explain(tuned: TunedModule, given: Mapping[str, int], top: int) -> Explanation:
    """Explain the shape of the given features. Raises InputError where they do not describe one.

    top: how many alternatives and neighbours to find.
    """
    problem, heuristic = tuned.problem, tuned.module.heuristic
    kernel, shape = problem.kernel, complete(given, problem)
    choice = choice_of(heuristic, shape.values, problem)
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
        config=kernel.constant_name(choice.config),
        parameters=dict(choice.config.parameters),
        regime=choice.regime,
        row=choice.row,
        model_class=choice.model_class,
        path=tuple(questions(heuristic, choice, shape.values)),
        candidates=tuple(candidates(heuristic, choice, shape.values, problem)),
        alternatives=alternatives(heuristic, choice, shape.values, problem)[:top],
        nearest=tuple(_neighbour(tuned, choice.config, shape, row, distances[row]) for row in nearest),
    )


def choice_of(heuristic: Heuristic, values: Mapping[str, int], problem: Problem) -> Choice:
    """What the module launches for a shape. Raises InputError where a question needs an unknown feature."""
    try:
        return choose(heuristic, problem.kernel, problem.device.limits, values)
    except KeyError as error:
        name = str(error.args[0])
        raw = ", ".join(problem.kernel.raw_parts([name])) or name
        what = f"the committed module asks about it, and the table of {problem.device.key}"
        raise InputError(name, f"{what} does not hold it; give {raw}") from None


def questions(heuristic: Heuristic, choice: Choice, values: Mapping[str, int]) -> Iterator[Question]:
    """The questions of the regime's tree on the way to the row."""
    tree = next(regime.tree for regime in heuristic.regimes if regime.name == choice.regime)
    while isinstance(tree, Split):
        value = values[tree.feature]
        yield Question(tree.feature, tree.threshold, value)
        tree = tree.low if value <= tree.threshold else tree.high


def candidates(
    heuristic: Heuristic, choice: Choice, values: Mapping[str, int], problem: Problem
) -> Iterator[Candidate]:
    """The configs of the shape's cell and the fallback, in the order in which they are tried."""
    kernel, known = problem.kernel, {**problem.device.limits, **values}
    row = next(r for r in heuristic.regimes if r.name == choice.regime).rows[choice.row]
    roles = ["row", *["runner-up"] * len(row.then)]
    if choice.model_class in row.others:
        roles.insert(0, f"class {choice.model_class}")
    for config, role in zip(row.candidates(choice.model_class), roles, strict=True):
        yield Candidate(kernel.constant_name(config), role, tuple(_broken(config, kernel, known)))
    yield Candidate(kernel.constant_name(kernel.fallback), "fallback", ())


def _broken(config: Config, kernel: KernelSpec, values: Mapping[str, int]) -> Iterator[str]:
    """The constraints that a config breaks, as the spec spells them, then with the numbers filled in."""
    known = {**values, **dict(config.parameters)}
    numbers = {expr.Name(name): expr.Number(value) for name, value in known.items()}
    for rule in kernel.constraints:
        if rule.binds(config) and rule.names <= known.keys() and not holds(rule, known):
            filled = expr.to_text(expr.replace(rule.test, numbers))  # type: ignore[arg-type]
            yield f"{rule.text}; here {filled}"


def alternatives(
    heuristic: Heuristic, choice: Choice, values: Mapping[str, int], problem: Problem
) -> tuple[Alternative, ...]:
    """For each feature, the nearest value with which another config is launched, nearest first.

    Raw features change what follows from them, within the invariants. Derived features that the regime's tree
    asks about change alone.
    """
    kernel, device = problem.kernel, problem.device
    tree = next(regime.tree for regime in heuristic.regimes if regime.name == choice.regime)
    free = [name for name in values if name in kernel.features or name in independent(problem)]
    found = []
    for name in dict.fromkeys([*free, *split_features(tree)]):
        rest = {other: value for other, value in values.items() if name not in free or other in free}

        def choice_at(value: int, name: str = name, rest: Mapping[str, int] = rest) -> Choice | None:
            """What else is launched with another value; None if nothing else is, or no shape has it."""
            there = kernel.with_derived({**device.limits, **rest, name: value})
            if name in free and broken_invariant(kernel, device, there) is not None:
                return None
            other = choose(heuristic, kernel, device.limits, there)
            return None if other.config == choice.config else other

        words = kernel.values.get(name, {})
        for value in sorted(words) if words else _nearest(values[name], lambda v: choice_at(v) is not None):
            if (other := choice_at(value)) is not None:
                away = abs(float(np.subtract(*doublings([values[name], value], words))))
                config = kernel.constant_name(other.config)
                place = other.regime, other.row, other.model_class
                found.append(Alternative(name, value, round(away, 6), config, *place))
    return tuple(sorted(found, key=lambda change: change.distance))


def _nearest(value: int, differs: Callable[[int], bool]) -> Iterator[int]:
    """The nearest greater and smaller values that differ: by quarter doublings, and then exactly."""
    for sign in (1, -1):
        same = value
        for rung in range(1, _RUNGS):
            other = round(max(1, value) * 2 ** (sign * rung / 4))
            if sign * (other - same) > 0 and differs(other):
                while abs(other - same) > 1:
                    middle = (same + other) // 2
                    same, other = (same, middle) if differs(middle) else (middle, other)
                yield other
                break
            same = other if sign * (other - same) > 0 else same


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
        best_time = tuned.times[row, best]
        says = "failed or may not run" if cost > UNTIMED else "was not timed"
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
    asked = dict.fromkeys(question.feature for question in path if question.feature not in raw)
    _lines(console, [f"so {_listed(asked, shape, kernel)}"] if asked else [])
    if explanation.source is not None:
        taken = _listed(explanation.assumed, shape, kernel)
        _lines(console, [f"not given, taken from scenario {explanation.source}: {taken}"])
    _heading(console, f"launches {explanation.config}")
    _lines(console, [_listed(explanation.parameters, explanation.parameters, kernel)])
    _heading(console, f"why: {explanation.regime}, row {explanation.row}, {explanation.model_class}")
    conditions = (
        ("regime", explanation.regime, kernel.regimes),
        ("class", explanation.model_class, kernel.classes),
    )
    _lines(console, (f"{what} {name}: {_condition(name, of)}" for what, name, of in conditions))
    for one in path:
        at_most, here = (value_words(one.feature, value, kernel) for value in (one.at_most, one.value))
        answer = "yes" if one.value <= one.at_most else "no"
        _lines(console, [f"{one.feature} <= {at_most}? {answer}, {here}"])
    _heading(console, "configs of this cell, in order")
    launched = False
    for candidate in explanation.candidates:
        says = "does not fit" if candidate.broken else "fits, too" if launched else "is launched"
        launched |= not candidate.broken
        _lines(console, [f"{candidate.config} ({candidate.role}) {says}"])
        _lines(console, candidate.broken, indent=4)
    if explanation.alternatives:
        _heading(console, "another config would be launched if, nearest first")
    for other in explanation.alternatives:
        change = f"{other.feature} were {value_words(other.feature, other.value, kernel)}"
        cell = f"{other.regime}, row {other.row}, {other.model_class}"
        _lines(console, [f"{change}, {other.distance:.2f} doublings away: {other.config} ({cell})"])
    _heading(console, "nearest measured scenarios")
    for near in explanation.nearest:
        _lines(console, [f"{near.scenario}, {near.distance:.2f} doublings away"])
        if near.differs:
            _lines(console, [f"there {_listed(near.differs, near.differs, kernel)}"], indent=4)
        launched_there = near.says if near.time is None else f"{_us(near.time)}, {near.says}"
        best = near.best if near.best_time is None else f"{_us(near.best_time)} with {near.best}"
        here = f"{launched_there}; best {best}" if near.best != explanation.config else launched_there
        _lines(console, [here], indent=4)


def _condition(name: str, entries: Sequence[Regime | ModelClass]) -> str:
    """The condition of a regime or class, as the spec spells it."""
    when = next(entry.when for entry in entries if entry.name == name)
    return "all" if len(entries) == 1 else "otherwise" if when is None else expr.to_text(when)


def _heading(console: Console, title: str, style: str = "bold") -> None:
    console.print("", Text(one_line(title), style), sep="\n")


def _lines(console: Console, lines: Iterable[str], style: str = "", indent: int = 2) -> None:
    for line in lines:  # text from outside may hold terminal escapes
        console.print(Padding(Text(one_line(line), style), (0, 0, 0, indent), expand=False))


def _listed(names: Iterable[str], values: Mapping[str, int], kernel: KernelSpec) -> str:
    return ", ".join(f"{name} {value_words(name, values[name], kernel)}" for name in names)


def _us(microseconds: float) -> str:
    return f"{microseconds:,.0f} us" if microseconds >= 100 else f"{microseconds:.3g} us"

"""`treegen explain`: the config of one shape, why, what would change it, and what was measured near it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from treegen.core import expr
from treegen.core.errors import InputError, one_line
from treegen.core.heuristic import Choice, Heuristic, Split, StepTree, broken, choose, split_features
from treegen.core.problem import UNTIMED, Problem, broken_invariant
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.review.modules import TunedModule
from treegen.review.printing import condition, microseconds, plain_console, value_words
from treegen.review.shapes import FeatureSpace, Shape, complete, doublings, independent, outside

_WIDTH = 100
_RUNGS = 96  # quarter doublings that are tried on each side of a value


Explanation = Mapping[str, Any]
"""Everything about one shape as plain data; docs/explain.md lists the keys. Configs are named by their
constants, and times are microseconds, None where none is known, as in a table of winners."""


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
    questions = list(_path(_tree(heuristic, choice), shape.values))
    conditions = (("regime", choice.regime, kernel.regimes), ("class", choice.model_class, kernel.classes))
    why = [
        f"{what} {name}: "
        + ("all" if len(of) == 1 else next(condition(one.when) for one in of if one.name == name))
        for what, name, of in conditions
    ]
    for split in questions:
        at_most, here = (
            value_words(split.feature, n, kernel) for n in (split.threshold, shape.values[split.feature])
        )
        answer = "yes" if shape.values[split.feature] <= split.threshold else "no"
        why.append(f"{split.feature} <= {at_most}? {answer}, {here}")
    return {
        "kernel": kernel.name,
        "device": problem.device.key,
        "other_devices": tuned.other_devices,
        "module": os.path.relpath(tuned.module.path, tuned.root),
        "table": os.path.relpath(problem.table.folder, tuned.root),
        "scenarios": len(problem.cost),
        "measured_on": problem.table.device_name,
        "shape": shape.values,
        "assumed": shape.assumed,
        "source": shape.source,
        "outside": outside(shape.values, problem, space),
        "config": kernel.constant_name(choice.config),
        "parameters": dict(choice.config.parameters),
        "cell": _cell(choice),
        "why": tuple(why),
        "asked": tuple(dict.fromkeys(split.feature for split in questions)),
        "candidates": tuple(candidates(heuristic, choice, shape.values, problem)),
        "alternatives": alternatives(heuristic, choice, shape.values, problem)[:top],
        "nearest": tuple(_neighbour(tuned, choice.config, shape, row, distances[row]) for row in nearest),
    }


def choice_of(heuristic: Heuristic, values: Mapping[str, int], problem: Problem) -> Choice:
    """What the module launches for a shape. Raises InputError where a question needs an unknown feature."""
    try:
        return choose(heuristic, problem.kernel, problem.device.limits, values)
    except KeyError as error:
        name = str(error.args[0])
        raw = ", ".join(problem.kernel.raw_parts([name])) or name
        what = f"the committed module asks about it, and the table of {problem.device.key}"
        raise InputError(name, f"{what} does not hold it; give {raw}") from None


def _cell(choice: Choice) -> str:
    return f"{choice.regime}, row {choice.row}, {choice.model_class}"


def _tree(heuristic: Heuristic, choice: Choice) -> StepTree:
    return next(regime.tree for regime in heuristic.regimes if regime.name == choice.regime)


def _path(tree: StepTree, values: Mapping[str, int]) -> Iterator[Split]:
    """The questions of a tree on the way to the row."""
    while isinstance(tree, Split):
        yield tree
        tree = tree.low if values[tree.feature] <= tree.threshold else tree.high


def candidates(
    heuristic: Heuristic, choice: Choice, values: Mapping[str, int], problem: Problem
) -> Iterator[dict[str, Any]]:
    """The configs of the shape's cell and the fallback, in the order in which they are tried."""
    kernel, known = problem.kernel, {**problem.device.limits, **values}
    row = next(r for r in heuristic.regimes if r.name == choice.regime).rows[choice.row]
    roles = ["row", *["runner-up"] * len(row.then)]
    if choice.model_class in row.others:
        roles.insert(0, f"class {choice.model_class}")
    for config, role in zip(row.candidates(choice.model_class), roles, strict=True):
        numbers = {**known, **dict(config.parameters)}
        filled = {expr.Name(name): expr.Number(value) for name, value in numbers.items()}
        said = [
            f"{rule.text}; here {expr.to_text(expr.replace(rule.test, filled))}"  # type: ignore[arg-type]
            for rule in broken(config, kernel, known)
        ]
        yield {"config": kernel.constant_name(config), "role": role, "broken": said}
    yield {"config": kernel.constant_name(kernel.fallback), "role": "fallback", "broken": []}


def alternatives(
    heuristic: Heuristic, choice: Choice, values: Mapping[str, int], problem: Problem
) -> list[dict[str, Any]]:
    """For each feature, the nearest value with which another config is launched, nearest first.

    Raw features change what follows from them, within the invariants. Derived features that the regime's tree
    asks about change alone.
    """
    kernel, device = problem.kernel, problem.device
    free = [name for name in values if name in kernel.features or name in independent(problem)]
    found = []
    for name in dict.fromkeys([*free, *split_features(_tree(heuristic, choice))]):
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
                named = {"feature": name, "value": value, "distance": round(away, 6)}
                found.append({**named, "config": kernel.constant_name(other.config), "cell": _cell(other)})
    return sorted(found, key=lambda change: change["distance"])


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


def _neighbour(tuned: TunedModule, config: Config, shape: Shape, row: int, distance: float) -> dict[str, Any]:
    """A measured scenario: how the launched config fares there."""
    problem = tuned.problem
    column = problem.configs.index(config) if config in problem.configs else None
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
    return {
        "scenario": problem.scenarios[row],
        "distance": float(distance),
        "differs": {name: value for name, value in there.items() if value != shape.values[name]},
        "time": time,
        "best": problem.kernel.constant_name(problem.configs[best]),
        "best_time": best_time,
        "says": says,
    }


def show(explanation: Explanation, kernel: KernelSpec, console: Console | None = None) -> None:
    """Print an explanation; colours only where the console has them."""
    console = console or plain_console(width=_WIDTH)
    one, shape = explanation, explanation["shape"]

    def listed(names: Iterable[str], values: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {value_words(name, values[name], kernel)}" for name in names)

    def part(title: str, lines: Iterable[str], style: str = "bold", of_lines: str = "") -> None:
        console.print("", Text(one_line(title), style), sep="\n")
        for line in lines:  # text from outside may hold terminal escapes
            indent = len(line) - len(line.lstrip()) + 2
            console.print(Padding(Text(one_line(line.lstrip()), of_lines), (0, 0, 0, indent), expand=False))

    about = [
        f"module {one['module']}",
        f"table {one['table']}, {one['scenarios']:,} scenarios on {one['measured_on']}",
    ]
    about += [f"other devices: {', '.join(one['other_devices'])}"] if one["other_devices"] else []
    console.print(Text(one_line(f"{one['kernel']} on {one['device']}"), "bold"))
    console.print(*(f"  {one_line(line)}" for line in about), sep="\n")
    if one["outside"]:
        part("OUTSIDE WHAT WAS TUNED", one["outside"], "bold red", "bold red")
    raw = [name for name in shape if name in kernel.features]
    derived = [name for name in one["asked"] if name not in raw]
    lines = [listed(raw, shape)] if raw else []
    lines += [f"so {listed(derived, shape)}"] if derived else []
    if one["source"] is not None:
        lines.append(f"not given, taken from scenario {one['source']}: {listed(one['assumed'], shape)}")
    part("shape", lines)
    part(f"launches {one['config']}", [listed(one["parameters"], one["parameters"])])
    part(f"why: {one['cell']}", one["why"])
    lines, launched = [], False
    for candidate in one["candidates"]:
        says = "does not fit" if candidate["broken"] else "fits, too" if launched else "is launched"
        launched |= not candidate["broken"]
        lines.append(f"{candidate['config']} ({candidate['role']}) {says}")
        lines += [f"  {broken}" for broken in candidate["broken"]]
    part("configs of this cell, in order", lines)
    lines = []
    for other in one["alternatives"]:
        value = value_words(other["feature"], other["value"], kernel)
        there = f"{other['feature']} were {value}, {other['distance']:.2f} doublings away"
        lines.append(f"{there}: {other['config']} ({other['cell']})")
    if lines:
        part("another config would be launched if, nearest first", lines)
    lines = []
    for near in one["nearest"]:
        lines.append(f"{near['scenario']}, {near['distance']:.2f} doublings away")
        lines += [f"  there {listed(near['differs'], near['differs'])}"] if near["differs"] else []
        here = near["says"] if near["time"] is None else f"{microseconds(near['time'])}, {near['says']}"
        if near["best"] != one["config"]:
            here += (
                "; best "
                + (f"{microseconds(near['best_time'])} with " if near["best_time"] else "")
                + near["best"]
            )
        lines.append(f"  {here}")
    part("nearest measured scenarios", lines)

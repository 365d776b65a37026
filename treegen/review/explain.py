"""`treegen explain`: the config of one shape, why, what would change it, and what was measured near it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from treegen.core import expr
from treegen.core.errors import InputError, one_line, shown
from treegen.core.heuristic import Choice, broken, choose, split_features
from treegen.core.launches import ABSENT
from treegen.core.problem import UNTIMED, Problem, broken_invariant
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.crossval.score import Floats, costs_of
from treegen.review.printing import condition, microseconds, plain_console, value_words
from treegen.write.modules import TunedModule

_RUNGS = 96  # quarter doublings that are tried on each side of a value
BITS = 62  # of the longest integer
_MOST_CHARACTERS = 40  # of an integer within 62 bits, with any grouping
_INTEGER = re.compile(r"-?[0-9]+(_[0-9]+)*")
_APART = 16.0  # doublings between two words
_SAMPLE = 2048  # scenarios whose nearest others are looked up
_FEW = 16  # a feature with at most this many values is a kind of shape, not a size ...
_EACH = 10  # ... if each value has at least this many scenarios on average


def explain(tuned: TunedModule, given: Mapping[str, int], top: int) -> dict[str, Any]:
    """Everything about a shape as plain data, with `top` alternatives and neighbours.

    docs/explain.md lists the keys. Configs are named by their constants; times are microseconds, None where
    none is known, as in a table of winners. Raises InputError if no shape is like it.
    """
    problem, shape = tuned.problem, complete(given, tuned.problem)
    kernel, values = problem.kernel, shape.values
    choice = choice_of(tuned, values)
    space = FeatureSpace(problem)
    why = []
    conditions = ("regime", choice.regime.name, kernel.regimes), ("class", choice.model_class, kernel.classes)
    for what, name, of in conditions:
        when = next(condition(one.when) for one in of if one.name == name)
        why.append(f"{what} {name}: {'all' if len(of) == 1 else when}")
    for question in choice.asked:
        name, here = question.feature, values[question.feature]
        at_most, of_shape = (value_words(name, value, kernel) for value in (question.threshold, here))
        why.append(f"{name} <= {at_most}? {'yes' if here <= question.threshold else 'no'}, {of_shape}")
    return {
        "kernel": kernel.name,
        "device": problem.device.key,
        "other_devices": tuned.other_devices,
        "module": os.path.relpath(tuned.module.path, tuned.root),
        "table": os.path.relpath(problem.table.folder, tuned.root),
        "scenarios": len(problem.cost),
        "measured_on": problem.table.device_name,
        "shape": values,
        "assumed": shape.assumed,
        "source": shape.source,
        "outside": outside(values, problem, space),
        "config": kernel.constant_name(choice.config),
        "parameters": dict(choice.config.parameters),
        "cell": _cell(choice),
        "why": tuple(why),
        "asked": tuple(dict.fromkeys(question.feature for question in choice.asked)),
        "candidates": tuple(candidates(tuned, choice, values)),
        "alternatives": alternatives(tuned, choice, values)[:top],
        "nearest": tuple(_neighbours(problem, choice.config, values, space.distances(values), top)),
    }


def choice_of(tuned: TunedModule, values: Mapping[str, int]) -> Choice:
    """What the module launches for a shape. Raises InputError where a question needs an unknown feature."""
    kernel, device = tuned.problem.kernel, tuned.problem.device
    try:
        return choose(tuned.module.heuristic, kernel, device.limits, values)
    except KeyError as error:
        name = str(error.args[0])
        raw = ", ".join(kernel.raw_parts([name])) or name
        what = f"the committed module asks about it, and the table of {device.key}"
        raise InputError(name, f"{what} does not hold it; give {raw}") from None


def _cell(choice: Choice) -> str:
    return f"{choice.regime.name}, row {choice.row}, {choice.model_class}"


def candidates(tuned: TunedModule, choice: Choice, values: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The configs of the shape's cell and the fallback, in the order in which they are tried."""
    kernel, known = tuned.problem.kernel, {**tuned.problem.device.limits, **values}
    row = choice.regime.rows[choice.row]
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


def alternatives(tuned: TunedModule, choice: Choice, values: Mapping[str, int]) -> list[dict[str, Any]]:
    """For each feature, the nearest value with which another config is launched, nearest first.

    Raw features change what follows from them, within the invariants. Derived features that the regime's tree
    asks about change alone.
    """
    kernel, device = tuned.problem.kernel, tuned.problem.device
    free = [name for name in values if name in kernel.features or name in tuned.problem.independent]
    found = []
    for name in dict.fromkeys([*free, *split_features(choice.regime.tree)]):
        rest = {other: value for other, value in values.items() if name not in free or other in free}

        def choice_at(value: int, name: str = name, rest: Mapping[str, int] = rest) -> Choice | None:
            """What else is launched with another value; None if nothing else is, or no shape has it."""
            there = kernel.with_derived({**device.limits, **rest, name: value})
            if name in free and broken_invariant(kernel, device, there) is not None:
                return None
            other = choose(tuned.module.heuristic, kernel, device.limits, there)
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
        rungs = (round(max(1, value) * 2 ** (sign * rung / 4)) for rung in range(1, _RUNGS))
        for other in (rung for rung in rungs if sign * (rung - value) > 0):
            if differs(other):
                while abs(other - same) > 1:
                    middle = (same + other) // 2
                    same, other = (same, middle) if differs(middle) else (middle, other)
                yield other
                break
            same = other


def _neighbours(
    problem: Problem, config: Config, values: Mapping[str, int], distances: Floats, top: int
) -> Iterator[dict[str, Any]]:
    """The nearest measured scenarios: how the launched config fares there."""
    column = problem.configs.index(config) if config in problem.configs else ABSENT
    costs, times = costs_of(np.full(len(distances), column), problem), problem.times()
    measured = problem.table.cells is Cells.MEASURED
    same = (problem.features == [values[name] for name in problem.names]).all(axis=1)
    for row in np.lexsort((~same, distances))[:top].tolist():
        best = column if costs[row] <= 0 else int(np.argmin(problem.cost[row]))
        time = times[row, column] if measured and costs[row] < UNTIMED else None
        if costs[row] <= 0:
            says = "the best" if measured else "won"
        elif time is not None:
            says = f"{time / times[row, best]:.2f}x the best"
        else:
            says = "failed or may not run" if costs[row] > UNTIMED else "was not timed"
            says = says if measured else "did not win"
        there = {name: int(problem.column(name)[row]) for name in problem.independent}
        yield {
            "scenario": problem.scenarios[row],
            "distance": float(distances[row]),
            "differs": {name: value for name, value in there.items() if value != values[name]},
            "time": time,
            "best": problem.kernel.constant_name(problem.configs[best]),
            "best_time": times[row, best] if measured else None,
            "says": says,
        }


def show(explanation: Mapping[str, Any], kernel: KernelSpec, console: Console | None = None) -> None:
    """Print an explanation; colours only where the console has them."""
    console = console or plain_console(width=100)
    one, shape = explanation, explanation["shape"]

    def listed(names: Iterable[str], values: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {value_words(name, values[name], kernel)}" for name in names)

    def part(title: str, lines: Iterable[str], style: str = "bold", of_lines: str = "") -> None:
        console.print("", Text(one_line(title), style), sep="\n")
        for line in lines:  # text from outside may hold terminal escapes
            indent = len(line) - len(line.lstrip()) + 2
            console.print(Padding(Text(one_line(line.lstrip()), of_lines), (0, 0, 0, indent), expand=False))

    of_table = f"table {one['table']}, {one['scenarios']:,} scenarios on {one['measured_on']}"
    about = [f"module {one['module']}", of_table]
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
            time = f"{microseconds(near['best_time'])} with " if near["best_time"] else ""
            here += f"; best {time}{near['best']}"
        lines.append(f"  {here}")
    part("nearest measured scenarios", lines)


class Shape(NamedTuple):
    """A value for every known feature."""

    values: Mapping[str, int]  # in the spec's order
    assumed: tuple[str, ...]  # taken from the scenario `source`
    source: str | None


def parse_features(words: Sequence[str], values: Mapping[str, Mapping[int, str]]) -> dict[str, int]:
    """The integers that arguments such as `num_seqs=8` or `max_seq_len=4_096` give to features.

    values: the spec's words for values, so that `dtype=bf16` is understood as well. Raises InputError for an
    argument without `=`, a name given twice, and a value that is not an integer within 62 bits.
    """
    given: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        place = word if len(word) <= 60 else word[:57] + "..."
        if not equals or not name:
            raise InputError(place or "''", "must be feature=value, such as num_seqs=8")
        known = values.get(name, {})
        text = next((str(number) for number, of_value in known.items() if of_value == text), text)
        if not _INTEGER.fullmatch(text):
            kind = f"one of {', '.join(known.values())}" if known else "an integer, such as 4096 or 4_096"
            raise InputError(place, f"the value must be {kind}")
        if len(text) > _MOST_CHARACTERS or int(text).bit_length() > BITS:
            raise InputError(place, f"the value must be an integer within {BITS} bits")
        if name in given:
            raise InputError(place, "the feature is given twice")
        given[name] = int(text)
    return given


def doublings(values: npt.ArrayLike, words: Iterable[int] = ()) -> Floats:
    """Positions on an axis where a value twice as large is 1 away.

    words: the integers that stand for words, so far apart that shapes with the same words are nearer.
    """
    if kinds := sorted(words):
        return np.asarray(_APART * np.searchsorted(kinds, values))
    return np.log2(np.maximum(values, 0.5).astype(np.float64))  # 0 is one doubling below 1


class FeatureSpace:
    """The scenarios of a problem as points, in doublings; by default over raw features and `split_on`."""

    def __init__(self, problem: Problem, names: Iterable[str] | None = None) -> None:
        if names is None:
            names = [n for n in problem.names if n in problem.kernel.features or n in problem.split_on]
        self._words = {name: problem.kernel.values.get(name, {}) for name in names}
        columns = [doublings(problem.column(name), words) for name, words in self._words.items()]
        self.points = np.stack(columns, axis=1)  # [scenarios, names]

    def distances(self, values: Mapping[str, int]) -> Floats:
        """[scenarios] Euclidean distance of a shape to each, in steps of 10^-6 so that ties are exact."""
        at = np.array([doublings(values[name], words) for name, words in self._words.items()])
        return np.asarray(np.linalg.norm(self.points - at, axis=1).round(6))

    def usual(self) -> float:
        """The distance within which 99% of the scenarios have another; 0 if there is only one."""
        points = np.unique(self.points, axis=0)
        sample = points[:: 1 + len(points) // _SAMPLE]
        nearest = [np.sort(np.linalg.norm(points - one, axis=1))[:2].max() for one in sample]
        return float(np.quantile(nearest, 0.99, method="inverted_cdf"))


def complete(given: Mapping[str, int], problem: Problem) -> Shape:
    """Find a value for at least every feature that the table holds.

    A feature that is neither given nor implied comes from the scenario that is nearest in the known features;
    of equally near ones, from the one nearest to their median. A scenario with which the shape breaks an
    invariant is passed over. Raises InputError for a feature that is unknown or follows from others, and for
    a shape that breaks an invariant.
    """
    kernel, device = problem.kernel, problem.device
    needed = problem.independent
    for name, value in given.items():
        if name in kernel.derived and name not in needed:
            parts = ", ".join(kernel.raw_parts([name])) or "other features"
            formula = expr.to_text(kernel.derived[name])
            raise InputError(f"{name}={value}", f"follows from {formula}; give {parts} instead")
        if name not in kernel.features and name not in needed:
            known_names = dict.fromkeys([*kernel.features, *needed])
            raise InputError(shown(name), f"unknown feature; known: {', '.join(known_names)}")
    known, shape = _implied(given, problem), " ".join(f"{name}={value}" for name, value in given.items())
    if (rule := broken_invariant(kernel, device, known)) is not None:
        raise InputError(shape, f"no shape is like this, as it breaks the invariant {shown(rule.text)}")
    if all(name in known for name in needed):
        return Shape(known, (), None)
    for row in _nearest_first(known, problem):
        values, assumed = known, []
        # Raw features first: together with the given ones they may imply a derived column of the table.
        for part in (kernel.features, kernel.derived):
            added = [name for name in part if name in needed and name not in values]
            values = _implied({**values, **{n: int(problem.column(n)[row]) for n in added}}, problem)
            assumed += added
        if (rule := broken_invariant(kernel, device, values)) is None:
            return Shape(values, tuple(assumed), problem.scenarios[row])
    assert rule is not None  # a problem has a row
    what = f"breaks an invariant with every scenario's other features, such as {shown(rule.text)}"
    raise InputError(shape, what)


def outside(values: Mapping[str, int], problem: Problem, space: FeatureSpace) -> tuple[str, ...]:
    """Why a shape lies outside the tuned ones, a line for each reason; none if it lies inside."""
    kernel, lines = problem.kernel, []
    for name in problem.names:
        measured, value = np.unique(problem.column(name)), values[name]
        least, greatest = int(measured[0]), int(measured[-1])
        here = f"{name} {value_words(name, value, kernel)}"
        if not least <= value <= greatest:
            ends = dict.fromkeys(value_words(name, end, kernel) for end in (least, greatest))
            lines.append(f"{here}: the table measured {' to '.join(ends)}")
        elif value not in measured and len(measured) <= min(_FEW, len(problem.cost) // _EACH):
            place = int(np.searchsorted(measured, value))
            around = (value_words(name, int(one), kernel) for one in measured[place - 1 : place + 1])
            lines.append(f"{here}: the table measured {' and '.join(around)}, nothing between")
    distance, usual = float(space.distances(values).min()), space.usual()
    if distance > usual > 0:
        others = f"99% of the scenarios have another within {usual:.2f}"
        lines.append(f"the nearest scenario is {distance:.2f} doublings away; {others}")
    return tuple(lines)


def _implied(known: Mapping[str, int], problem: Problem) -> dict[str, int]:
    """The known features and all that follow from them, in the spec's order."""
    kernel, limits = problem.kernel, problem.device.limits
    values = dict(known)
    for name, expression in kernel.derived.items():
        if not expr.names(expression) <= {*values, *limits}:
            continue
        value, formula = expr.evaluate(expression, {**limits, **values}), expr.to_text(expression)
        if value.bit_length() > BITS:
            raise InputError(name, f"{formula} grows beyond {BITS} bits")
        if values.setdefault(name, value) != value:
            raise InputError(f"{name}={values[name]}", f"{formula} is {value}; give only one of them")
    return {name: values[name] for name in (*kernel.features, *kernel.derived) if name in values}


def _nearest_first(known: Mapping[str, int], problem: Problem) -> list[int]:
    """The rows of the problem, nearest first; of equally near ones, first those near the nearest's median."""
    names = [name for name in problem.names if name in known]
    if not names:
        choice = ", ".join(problem.independent)
        raise InputError(problem.table.folder, f"holds none of the given features; give one of {choice}")
    distances, points = FeatureSpace(problem, names).distances(known), FeatureSpace(problem).points
    median = np.median(points[distances == distances.min()], axis=0)
    order: list[int] = np.lexsort((((points - median) ** 2).sum(axis=1).round(6), distances)).tolist()
    return order

"""What a module launches: for each regime a shallow tree that leads to rows, and in each row the configs.

The fit makes a `Heuristic`, the emitters print it, and the functions here say what the printed module does.
Everything is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from treegen.core.expr import evaluate
from treegen.core.problem import holds
from treegen.core.spec import Config, Constraint, KernelSpec, ModelClass, Regime


@dataclass(frozen=True)
class Split:
    """A question `feature <= threshold` about a step."""

    feature: str
    threshold: int
    low: StepTree  # where feature <= threshold
    high: StepTree  # elsewhere


StepTree = int | Split
"""The number of a row, or a question that leads to one."""


@dataclass(frozen=True)
class Row:
    """The configs of a kind of step."""

    config: Config  # of most classes
    others: Mapping[str, Config] = field(default_factory=dict)  # by the name of a class of models
    then: tuple[Config, ...] = ()  # tried in order where these break a constraint
    comment: str = field(default="", compare=False)  # how good the row is, by the table of the build

    def candidates(self, model_class: str) -> Iterator[Config]:
        """The configs for models of a class, best first; the kernel's fallback follows them."""
        if model_class in self.others:
            yield self.others[model_class]
        yield self.config
        yield from self.then


@dataclass(frozen=True)
class RegimeRows:
    name: str
    tree: StepTree
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Heuristic:
    """What is launched on one device."""

    regimes: tuple[RegimeRows, ...]  # in the spec's order; none where the fallback is always launched

    @property
    def configs(self) -> tuple[Config, ...]:
        """Every config that may be launched besides the fallback, in order."""
        rows = [row for regime in self.regimes for row in regime.rows]
        return tuple(sorted({c for row in rows for c in (row.config, *row.others.values(), *row.then)}))


class Choice(NamedTuple):
    """What is launched for a shape, and why."""

    config: Config
    regime: RegimeRows
    asked: tuple[Split, ...]  # the questions that lead to the row
    row: int
    model_class: str


def choose(
    heuristic: Heuristic, kernel: KernelSpec, limits: Mapping[str, int], values: Mapping[str, int]
) -> Choice:
    """The choice for a shape. values: raw features, and derived ones that cannot be computed from these."""
    shape = kernel.with_derived({**limits, **values})
    model_class = first(kernel.classes, shape)
    if not heuristic.regimes:
        return Choice(kernel.fallback, RegimeRows("", 0, ()), (), 0, model_class)
    regime = next(r for r in heuristic.regimes if r.name == first(kernel.regimes, shape))
    number, asked = regime.tree, []
    while isinstance(number, Split):
        asked.append(number)
        number = number.low if shape[number.feature] <= number.threshold else number.high
    fitting = (c for c in regime.rows[number].candidates(model_class) if fits(c, kernel, shape))
    return Choice(next(fitting, kernel.fallback), regime, tuple(asked), number, model_class)


def first(entries: tuple[Regime, ...] | tuple[ModelClass, ...], values: Mapping[str, int]) -> str:
    """The name of the first regime or class whose condition holds."""
    return next(entry.name for entry in entries if entry.when is None or evaluate(entry.when, values))


def broken(config: Config, kernel: KernelSpec, values: Mapping[str, int]) -> Iterator[Constraint]:
    """The constraints that a config breaks, of those that the known values of features and limits decide."""
    known = {**values, **dict(config.parameters)}
    for rule in kernel.constraints:
        if rule.binds(config) and rule.names <= known.keys() and not holds(rule, known):
            yield rule


def fits(config: Config, kernel: KernelSpec, values: Mapping[str, int]) -> bool:
    """Return whether a config meets all constraints that the known values of features and limits decide."""
    return next(broken(config, kernel, values), None) is None


def is_of(heuristic: Heuristic, kernel: KernelSpec) -> bool:
    """Return whether a heuristic has the regimes of a kernel, if any, and asks about its features alone."""
    names = [regime.name for regime in heuristic.regimes]
    asked = {name for regime in heuristic.regimes for name in split_features(regime.tree)}
    return names in ([], [r.name for r in kernel.regimes]) and asked <= {*kernel.features, *kernel.derived}


def questions(tree: StepTree) -> Iterator[Split]:
    """The questions of a tree, each before those of its low side and then those of its high side."""
    if isinstance(tree, Split):
        yield tree
        yield from questions(tree.low)
        yield from questions(tree.high)


def split_features(tree: StepTree) -> tuple[str, ...]:
    """The features that a tree asks about, the root's first."""
    return tuple(dict.fromkeys(split.feature for split in questions(tree)))


def depth(tree: StepTree) -> int:
    """The number of questions on the longest way to a row."""
    return 0 if isinstance(tree, int) else 1 + max(depth(tree.low), depth(tree.high))

"""Print a heuristic as a Python module, through the templates beside this file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from treegen.core import expr
from treegen.core.heuristic import Heuristic, RegimeRows, Split, StepTree, broken, split_features
from treegen.core.spec import Constraint, KernelSpec
from treegen.emit.templating import assignments, indented, rendered


def device_module(kernel: KernelSpec, device: str, limits: Mapping[str, int], heuristic: Heuristic) -> str:
    """The module of one device: its configs, rows, a function for each tree, `for_model` and `choose`."""
    module = _Module(kernel, limits, heuristic)
    return rendered("device.py.j2", kernel=kernel, device=device, module=module)


class _Regime(NamedTuple):
    """A regime as the template prints it."""

    name: str
    condition: str | None
    rows: list[tuple[str, str]]  # the arguments of each row, and the comment behind it
    asked: list[str]  # the arguments of the tree's function
    tree: list[str]  # its lines
    before: list[str]  # lines in front of its call


class _Module:
    """What the template prints of a heuristic."""

    def __init__(self, kernel: KernelSpec, limits: Mapping[str, int], heuristic: Heuristic) -> None:
        self._kernel, self._limits, self._heuristic = kernel, limits, heuristic
        self._derived = {name: self._filled(known) for name, known in kernel.derived.items()}
        self._order = [*kernel.features, *kernel.derived]
        self._fixed = set(kernel.fixed)
        self.constants = [(kernel.constant_name(c), c) for c in sorted({*heuristic.configs, kernel.fallback})]
        self.fallback = kernel.constant_name(kernel.fallback)
        rules = self._rules()
        self.model_rules = [text for rule, text in rules if self._features(rule.test) <= self._fixed]
        self.step_rules = [text for rule, text in rules if not self._features(rule.test) <= self._fixed]
        conditions = {r.name: r.when for r in kernel.regimes}
        asked_first = [when for r in heuristic.regimes if (when := conditions[r.name]) is not None]
        shared = {n for when in asked_first for n in self._features(when)}
        asked = [self._features(rule.test) for rule, _ in rules]
        shared |= {name for features in asked if not features <= self._fixed for name in features}
        trees = {regime.name: split_features(regime.tree) for regime in heuristic.regimes}
        known = set(kernel.features)
        of_rules = {name for rule, _ in rules for name in self._features(rule.test) & self._fixed}
        self.before_rules = self._assignments(of_rules, set(known))
        self.classes, self.before_classes = self._classes(set(known))
        of_steps = set(expr.with_parts(shared.union(*trees.values()), self._derived)) & self._fixed
        self.before_model = self._assignments(of_steps, known)
        common = [set(expr.with_parts(features, self._derived)) for features in trees.values()]
        shared |= set.intersection(*common) if common else set()
        self.before_step = self._assignments(shared, known)
        self.regimes = [
            _Regime(
                regime.name,
                None if (when := conditions[regime.name]) is None else self._text(when),
                self._rows(regime),
                sorted(trees[regime.name], key=self._order.index),
                list(_statements(regime.tree)),
                self._assignments(trees[regime.name], set(known)),
            )
            for regime in heuristic.regimes
        ]

    @property
    def model_arguments(self) -> str:
        return ", ".join(f"{name}: int" for name in self._kernel.constants)

    @property
    def by_model(self) -> bool:
        """Whether the model alone decides: there is one row, and no constraint asks about a step."""
        only = [regime for regime in self.regimes if regime.condition is None and len(regime.tree) == 1]
        return len(self.regimes) <= len(only) and not self.step_rules

    @property
    def arguments(self) -> Iterator[str]:
        """What the module's `heuristic` is made of."""
        yield self.fallback
        if self.regimes:
            regimes = "".join(f"{regime.name.upper()}, " for regime in self.regimes)
            yield f"({regimes.removesuffix(' ' if len(self.regimes) == 1 else ', ')})"
        printed = (not self.by_model, self.model_rules, self.classes)
        functions = ("step_of_model", "fits", "model_class")
        yield from (f"{name}={name}" for name in itertools.compress(functions, printed))

    def _classes(self, known: set[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
        """The name and the condition of each class, if any row asks for it; and lines in front of these."""
        if not any(row.others for regime in self._heuristic.regimes for row in regime.rows):
            return [], []
        classes = [(c.name, None if c.when is None else self._filled(c.when)) for c in self._kernel.classes]
        asked = {name for _, when in classes if when is not None for name in self._features(when)}
        printed = [(name, None if when is None else expr.to_python(when)) for name, when in classes]
        return printed, self._assignments(asked, known)

    def _rows(self, regime: RegimeRows) -> list[tuple[str, str]]:
        name = self._kernel.constant_name
        order = [c.name for c in self._kernel.classes]
        lines = []
        for number, row in enumerate(regime.rows):
            cells = sorted(row.others.items(), key=lambda cell: order.index(cell[0]))
            others = ", ".join(f'"{model_class}": {name(config)}' for model_class, config in cells)
            then = "".join(f"{name(config)}, " for config in row.then)
            then = then if len(row.then) == 1 else then.removesuffix(", ")
            comment = f"{number}: {row.comment}" if row.comment else str(number)
            lines.append((f"{name(row.config)}, {{{others}}}, ({then.strip()})", comment))
        return lines

    def _features(self, expression: expr.Expression) -> set[str]:
        return {name for name in expr.names(expression) if name in self._order}

    def _filled(self, expression: expr.Expression) -> expr.Expression:
        return expr.simplified(expr.substitute(expression, self._limits))

    def _text(self, expression: expr.Expression, outer: int = 0) -> str:
        return expr.to_python(self._filled(expression), outer)

    def _assignments(self, names: Iterable[str], known: set[str]) -> list[str]:
        """Lines that compute derived features and their parts, each once; `known` grows by them."""

        def text(name: str) -> str:
            return expr.to_python(self._derived[name], fast=name not in self._fixed)

        return list(assignments(names, self._derived, known, text))

    def _rules(self) -> list[tuple[Constraint, str]]:
        """The constraints that some config of the module may break, as conditions on `config`."""
        configs = self._heuristic.configs
        variants = {config.variant for config in configs}
        rules = []
        for rule in self._kernel.constraints:
            bound = [config for config in configs if rule.binds(config)]
            breaks = any(rule in broken(config, self._kernel, self._limits) for config in bound)
            if not bound or not (breaks or self._features(rule.test)):
                continue
            of_config = {expr.Name(p): expr.Name(f"config.{p}") for p in self._kernel.parameters}
            test = expr.replace(rule.test, of_config)  # type: ignore[arg-type]
            names = {config.variant for config in bound}
            if names == variants:
                text = self._text(test)
            else:
                quoted = ", ".join(f'"{name}"' for name in sorted(names))
                other = f"config.variant {f'!= {quoted}' if len(names) == 1 else f'not in ({quoted})'}"
                text = f"{other} or {self._text(test, expr.PRECEDENCE['or'])}"
            rules.append((rule, text))
        return rules


def _statements(tree: StepTree) -> Iterator[str]:
    """If-else statements that return the number of a row; a side that is a row is printed first."""
    if isinstance(tree, int):
        yield f"return {tree}"
        return
    first, second, sign = tree.low, tree.high, "<="
    if isinstance(second, int) and isinstance(first, Split):
        first, second, sign = second, first, ">"
    yield f"if {tree.feature} {sign} {expr.number(tree.threshold)}:"
    yield from indented(_statements(first))
    yield from _statements(second)

"""Print a heuristic as a Python module, through the templates beside this file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from treegen.core import expr
from treegen.core.heuristic import Heuristic, Row, Split, StepTree, broken, split_features
from treegen.core.spec import KernelSpec
from treegen.emit.templating import assignments, indented, rendered


def device_module(kernel: KernelSpec, device: str, limits: Mapping[str, int], heuristic: Heuristic) -> str:
    """The module of one device: its configs, rows, a function for each tree, `for_model` and `choose`."""
    module = _Module(kernel, limits, heuristic)
    return rendered("device.py.j2", kernel=kernel, device=device, module=module)


class _Regime(NamedTuple):
    """A regime as the template prints it."""

    name: str
    condition: str | None
    rows: tuple[Row, ...]
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
        self.configs = sorted({*heuristic.configs, kernel.fallback})
        rules = self._rules()
        self.model_rules = [text for text, asked in rules if asked <= self._fixed]
        self.step_rules = [text for text, asked in rules if not asked <= self._fixed]
        known = set(kernel.features)
        of_rules = {name for _, asked in rules for name in asked & self._fixed}
        self.before_rules = self._assignments(of_rules, set(known))
        by_class = any(row.others for regime in heuristic.regimes for row in regime.rows)
        whens = {c.name: c.when and self._filled(c.when) for c in kernel.classes if by_class}
        self.classes = {name: when and expr.to_python(when) for name, when in whens.items()}
        of_classes = {name for when in whens.values() if when for name in self._features(when)}
        self.before_classes = self._assignments(of_classes, set(known))
        conditions = {r.name: r.when for r in kernel.regimes}
        asked_first = [when for r in heuristic.regimes if (when := conditions[r.name]) is not None]
        shared = {name for when in asked_first for name in self._features(when)}
        shared |= {name for _, asked in rules if not asked <= self._fixed for name in asked}
        trees = {regime.name: split_features(regime.tree) for regime in heuristic.regimes}
        of_steps = set(expr.with_parts(shared.union(*trees.values()), self._derived)) & self._fixed
        self.before_model = self._assignments(of_steps, known)
        common = [set(expr.with_parts(features, self._derived)) for features in trees.values()]
        shared |= set.intersection(*common) if common else set()
        self.before_step = self._assignments(shared, known)
        self.regimes = [
            _Regime(
                regime.name,
                None if (when := conditions[regime.name]) is None else self._text(when),
                regime.rows,
                sorted(trees[regime.name], key=self._order.index),
                list(_statements(regime.tree)),
                self._assignments(trees[regime.name], set(known)),
            )
            for regime in heuristic.regimes
        ]
        # Whether the model alone decides: there is one row, and no constraint asks about a step.
        one_row = all(regime.condition is None and len(regime.tree) == 1 for regime in self.regimes)
        self.by_model = one_row and not self.step_rules

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

    def _rules(self) -> list[tuple[str, set[str]]]:
        """The constraints that some config of the module may break, on `config`, and the features of each."""
        configs = self._heuristic.configs
        variants = {config.variant for config in configs}
        of_config = {expr.Name(p): expr.Name(f"config.{p}") for p in self._kernel.parameters}
        rules = []
        for rule in self._kernel.constraints:
            bound = [config for config in configs if rule.binds(config)]
            breaks = any(rule in broken(config, self._kernel, self._limits) for config in bound)
            features = self._features(rule.test)
            if not bound or not (breaks or features):
                continue
            test = expr.replace(rule.test, of_config)  # type: ignore[arg-type]
            names = sorted({config.variant for config in bound})
            if set(names) == variants:
                text = self._text(test)
            else:
                quoted = ", ".join(f'"{name}"' for name in names)
                other = f"!= {quoted}" if len(names) == 1 else f"not in ({quoted})"
                text = f"config.variant {other} or {self._text(test, expr.PRECEDENCE['or'])}"
            rules.append((text, features))
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

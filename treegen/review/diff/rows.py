"""What changed between two heuristics: bounds, cells, runners-up; and the spec behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.heuristic import Choice, RegimeRows, Row, Split, StepTree
from treegen.core.spec import Config, Constraint, KernelSpec
from treegen.review.diff.decisions import in_parameters_of, translated
from treegen.review.diff.prices import PricedChoices
from treegen.review.modules import Module
from treegen.review.printing import counted


@dataclass(frozen=True)
class Line:
    """One thing that changed, and the choices that changed with it."""

    what: str
    scenarios: frozenset[str]  # ids of the measured scenarios that it explains
    is_tree: bool = False  # whether it tells that the tree is another, so that cells are listed by pairs


def signature_changes(old: KernelSpec, new: KernelSpec) -> Iterator[str]:
    """What breaks callers of the functions that a module prints. All but choose() take arguments by place."""
    functions = [
        ("choose()", old.features, new.features),
        ("for_model()", old.constants, new.constants),
        ("the function of a step", old.steps, new.steps),
    ]
    if old.in_kernel and new.in_kernel:
        functions.append(("row() for Triton", old.features, new.features))
    for what, before, after in functions:
        parts = [f"without {name}" for name in before if name not in after]
        parts += [f"with {name}" for name in after if name not in before]
        if not parts and before != after and what != "choose()":
            parts = [f"in the order {', '.join(after)}"]
        if parts:
            yield f"{what} {', '.join(parts)}"


def spec_changes(old: Module, new: Module) -> Iterator[str]:
    """What else the two specs say differently about what is launched."""
    before, after = _sections(old), _sections(new)
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        if one is None or other is None:
            text = one or other
            yield f"{name} is {'new' if one is None else 'gone'}" + (f": {text}" if text else "")
        else:
            yield f"{name}: {one} -> {other}"


def _sections(module: Module) -> dict[str, str]:
    kernel = module.kernel
    entries = {f"feature {name}": expr.to_text(formula) for name, formula in kernel.derived.items()}
    whens = [(f"regime {entry.name}", entry.when) for entry in kernel.regimes]
    whens += [(f"class {entry.name}", entry.when) for entry in kernel.classes]
    for name, when in whens:
        entries[name] = "otherwise" if when is None else expr.to_text(when)
    names = [*(regime.name for regime in kernel.regimes), *(entry.name for entry in kernel.classes)]
    entries["order of regimes and classes"] = ", ".join(names)
    entries |= {f"constraint {_constraint(rule)}": "" for rule in kernel.constraints}
    entries |= {f"limit {name}": str(value) for name, value in module.device.limits.items()}
    entries["fallback"] = kernel.constant_name(kernel.fallback)
    return entries


def _constraint(rule: Constraint) -> str:
    return rule.text + (f" ({', '.join(rule.variants)})" if rule.variants else "")


def same_data(old: Module, new: Module) -> bool:
    """Whether two modules are printed from the same rows, and their specs say the same about launches."""
    rows = in_parameters_of(new.kernel, old) == new.heuristic
    fallback = translated(old.kernel.fallback, new.kernel) == new.kernel.fallback
    if not new.heuristic.regimes:
        return rows and fallback
    one, other = ({k: v for k, v in _sections(m).items() if k != "fallback"} for m in (old, new))
    return rows and fallback and one == other


def line_changes(old: Module, new: Module, choices: PricedChoices | None) -> list[Line]:
    """A line for each bound, cell and list of runners-up that changed, or for each pair of cells."""
    return _Comparison(old, new, choices).lines()


class _Comparison:
    def __init__(self, old: Module, new: Module, choices: PricedChoices | None) -> None:
        self.old, self.new, self.choices = old, new, choices
        self.kernel = new.kernel
        self.name = new.kernel.constant_name
        self.left: dict[int, tuple[Choice, Choice]] = {}  # scenarios that no line explains yet
        if choices is not None:
            for row, (one, other) in enumerate(zip(choices.old, choices.new, strict=True)):
                if one is not None and other is not None and one.config != other.config:
                    self.left[row] = one, other

    def lines(self) -> list[Line]:
        before, after = in_parameters_of(self.kernel, self.old), self.new.heuristic
        found: list[Line] = []
        if self._conditions(self.old.kernel) == self._conditions(self.kernel):
            olds = {regime.name: regime for regime in before.regimes}
            for regime in after.regimes:
                if regime.name in olds:
                    found += self._regime(olds[regime.name], regime)
        return found + self._pairs()

    def _conditions(self, kernel: KernelSpec) -> tuple[object, ...]:
        return (
            tuple((r.name, r.when) for r in kernel.regimes),
            tuple((c.name, c.when) for c in kernel.classes),
        )

    def _line(self, what: str, rows: list[int]) -> Line:
        for row in rows:
            del self.left[row]
        ids = () if self.choices is None else (self.choices.problem.scenarios[row] for row in rows)
        return Line(what, frozenset(ids))

    def _regime(self, old: RegimeRows, new: RegimeRows) -> list[Line]:
        if _questions(old.tree) != _questions(new.tree):
            rows = f"{len(old.rows)} rows before, {counted(len(new.rows), 'row')} now"
            return [Line(f"{new.name}: other questions ({rows})", frozenset(), True)]
        found = [self._bound(new.name, *pair) for pair in _moved(old.tree, new.tree)]
        for number, (one, other) in enumerate(zip(old.rows, new.rows, strict=True)):
            found += self._row(new.name, number, one, other)
        return found

    def _bound(self, regime: str, old: Split, new: Split) -> Line:
        low, high = sorted((old.threshold, new.threshold))
        moved = []
        for row, (one, other) in self.left.items():
            if one.regime == other.regime == regime and one.row != other.row:
                value = self._value(row, new.feature)
                if value is not None and low < value <= high and {one.row, other.row} <= _rows(new):
                    moved.append(row)
        ways = sorted({(self.left[row][0].row, self.left[row][1].row) for row in moved})
        text = f"{regime}: {new.feature} <= {old.threshold:,} -> {new.threshold:,}"
        if ways:
            text += ", from " + " and ".join(f"row {one} to row {other}" for one, other in ways[:3])
        return self._line(text, moved)

    def _value(self, row: int, feature: str) -> int | None:
        problem = self.choices.problem if self.choices is not None else None
        if problem is None or feature not in problem.names:
            return None
        return int(problem.column(feature)[row])

    def _row(self, regime: str, number: int, old: Row, new: Row) -> Iterator[Line]:
        """Lines of a row: one for the classes that change alike."""
        classes = [entry.name for entry in self.kernel.classes]
        changed: dict[tuple[Config, Config], list[str]] = {}
        for name in classes:
            pair = next(old.candidates(name)), next(new.candidates(name))
            if pair[0] != pair[1]:
                changed.setdefault(pair, []).append(name)
        for (one, other), names in changed.items():
            rows = [
                row
                for row, (before, after) in self.left.items()
                if before.regime == after.regime == regime
                and before.row == after.row == number
                and after.model_class in names
            ]
            where = "" if len(names) == len(classes) else f", {', '.join(names)}"
            yield self._line(f"{regime}, row {number}{where}: {self.name(one)} -> {self.name(other)}", rows)
        if old.then != new.then:
            ends = (", ".join(map(self.name, then)) or "none" for then in (old.then, new.then))
            yield self._line(f"{regime}, row {number}: runners-up {' -> '.join(ends)}", [])

    def _pairs(self) -> list[Line]:
        """What no other line explains, by the cells before and after."""
        cells: dict[tuple[str, str], list[int]] = {}
        for row, (one, other) in self.left.items():
            cells.setdefault((self._cell(one, self.old.kernel), self._cell(other, self.kernel)), []).append(
                row
            )
        return [self._line(f"{one} -> {other}", rows) for (one, other), rows in cells.items()]

    def _cell(self, choice: Choice, kernel: KernelSpec) -> str:
        config = self.name(choice.config)
        if not choice.regime:
            return f"fallback {config}"
        of_class = f", {choice.model_class}" if len(kernel.classes) > 1 else ""
        return f"{choice.regime}, row {choice.row}{of_class} {config}"


def _questions(tree: StepTree) -> object:
    """A tree without its thresholds."""
    return tree if isinstance(tree, int) else (tree.feature, _questions(tree.low), _questions(tree.high))


def _moved(old: StepTree, new: StepTree) -> Iterator[tuple[Split, Split]]:
    """The questions with another threshold, of trees with the same questions."""
    if isinstance(old, Split) and isinstance(new, Split):
        if old.threshold != new.threshold:
            yield old, new
        yield from _moved(old.low, new.low)
        yield from _moved(old.high, new.high)


def _rows(tree: StepTree) -> set[int]:
    return {tree} if isinstance(tree, int) else _rows(tree.low) | _rows(tree.high)

"""What two specs, and the rows of two modules, say differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from treegen.core import expr
from treegen.core.heuristic import Heuristic, Row, Split, StepTree, questions
from treegen.core.spec import Config, KernelSpec
from treegen.review.printing import condition, counted
from treegen.write.modules import Module


def signature_changes(old: KernelSpec, new: KernelSpec) -> Iterator[str]:
    """What breaks programs that call a kernel's functions, or read its `Config` and `VALUES`."""
    functions = [  # all but choose() take arguments by place
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
    if lost := [name for name in old.parameters if name not in new.parameters]:
        yield f"Config without {', '.join(lost)}"
    if old.in_kernel and not new.in_kernel:
        yield "no functions for Triton kernels"
    for name in (name for name in old.values if name in new.features or name in new.parameters):
        now = {word: number for number, word in new.values.get(name, {}).items()}
        for number, word in old.values[name].items():
            if now.get(word) != number:
                yield f"{name}: {word} is {now.get(word, 'no word')}, and was {number}"


def field_changes(old: KernelSpec, new: KernelSpec) -> Iterator[str]:
    """The fields that `Config` gains, and their order where programs that unpack it get another one."""
    yield from (name for name in new.parameters if name not in old.parameters)
    kept = [[name for name, _ in kernel.fields() if name in old.parameters] for kernel in (old, new)]
    if kept[0] != kept[1] and {*kept[0]} == {*kept[1]}:
        yield f"the order {', '.join(kept[1])}"


def spec_changes(old: Module, new: Module) -> Iterator[str]:
    """What two specs say differently about what is launched."""
    before, after = _sections(old), _sections(new)
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            text = one or other
            yield f"{name} is {'new' if one is None else 'gone'}" + (f": {text}" if text else "")
        elif one != other:
            yield f"{name}: {one or 'no default'} -> {other or 'no default'}"
    yield from fallback_change(old.kernel, new.kernel)


def fallback_change(old: KernelSpec, new: KernelSpec) -> Iterator[str]:
    if new.own(old.fallback) != new.fallback:
        yield f"fallback: {' -> '.join(named(old, new, old.fallback, new.fallback))}"


def named(old: KernelSpec, new: KernelSpec, one: Config, other: Config) -> tuple[str, str]:
    """The constants of an old and a new config that differ; by the new defaults where these alone do."""
    names = old.constant_name(one), new.constant_name(other)
    return names if names[0] != names[1] else (new.constant_name(new.own(one)), names[1])


def _sections(module: Module) -> dict[str, str]:
    kernel = module.kernel
    entries = {f"feature {name}": expr.to_text(formula) for name, formula in kernel.derived.items()}
    entries |= {f"regime {entry.name}": condition(entry.when) for entry in kernel.regimes}
    entries |= {f"class {entry.name}": condition(entry.when) for entry in kernel.classes}
    names = [regime.name for regime in kernel.regimes] + [entry.name for entry in kernel.classes]
    entries["order of regimes and classes"] = ", ".join(names)
    for rule in kernel.constraints:
        entries[f"constraint {rule.text}" + (f" ({', '.join(rule.variants)})" if rule.variants else "")] = ""
    entries |= {f"limit {name}": str(value) for name, value in module.device.limits.items()}
    for name, known in kernel.parameters.items():
        entries[f"parameter {name}"] = "" if known.default is None else f"default {known.default}"
    return entries


def with_parameters_of(kernel: KernelSpec, heuristic: Heuristic) -> Heuristic:
    """A heuristic of another version of the spec with a kernel's parameters."""

    def own(row: Row) -> Row:
        others = {name: kernel.own(config) for name, config in row.others.items()}
        return Row(kernel.own(row.config), others, tuple(map(kernel.own, row.then)))

    regimes = heuristic.regimes
    return Heuristic(tuple(replace(one, rows=tuple(map(own, one.rows))) for one in regimes))


def row_changes(old: Heuristic, new: Heuristic, kernel: KernelSpec) -> Iterator[str]:
    """The bounds and rows that changed; both heuristics have the kernel's parameters."""
    olds = {regime.name: regime for regime in old.regimes}
    for regime in (regime for regime in new.regimes if regime.name in olds):
        before = olds[regime.name]
        was, now = ([*questions(side.tree)] for side in (before, regime))
        if _shape(before.tree) != _shape(regime.tree):
            rows = f"{counted(len(before.rows), 'row')} before, {counted(len(regime.rows), 'row')} now"
            yield f"{regime.name}: other questions ({rows})"
            continue
        for one, other in zip(was, now, strict=True):
            if one.threshold != other.threshold:
                yield f"{regime.name}: {one.feature} <= {one.threshold:,} -> {other.threshold:,}"
        for number, pair in enumerate(zip(before.rows, regime.rows, strict=True)):
            old_cells, cells = (_cells(row, kernel) for row in pair)
            for cell in dict.fromkeys([*old_cells, *cells]):
                if old_cells.get(cell) != cells.get(cell):
                    change = f"{old_cells.get(cell, 'none')} -> {cells.get(cell, 'none')}"
                    yield f"{regime.name}, row {number}{cell}: {change}"


def _cells(row: Row, kernel: KernelSpec) -> Mapping[str, str]:
    """The configs of a row by the words for a cell."""
    name = kernel.constant_name
    cells = {"": name(row.config)} | {f", {of}": name(config) for of, config in row.others.items()}
    return cells | ({", runners-up": ", ".join(map(name, row.then))} if row.then else {})


def _shape(tree: StepTree) -> object:
    """A tree without its bounds."""
    return (tree.feature, _shape(tree.low), _shape(tree.high)) if isinstance(tree, Split) else tree

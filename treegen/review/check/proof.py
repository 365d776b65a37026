"""Check: a module launches what its rows say, and never a config that breaks a constraint.

That holds by construction, as candidates pass through the printed `fits`. The check reads the finished text
instead of trusting the printer: every constraint of every config must stand there as a condition, and the
module's choices are compared with those of `core.heuristic` on both sides of where they change.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from treegen.core import expr
from treegen.core.files import short
from treegen.core.heuristic import choose, paths
from treegen.core.problem import holds
from treegen.core.spec import Config, Constraint, KernelSpec, Spec
from treegen.emit.package import kernel_package
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module
from treegen.review.printing import counted

_TRIES = 250
SIZES = tuple(many << exponent for exponent in range(14) for many in (1, 3))
_EXTREMES = (0, -1, -4096, 1 << 40, -(1 << 40), 1 << 62, -(1 << 63) - 1)
_NUMBER = re.compile(r"\d+(?:_\d+)*")

Shape = Mapping[str, int]


def check_constraints(spec: Spec, modules: Iterable[Module]) -> CheckReport:
    """Check the conditions that modules print, and what they launch. The fallback needs no constraint."""
    problems: list[str] = []
    guarded = tried = 0
    for module in modules:
        unguarded = list(unprinted(module))
        guarded += sum(r.binds(c) for c in _configs(module) for r in module.kernel.constraints)
        guarded -= len(unguarded)
        for config, rule in unguarded:
            name, where = module.kernel.constant_name(config), f"{short(spec.path)}:{rule.line}"
            problems.append(f"{module.path}: launches {name} without asking for {rule.text!r} ({where})")
        launch = loaded(module)["choose"]
        for shape in shapes(module, launch):
            tried += 1
            if (what := mistake(module, launch, shape)) is not None:
                at = " ".join(f"{name}={value}" for name, value in shape.items())
                problems.append(f"{module.path}: {what} at {at}")
                break
    seen = f"{counted(guarded, 'constraint')} of configs printed; {counted(tried, 'shape')} launched"
    return CheckReport(f"{seen} as rows say", tuple(problems))


def _configs(module: Module) -> list[Config]:
    """What a module launches besides the fallback, which kernels accept for every shape."""
    return [config for config in module.heuristic.configs if config != module.kernel.fallback]


def unprinted(module: Module) -> Iterator[tuple[Config, Constraint]]:
    """The constraints of configs that depend on the shape, or fail, and that the text does not ask for."""
    kernel, limits = module.kernel, module.device.limits
    printed = list(_conditions(ast.parse(module.text)))
    of_config = {expr.Name(name): expr.Name(f"config.{name}") for name in kernel.parameters}
    for rule in kernel.constraints:
        test = expr.replace(rule.test, of_config)  # type: ignore[arg-type]
        text = expr.to_python(expr.simplified(expr.substitute(test, limits)))
        wanted = ast.dump(ast.parse(text, mode="eval").body)
        bound = [variants for found, variants in printed if found == wanted]
        for config in filter(rule.binds, _configs(module)):
            known = {**limits, **dict(config.parameters)}
            always = rule.names <= known.keys() and holds(rule, known)
            if not always and not any(variants is None or config.variant in variants for variants in bound):
                yield config, rule


def _conditions(text: ast.Module) -> Iterator[tuple[str, Sequence[str] | None]]:
    """The conditions that candidates must meet, each with the variants that it binds; None binds all."""
    tests: list[ast.expr] = []
    for node in ast.walk(text):
        match node:
            case ast.FunctionDef(name="fits", body=[ast.Return(value=ast.expr() as test)]):
                tests.append(test)
            case ast.For(body=[ast.If(test=test)]):
                tests.append(test)
    for test in tests:
        joined = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
        for part in (test, *joined):
            yield ast.dump(part), None
            match part:
                case ast.BoolOp(
                    ast.Or(),
                    [ast.Compare(ast.Attribute(attr="variant"), [ast.NotEq() | ast.NotIn()], [named]), *rest],
                ):
                    names = ast.literal_eval(named)
                    bound = [names] if isinstance(names, str) else names
                    yield ast.dump(rest[0] if len(rest) == 1 else ast.BoolOp(ast.Or(), rest)), bound


def loaded(module: Module) -> dict[str, Any]:
    """The names of a module, which imports nothing but the kernel's printed `config.py`."""
    namespace: dict[str, Any] = {"__name__": module.kernel.name}
    for text in (kernel_package(module.kernel, {})["config.py"], module.text):
        tree = ast.parse(text)
        tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.level)]
        exec(compile(tree, str(module.path), "exec"), namespace)
    return namespace


def config_of(printed: Any, kernel: KernelSpec) -> Config:
    return Config(printed.variant, tuple((name, getattr(printed, name)) for name in kernel.parameters))


def mistake(module: Module, launch: Callable[..., Any], shape: Shape) -> str | None:
    """How a launch differs from what the rows say, or which constraint it breaks; None if it is right."""
    kernel, limits = module.kernel, module.device.limits
    config = config_of(launch(**shape), kernel)
    expected = choose(module.heuristic, kernel, limits, shape).config
    if config != expected:
        return f"launches {kernel.constant_name(config)}, not {kernel.constant_name(expected)}"
    known = {**kernel.with_derived({**limits, **shape}), **dict(config.parameters)}
    for rule in kernel.constraints if config != kernel.fallback else ():
        if rule.binds(config) and not holds(rule, known):
            return f"launches {kernel.constant_name(config)}, which breaks {rule.text!r}"
    return None


def shapes(module: Module, launch: Callable[..., Any]) -> Iterator[Shape]:
    """Random and extreme shapes, and both sides of where the launched config changes between two of them."""
    features, draw = module.kernel.features, random.Random(0)
    near = sorted({number + step for number in numbers(module) for step in (-1, 0, 1)})

    def value() -> int:
        kinds: Sequence[Sequence[int]] = (SIZES, SIZES, near, _EXTREMES)
        return draw.choice(draw.choices(kinds, (4, 4, 4, 1))[0])

    for _ in range(_TRIES):
        shape = {name: value() for name in features}
        moved = draw.choice(features)
        low, high = sorted((shape[moved], value()))
        yield from ({**shape, moved: end} for end in (low, high))
        first = launch(**{**shape, moved: low})
        if first == launch(**{**shape, moved: high}):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            same = first == launch(**{**shape, moved: middle})
            low, high = (middle, high) if same else (low, middle)
        yield from ({**shape, moved: end} for end in (low, high))


def numbers(module: Module) -> set[int]:
    """Every number of the kernel's expressions and configs, of the device's limits and of the trees."""
    kernel, regimes = module.kernel, module.heuristic.regimes
    whens = [*(regime.when for regime in kernel.regimes), *(entry.when for entry in kernel.classes)]
    tests = [when for when in whens if when is not None]
    tests += [rule.test for rule in kernel.constraints]
    texts = [expr.to_text(one) for one in (*tests, *kernel.derived.values())]
    texts += [answer for regime in regimes for _, path in paths(regime.tree) for answer in path]
    found = {int(number) for text in texts for number in _NUMBER.findall(text)}
    values = {value for config in module.heuristic.configs for _, value in config.parameters}
    return {1} | found | values | set(module.device.limits.values())

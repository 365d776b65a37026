"""Do generated modules hold nothing but choices, and choose a valid config for any integers at all?"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from types import ModuleType

from treegen_builders import imported

from treegen.core.problem import holds
from treegen.core.spec import DeviceSpec, KernelSpec, Spec
from treegen.review.modules import NO_DEVICE

EXTREMES = (0, 1, -1, 10**18, -(10**18), 2**62, 2**63, -(2**63) - 1, 2**200, -(2**200))


def features(module: ModuleType) -> tuple[str, ...]:
    """The keyword arguments of `choose`."""
    code = module.choose.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_kwonlyargcount]
    return names


def _corners(module: ModuleType) -> dict[str, list[int]]:
    """By feature, and by what is computed from features: its thresholds and the integers beside them."""
    found: dict[str, set[int]] = {name: set() for name in features(module)}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        match node:
            case ast.Compare(ast.Name(name), _, [bound]):
                threshold = ast.literal_eval(bound)
                found.setdefault(name, set()).update((threshold - 1, threshold, threshold + 1))
    return {name: sorted(values) for name, values in found.items()}


def points(module: ModuleType, random: Random, count: int) -> Iterator[dict[str, int]]:
    """All features alike at each extreme, then random mixes of corners, extremes and ordinary values."""
    names, near = features(module), _corners(module)
    anything = sorted({value for values in near.values() for value in values})
    yield from (dict.fromkeys(names, value) for value in EXTREMES)
    for _ in range(count):
        yield {name: _value(random, near[name], anything) for name in names}


def _value(random: Random, near: list[int], anything: list[int]) -> int:
    match random.randrange(6):
        case 0 | 1 if near:
            return random.choice(near)
        case 2 if anything:
            return random.choice(anything)
        case 3:
            return random.choice(EXTREMES)
        case 4:
            return random.choice((1, -1)) * random.getrandbits(random.randrange(1, 80))
    return random.randrange(300)


def wrong_choice(
    module: ModuleType, kernel: KernelSpec, device: DeviceSpec, point: Mapping[str, int]
) -> str | None:
    """What is wrong with the choice at a point: an error, no config of the module, a broken constraint."""
    try:
        chosen = module.choose(**point)
    except Exception as error:
        return f"{type(error).__name__} at {dict(point)}"
    if not any(chosen is constant for constant in vars(module).values()):
        return f"{chosen!r} at {dict(point)} is no constant of {module.__name__}"
    parameters = chosen._asdict()
    variant = parameters.pop("variant")
    if (variant, parameters) == (kernel.fallback.variant, dict(kernel.fallback.parameters)):
        return None
    values = {**kernel.with_derived({**device.limits, **point}), **parameters}
    broken = [
        constraint.text
        for constraint in kernel.constraints
        if (constraint.variants is None or variant in constraint.variants) and not holds(constraint, values)
    ]
    return f"{chosen!r} at {dict(point)} breaks {broken[0]}" if broken else None


_NODES = (
    *(ast.Module, ast.Expr, ast.Constant, ast.ImportFrom, ast.Import, ast.alias, ast.Assign, ast.AnnAssign),
    *(ast.FunctionDef, ast.ClassDef, ast.arguments, ast.arg, ast.Return, ast.If, ast.For, ast.Compare),
    *(ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Load, ast.Store, ast.BinOp, ast.UnaryOp, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.BoolOp, ast.Dict, ast.Tuple, ast.List),
    *(ast.Subscript, ast.AugAssign),
)
_CALLS = {"Config", "max", "min", "bit_length", "items", "startswith", "get"}
_TRITON_CALLS = {"cast", "maximum", "minimum", "where", "to", "constexpr"}
_IMPORTS = {"typing", "collections.abc", "config", None, "triton", "triton.language"}


def check_source(name: str, text: str) -> None:
    """Fail if a generated module holds anything but constants, questions, integer arithmetic and lookups."""
    assert text.isascii() and text.replace("\n", "").isprintable(), name
    tree = ast.parse(text)
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    calls = _CALLS | functions | (_TRITON_CALLS if "in_kernel" in name else set())
    for node in ast.walk(tree):
        assert isinstance(node, _NODES), f"{name}: {ast.dump(node)[:200]}"
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
            assert called in calls, f"{name}: calls {ast.unparse(node)[:200]}"
        elif isinstance(node, ast.ImportFrom):
            assert node.module in _IMPORTS, f"{name}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= _IMPORTS, f"{name}: {ast.unparse(node)}"


def check_modules(spec: Spec, random: Random) -> None:
    """Fail unless the output folder holds plain modules that choose valid configs for any integers."""
    for path in (path for kernel in spec.kernels for path in (spec.output / kernel).rglob("*.py")):
        if path.is_file() and not path.is_symlink():
            check_source(path.relative_to(spec.output).as_posix(), path.read_text())
    before, name = set(sys.modules), spec.output.name
    with imported(spec.output.parent, name) as package:
        loaded = {module for module in set(sys.modules) - before if module.split(".")[0] != name}
        assert loaded <= {"typing", "collections", "collections.abc"}, loaded
        for name, kernel in spec.kernels.items():
            for key, module in getattr(package, name).MODULES.items():
                device = spec.devices.get(key, NO_DEVICE)
                for point in points(module, random, 40):
                    wrong = wrong_choice(module, kernel, device, point)
                    assert not wrong, f"{name}/{key}: {wrong}"[:400]

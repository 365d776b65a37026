"""Check: every constraint of the spec holds wherever a leaf launches its config.

The proof does not use the pass that made the guards. That pass solves a constraint for a feature; the proof
encloses both sides of the constraint over the finished leaf's region by interval arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.files import short
from treegen.core.interval import Interval, enclosure, feature_intervals, is_empty
from treegen.core.problem import holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec, Spec
from treegen.core.tree import Region, leaves, within
from treegen.review import regions
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module
from treegen.review.printing import counted, region_words

_TRIES = 4000
_SIZES = tuple(1 << exponent for exponent in range(21))


@dataclass(frozen=True)
class Unproved:
    constraint: Constraint
    counterexample: Mapping[str, int] | None = None  # raw features of a shape that breaks it, if one is found
    unknown: tuple[str, ...] = ()  # names that have no value on the device


def check_constraints(spec: Spec, modules: Iterable[Module]) -> CheckReport:
    """Prove the constraints of every leaf.

    Leaves with the fallback are exempt, as kernels must accept it for every shape.
    """
    problems: list[str] = []
    proved = bound = exempt = 0
    for module in modules:
        for leaf, region in leaves(module.tree):
            if leaf.config == module.kernel.fallback:
                exempt += 1
                continue
            bound += 1
            unproved = list(prove(region, leaf.config, module.kernel, module.device))
            binding = [rule for rule in module.kernel.constraints if rule.binds(leaf.config)]
            proved += len(binding) - len(unproved)
            problems += [_problem(spec, module, leaf.config, region, rule) for rule in unproved]
    seen = f"{counted(proved, 'constraint')} proved at {counted(bound, 'leaf', 'leaves')}"
    return CheckReport(f"{seen}; {exempt} more launch the fallback and are exempt", tuple(problems))


def _problem(spec: Spec, module: Module, config: Config, region: Region, unproved: Unproved) -> str:
    kernel, constraint = module.kernel, unproved.constraint
    leaf = f"{kernel.name} on {module.device.key}: {kernel.constant_name(config)}"
    where = f"{short(spec.path)}:{constraint.line}"
    start = f"{leaf}, launched at {region_words(region, kernel)}: {constraint.text!r} ({where})"
    if unproved.unknown:
        return f"{start} cannot be proved: {', '.join(unproved.unknown)} has no value here"
    if unproved.counterexample is None:
        return f"{start} is not proved; no shape was found that breaks it"
    shape = " ".join(f"{name}={value}" for name, value in unproved.counterexample.items())
    return f"{start} does not hold" + (f" at {shape}" if shape else "")


def prove(region: Region, config: Config, kernel: KernelSpec, device: DeviceSpec) -> Iterator[Unproved]:
    """Yield the constraints that bind the config and are not proved for every integer point of the region.

    Sound: a constraint that is not yielded holds. Complete for constraints that can be guards.
    """
    known = {**device.limits, **dict(config.parameters)}
    box = feature_intervals(region, kernel, known)
    if any(map(is_empty, box.values())):
        return
    for constraint in kernel.constraints:
        if not constraint.binds(config):
            continue
        unknown = sorted(constraint.names - box.keys() - known.keys())
        if unknown:
            yield Unproved(constraint, unknown=tuple(unknown))
        elif not _surely_holds(constraint, box, known):
            yield Unproved(constraint, _counterexample(region, constraint, kernel, known))


def _surely_holds(constraint: Constraint, box: Mapping[str, Interval], known: Mapping[str, int]) -> bool:
    sides = (constraint.left, constraint.right)
    left, right = (enclosure(expr.substitute(side, known), box) for side in sides)
    match constraint.operator:
        case "<=":
            return left[1] <= right[0]
        case ">=":
            return left[0] >= right[1]
        case "<":
            return left[1] < right[0]
    return left[0] > right[1]


def _counterexample(
    region: Region, constraint: Constraint, kernel: KernelSpec, known: Mapping[str, int]
) -> dict[str, int] | None:
    """Search for a shape in the region that breaks the constraint. The search is deterministic."""
    wanted = {*region, *constraint.names}
    needed, names = kernel.only(wanted), kernel.raw_parts(wanted)
    candidates = {name: _candidates(*region.get(name, (None, None))) for name in names}

    def breaks(point: Mapping[str, int]) -> bool:
        values = needed.with_derived({**known, **point})
        inside = region.keys() <= values.keys() and regions.holds(region, values)
        return inside and not holds(constraint, values)

    draw = random.Random(0).random
    for _ in range(_TRIES):
        point = {name: values[int(draw() * len(values))] for name, values in candidates.items()}
        if breaks(point):
            return _simplest(point, candidates, breaks)
    return None


def _simplest(
    point: Mapping[str, int], candidates: Mapping[str, list[int]], breaks: Callable[[Mapping[str, int]], bool]
) -> dict[str, int]:
    """Move every coordinate to its first candidate that breaks the constraint, until none moves."""
    result: dict[str, int] = {}
    after = dict(point)
    while after != result:  # a coordinate never moves to a later candidate
        result = dict(after)
        for name, values in candidates.items():
            after[name] = next(value for value in values if breaks({**after, name: value}))
    return result


def _candidates(least: int | None, greatest: int | None) -> list[int]:
    """Values within bounds, the simplest first: usual sizes, the bounds and their neighbours, 0 and -1."""
    ends = [end + step for end in (least, greatest) if end is not None for step in (0, 1, -1)]
    values = dict.fromkeys([*_SIZES, *ends, 0, -1])
    return [value for value in values if within(value, least, greatest)]

"""Check: every leaf compiles for its GPU and needs no more than that has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from treegen.core.interval import is_empty
from treegen.core.spec import FALLBACK_DEVICE, Config, KernelSpec, Spec
from treegen.core.tree import leaves, size
from treegen.review.check.hook import Case, Compiled, Description
from treegen.review.check.proof import reach
from treegen.review.check.report import Report, count
from treegen.review.compiled_trees import Module

RESOURCES = ("shared_memory", "registers", "spills")
"""What the hook reports of a kernel; a device may limit each under the same name."""

_UNITS = {
    "shared_memory": "bytes of shared memory",
    "registers": "registers a thread",
    "spills": "spilled registers a thread",
}


@dataclass(frozen=True)
class Wanted:
    """A compilation and the limits that it must keep. device: the first that launches the config."""

    device: str
    config: Config
    case: Case
    limits: Mapping[str, int]

    def covers(self, other: Wanted) -> bool:
        """Whether the other keeps its limits if this one does: it is the same for smaller sizes on a GPU that
        has as much of everything."""
        return (
            (self.config, self.case.target) == (other.config, other.case.target)
            and all(_at_most(other.case.largest[name], most) for name, most in self.case.largest.items())
            and all(_at_most(self.limits.get(name), limit) for name, limit in other.limits.items())
        )


def check_compile(
    spec: Spec,
    kernel: KernelSpec,
    modules: Sequence[Module],
    code: Description,
    compile_cases: Callable[[Sequence[Case], int], Iterable[Compiled]],
    jobs: int,
) -> Report:
    """Compile what a kernel's modules launch, in up to `jobs` processes."""
    distinct = uncovered(wanted for module in modules for wanted in wanted_by(spec, module, code))
    outcomes = list(compile_cases([wanted.case for wanted in distinct], jobs))
    pairs = list(zip(distinct, outcomes, strict=True))
    problems = [problem for wanted, compiled in pairs for problem in _problems(kernel, wanted, compiled)]
    launched = sum(size(module.tree) for module in modules)
    targets = ", ".join(sorted({wanted.case.target for wanted in distinct}))
    spills = max((used.spills or 0 for one in outcomes for used in one.kernels.values()), default=0)
    found = f"{kernel.name}: {count(len(distinct), 'compilation')} for {count(launched, 'leaf', 'leaves')}"
    told = f"{targets or 'no target'}; at most {count(spills, 'spilled register')}"
    return Report(f"{found} on {told}", tuple(problems))


def wanted_by(spec: Spec, module: Module, code: Description) -> Iterator[Wanted]:
    """Every leaf of a module that any shape reaches, for every architecture that it may be launched on."""
    known = dict(module.device.limits)
    places = list(_places(spec, module, code))
    for leaf, region in leaves(module.tree):
        box = reach(region, module.kernel, known)
        if any(map(is_empty, box.values())):
            continue
        greatest = {name: box[name][1] for name in code.sizes if name in box}
        largest = {n: g if isinstance(g, int) else None for n, g in greatest.items()}
        for target, limits in places:
            case = Case(target, leaf.config.variant, dict(leaf.config.parameters), largest)
            yield Wanted(module.device.key, leaf.config, case, limits)


def _places(spec: Spec, module: Module, code: Description) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Architectures that a module serves, with their limits: the device's, or where it has no architecture
    those that the hook knows of its vendor. The module of last resort serves all there are, with no more
    than any device of the vendor has."""
    device = module.device
    if device.key != FALLBACK_DEVICE:
        for target in [device.arch] if device.arch else code.targets.get(device.vendor, ()):
            yield target, _limits([device.limits])
        return
    for vendor in sorted({*code.targets, *(known.vendor for known in spec.devices.values())}):
        kin = [known for known in spec.devices.values() if known.vendor == vendor]
        architectures = {known.arch for known in kin if known.arch is not None}
        for target in sorted({*code.targets.get(vendor, ()), *architectures}):
            yield target, _limits([known.limits for known in kin])


def _limits(devices: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The least of each limit on resources."""
    devices = list(devices)
    stated = {name: [limits[name] for limits in devices if name in limits] for name in RESOURCES}
    return {name: min(values) for name, values in stated.items() if values}


def uncovered(every: Iterable[Wanted]) -> list[Wanted]:
    """Those that together stand for all, the first of equals."""
    result: list[Wanted] = []
    for wanted in every:
        if not any(kept.covers(wanted) for kept in result):
            result = [kept for kept in result if not wanted.covers(kept)] + [wanted]
    return result


def _at_most(one: int | None, other: int | None) -> bool:
    """None is unbounded."""
    return other is None or (one is not None and one <= other)


def _problems(kernel: KernelSpec, wanted: Wanted, compiled: Compiled) -> Iterator[str]:
    sizes = ", ".join(f"{n} {'any' if v is None else f'up to {v:,}'}" for n, v in wanted.case.largest.items())
    place = f"{kernel.name} on {wanted.device}, {wanted.case.target}"
    start = f"{place}: {kernel.constant_name(wanted.config)}{f' ({sizes})' if sizes else ''}"
    if compiled.error is not None:
        yield f"{start} does not compile: {compiled.error}"
        return
    if not compiled.kernels:
        yield f"{start}: the hook tells of no kernel"
    for name, used in compiled.kernels.items():
        for resource, limit in wanted.limits.items():
            need: int | None = getattr(used, resource)
            if need is not None and need > limit:
                yield f"{start}: the kernel {name} needs {need:,} {_UNITS[resource]}; the limit is {limit:,}"

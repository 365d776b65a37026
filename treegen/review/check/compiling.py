"""Check: every config that a module launches compiles for its GPU and needs no more than the GPU's limits."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from treegen.core.spec import FALLBACK_DEVICE, Config, KernelSpec, Spec
from treegen.review.check.hook import CompileCase, CompileOutcome, HookDescription
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module, loaded, numbers
from treegen.review.printing import counted

_RESOURCES = {
    "shared_memory": "bytes of shared memory",
    "registers": "registers per thread",
    "spills": "spilled registers per thread",
}
"""The resources that the hook reports of a kernel and that a device may limit, by name."""

_MAX_ERROR = 300  # characters of a compiler's error, which may take pages
_TRIES = 4000
_SIZES = tuple(many << exponent for exponent in range(14) for many in (1, 3))
_ANY = 1 << 31
"""A size that can reach this counts as unbounded."""
_STEPS = (1 << 62, *(1 << exponent for exponent in reversed(range(16))))


@dataclass(frozen=True)
class CompileTask:
    """A config to compile and the limits that it must keep."""

    device: str  # the first that launches the config with these limits
    config: Config
    case: CompileCase
    limits: Mapping[str, int]


def check_compile(
    spec: Spec,
    kernel: KernelSpec,
    modules: Sequence[Module],
    code: HookDescription,
    compile_cases: Callable[[Sequence[CompileCase], int], Iterable[CompileOutcome]],
    jobs: int,
) -> CheckReport:
    """Compile what a kernel's modules launch, each case once, in up to `jobs` processes."""
    tasks: list[CompileTask] = []
    for task in (task for module in modules for task in compile_tasks(spec, module, code)):
        if not any((task.case, task.limits) == (one.case, one.limits) for one in tasks):
            tasks.append(task)
    cases = [one.case for n, one in enumerate(tasks) if all(one.case != other.case for other in tasks[:n])]
    outcomes = list(compile_cases(cases, jobs))
    found = [(task, outcomes[cases.index(task.case)]) for task in tasks]
    problems = [problem for task, outcome in found for problem in _problems(kernel, task, outcome)]
    launched = counted(sum(len({*m.heuristic.configs, kernel.fallback}) for m in modules), "config")
    targets = ", ".join(sorted({task.case.target for task in tasks})) or "no target"
    spills = max(
        (needs.spills or 0 for compiled in outcomes for needs in compiled.kernels.values()), default=0
    )
    seen = f"{kernel.name}: {counted(len(cases), 'compilation')} for {launched} on {targets}"
    return CheckReport(f"{seen}; at most {counted(spills, 'spilled register')}", tuple(problems))


def compile_tasks(spec: Spec, module: Module, code: HookDescription) -> Iterator[CompileTask]:
    """A task for every config of a module, its largest sizes and every architecture that may launch it."""
    targets = list(_targets(spec, module, code))
    for config, largest in largest_sizes(module, code.sizes):
        for target, limits in targets:
            case = CompileCase(target, config.variant, dict(config.parameters), largest)
            yield CompileTask(module.device.key, config, case, limits)


def largest_sizes(module: Module, sizes: Sequence[str]) -> Iterator[tuple[Config, dict[str, int | None]]]:
    """The configs of a module, each with all combinations of largest sizes at which it is launched.

    They are found by trying models, and making these larger as long as they launch the config. A size of
    None may be any, as those that change from step to step are.
    """
    kernel, limits, printed = module.kernel, module.device.limits, loaded(module)
    wanted = dict.fromkeys(name for name in sizes if name in kernel.features or name in kernel.derived)
    fixed = [name for name in wanted if name in kernel.fixed]
    parts = kernel.only(fixed)
    yield kernel.fallback, wanted

    def sizes_of(point: Mapping[str, int]) -> tuple[int, ...]:
        known = parts.with_derived({**limits, **point})
        return tuple(min(known[name], _ANY) for name in fixed)

    def launched(point: Mapping[str, int]) -> set[Any]:
        rows = (row for regime in printed["configs"](**point) for row in regime)
        configs = {c for row in rows for c in ([row] if isinstance(row, printed["Config"]) else row)}
        return {config for config in configs if _config_of(config, kernel) != kernel.fallback}

    draw, near = random.Random(0), sorted({max(0, n) + more for n in numbers(module) for more in (0, 1)})
    found: dict[Any, dict[tuple[int, ...], dict[str, int]]] = {}
    for _ in range(_TRIES):
        point = {name: draw.choice(draw.choice((_SIZES, near))) for name in kernel.constants}
        for config in launched(point):
            found.setdefault(config, {})[sizes_of(point)] = point
    for config in sorted(found):
        for reached, point in _maximal(found[config]).items():
            for step, name in product(_STEPS, kernel.constants):
                larger = {**point, name: point[name] + step}
                if all(map(operator.ge, sizes_of(larger), reached)) and config in launched(larger):
                    reached, point = sizes_of(larger), larger
            found[config][reached] = point
        for reached in _maximal(found[config]):
            largest = zip(fixed, (None if size == _ANY else size for size in reached), strict=True)
            yield _config_of(config, kernel), wanted | dict(largest)


def _config_of(printed: Any, kernel: KernelSpec) -> Config:
    return Config(printed.variant, tuple((name, getattr(printed, name)) for name in kernel.parameters))


def _maximal(found: Mapping[tuple[int, ...], dict[str, int]]) -> dict[tuple[int, ...], dict[str, int]]:
    """Those of which no other has all sizes as large."""
    return {
        sizes: point
        for sizes, point in found.items()
        if not any(other != sizes and all(map(operator.ge, other, sizes)) for other in found)
    }


def _targets(spec: Spec, module: Module, code: HookDescription) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The architectures that a module serves, with their limits.

    A device without an architecture is compiled for those that the hook names for its vendor. The default
    module is compiled for every known architecture, with the least limits of any device of the vendor.
    """
    device = module.device
    if device.key != FALLBACK_DEVICE:
        for target in [device.arch] if device.arch else code.targets.get(device.vendor, ()):
            yield target, _least_limits([device.limits])
        return
    for vendor in sorted({*code.targets, *(known.vendor for known in spec.devices.values())}):
        devices = [known for known in spec.devices.values() if known.vendor == vendor]
        architectures = {known.arch for known in devices if known.arch is not None}
        for target in sorted({*code.targets.get(vendor, ()), *architectures}):
            yield target, _least_limits([known.limits for known in devices])


def _least_limits(devices: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The least limit on each resource that a device states."""
    stated = {name: [limits[name] for limits in devices if name in limits] for name in _RESOURCES}
    return {name: min(values) for name, values in stated.items() if values}


def _problems(kernel: KernelSpec, task: CompileTask, outcome: CompileOutcome) -> Iterator[str]:
    sizes = ", ".join(f"{n} {'any' if v is None else f'up to {v:,}'}" for n, v in task.case.largest.items())
    place = f"{kernel.name} on {task.device}, {task.case.target}"
    start = f"{place}: {kernel.constant_name(task.config)}{f' ({sizes})' if sizes else ''}"
    if outcome.error is not None:
        yield f"{start} does not compile: {outcome.error[:_MAX_ERROR]}"
        return
    if not outcome.kernels:
        yield f"{start}: the hook reports no kernel"
    for name, needs in outcome.kernels.items():
        for resource, limit in task.limits.items():
            need: int | None = getattr(needs, resource)
            if need is not None and need > limit:
                what = f"{need:,} {_RESOURCES[resource]}"
                yield f"{start}: the kernel {name} needs {what}; the limit is {limit:,}"

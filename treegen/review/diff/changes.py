"""The list of changes between two snapshots, which JSON, Markdown and the terminal show alike."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.heuristic import broken
from treegen.core.launches import UNKNOWN, Columns, Launches, as_columns, launches
from treegen.core.problem import UNIT, Problem, broken_invariant
from treegen.core.spec import FALLBACK_DEVICE, Config, DeviceSpec, KernelSpec, Spec, is_model, serving
from treegen.core.table import Table
from treegen.crossval.score import Ints, times_of
from treegen.fit.costs import table_noise
from treegen.read.problem import build_problem, read_table, refuse_other_gpu
from treegen.review.diff import specs
from treegen.review.diff.prices import Price, World, launches_of, price, world_of
from treegen.review.diff.snapshots import Snapshot, naming
from treegen.write.lock import digests
from treegen.write.modules import Module, ModuleKey, numbers, plain

_BASES = 16  # scenarios from which every feature is moved
_RANDOM = 4096
_KEPT = 20  # shapes of one comparison that are kept as examples
_RUNGS = {sign * round(2 ** (step / 4)) for step in range(4 * 31) for sign in (-1, 1)} | {0}

Shape = Mapping[str, int]
Gpu = tuple[str, str, str]
"""A GPU's name, architecture and vendor."""


class Kind(StrEnum):
    """What became of a device's module."""

    SAME = "launches the same"
    TEXT = "launches the same; only text changed"
    TRIED = "launches the same wherever both were asked"
    ELSEWHERE = "launches the same in every measured scenario, and another config elsewhere"
    CHANGED = "launches differently"
    FALLBACK = "has another fallback, for GPUs on which nothing was measured"
    ADDED = "is new"
    REMOVED = "is gone"
    UNREADABLE = "cannot be read"
    INCOMPARABLE = "cannot be compared"


@dataclass(frozen=True)
class Line:
    """Scenarios that went from one config to another one."""

    old: str
    new: str
    price: Price
    places: Mapping[str, Price]  # the same by the new module's cells
    forbidden: str | None  # the constraint of the new spec that the old config breaks there

    @property
    def regresses(self) -> bool:
        return any(one.regresses for one in (self.price, *self.places.values()))

    @property
    def worst(self) -> tuple[str, Price]:
        """The worst price that makes the line regress, with where that is; the whole line's if none does."""
        found = [("", self.price), *((f" in {place}", price) for place, price in self.places.items())]
        return max(found, key=lambda item: (item[1].regresses, item[0] == "", item[1].lost))


@dataclass(frozen=True)
class Served:
    """GPUs that another module serves."""

    gpus: tuple[str, ...]
    kernel: str
    before: str  # the device's key
    now: str
    differs: bool
    price: Price | None  # None where both launch the same, or what they launch is not known


@dataclass(frozen=True)
class ModuleChange:
    """What became of one kernel's and device's module."""

    kernel: str
    device: str
    kind: Kind
    note: str | None = None  # why something could not be compared
    scenarios: int = 0  # that the pricing table holds
    changed: int = 0  # of these, scenarios that launch another config
    unknown: int = 0  # scenarios of which the table lacks a feature that a module asks about
    untimed: int = 0  # changed scenarios in which one of the two configs has no time
    overall: Price | None = None  # of the changed scenarios
    lines: tuple[Line, ...] = ()
    example: Shape | None = None  # for which another config is launched, where no scenario shows one
    text: tuple[str, ...] = ()  # what the spec, bounds and rows say differently
    world: World | None = None  # what became of the table

    def __str__(self) -> str:
        return f"{self.kernel} on {self.device}"

    @property
    def regresses(self) -> bool:
        return self.kind is Kind.UNREADABLE or any(line.regresses for line in self.lines)


@dataclass(frozen=True)
class Diff:
    """Everything that differs between two snapshots."""

    old: str  # what the user called the old snapshot
    new: str
    threshold: float  # accepted slowdown, above 1
    gone: tuple[str, ...]  # names that programs may use, and that no longer exist or are called otherwise
    fields: tuple[str, ...]  # parameters that `Config` gains, or their other order, with their kernel
    served: tuple[Served, ...]
    modules: tuple[ModuleChange, ...]
    files: tuple[str, ...]  # other files of the output folder that changed

    @property
    def breaks(self) -> bool:
        """Whether callers must change or get another module."""
        return bool(self.gone) or any(one.differs for one in self.served)

    @property
    def regresses(self) -> bool:
        """Whether something is slower than allowed, cannot be read, or is contradicted."""
        return any(m.regresses or (m.world is not None and m.world.contradicts) for m in self.modules)


def compare(old: Snapshot, new: Snapshot, threshold: float) -> Diff:
    """Everything that differs between two snapshots. threshold: the accepted slowdown, above 1.

    Raises InputError for a table of the new snapshot that cannot be read.
    """
    both, keys = _Comparison(old, new, threshold), dict.fromkeys([*new.modules, *old.modules])
    gone, fields = [], []
    before, after = (s.spec.output.relative_to(s.spec.path.resolve().parent) for s in (old, new))
    if before != after:
        gone.append(f"the package {before} is called {after} now")
    for name, kernel in old.spec.kernels.items():
        if (now := new.spec.kernels.get(name)) is None:
            gone.append(f"the kernel {name} is gone")
            continue
        left = (key for key in old.modules if key[0] == name and key not in new.modules)
        gone += [f"the module {'.'.join(key)} is gone" for key in left]
        gone += [f"{name}: {words}" for words in specs.signature_changes(kernel, now)]
        fields += [f"{name}: {words}" for words in specs.field_changes(kernel, now)]
    paths = {*old.texts, *new.texts} - {f"{kernel}/{device}.py" for kernel, device in keys}
    files = tuple(path for path in sorted(paths) if old.texts.get(path) != new.texts.get(path))
    found = tuple(gone), tuple(fields), tuple(both.served()), tuple(map(both.module, keys)), files
    return Diff(old.label, new.label, threshold, *found)


@dataclass(frozen=True)
class _Comparison:
    old: Snapshot
    new: Snapshot
    threshold: float
    read: Callable[[Path], Table] = field(default_factory=lambda: cache(read_table))  # devices may share one

    def module(self, key: ModuleKey) -> ModuleChange:
        before, after = self.old.modules.get(key), self.new.modules.get(key)
        if isinstance(after, str):
            return ModuleChange(*key, Kind.UNREADABLE, f"the new module cannot be read: {after}")
        if isinstance(before, str):
            return ModuleChange(*key, Kind.INCOMPARABLE, f"the old module cannot be read: {before}")
        if before is None or after is None:
            return ModuleChange(*key, Kind.ADDED if before is None else Kind.REMOVED)
        same_text = Kind.SAME if plain(before.text) == plain(after.text) else Kind.TEXT
        if key[1] == FALLBACK_DEVICE:
            other = tuple(specs.fallback_change(before.kernel, after.kernel))
            return ModuleChange(*key, Kind.FALLBACK if other else same_text, text=other)
        rows = specs.with_parameters_of(after.kernel, before.heuristic)
        of_spec = [*specs.spec_changes(before, after)]
        same_data = rows == after.heuristic and not of_spec
        if same_data and self.same_table(key):
            return ModuleChange(*key, same_text)
        problem = self.problem(self.new, key)
        found = self.priced(before, after, problem)
        told = {place for line in found.lines for place in line.places}
        text = [*of_spec, *specs.row_changes(rows, after.heuristic, after.kernel)]
        found = replace(found, text=tuple(words for words in text if words.split(":")[0] not in told))
        if found.unknown and not found.changed:
            found = replace(found, kind=Kind.INCOMPARABLE)
        elif not found.changed:
            equal = same_text is Kind.SAME and before.kernel.parameters == after.kernel.parameters
            is_same = same_data or equal
            example = None if is_same else difference(before, after, problem)
            kind = same_text if is_same else Kind.ELSEWHERE if example else Kind.TRIED
            found = replace(found, kind=kind, example=example)
        if self.same_table(key):
            return found
        try:
            past = self.problem(self.old, key)
        except InputError as error:
            return replace(found, note=f"the old table cannot be read: {error}")
        kernels = [replace(module.kernel, tables={}, measured_on={}) for module in (before, after)]
        same_spec = not of_spec and kernels[0] == kernels[1]
        return replace(found, world=world_of((before, after), (past, problem), self.threshold, same_spec))

    def problem(self, snapshot: Snapshot, key: ModuleKey) -> Problem:
        """A snapshot's table of a device as its spec reads it, with no config forbidden."""
        kernel, device = snapshot.spec.kernels[key[0]], snapshot.spec.devices[key[1]]
        with naming(snapshot.label, snapshot.temporary):
            table = self.read(kernel.tables[key[1]])
            refuse_other_gpu(kernel, device, table)
            return build_problem(replace(kernel, constraints=()), device, table)

    def same_table(self, key: ModuleKey) -> bool:
        """Whether two snapshots have one table for a module, by its files."""
        folders = [snapshot.spec.kernels[key[0]].tables[key[1]] for snapshot in (self.old, self.new)]
        try:
            return folders[0] == folders[1] or digests(folders[0]) == digests(folders[1])
        except OSError:
            return False  # reading it tells of the file

    def priced(self, before: Module, after: Module, problem: Problem) -> ModuleChange:
        """What another config costs in the scenarios of a table, by pairs of configs."""
        sides = [launches_of(module, problem) for module in (before, after)]
        times = [times_of(side, problem) for side in sides]
        rules = self.threshold, table_noise(problem.table) / UNIT, problem.table.cells
        ids = np.array(problem.scenarios)

        def priced(rows: Sequence[int]) -> Price:
            return price(ids[rows], times[0][rows], times[1][rows], *rules)

        changed: list[int] = np.flatnonzero(other_config(after.kernel, *sides)).tolist()
        pairs: dict[tuple[Config, Config], dict[str, list[int]]] = {}
        for row in changed:
            one, other = (side.configs[side.config[row]] for side in sides)
            place = sides[1].place(after.kernel, after.heuristic, row)
            pairs.setdefault((one, other), {}).setdefault(place, []).append(row)
        lines = []
        for (one, other), places in pairs.items():
            names = specs.named(before.kernel, after.kernel, one, other)
            rows = sorted(row for inside in places.values() for row in inside)
            prices = {place: priced(inside) for place, inside in places.items()}
            lines.append(Line(*names, priced(rows), prices, _forbidden(one, after, problem, rows)))
        lines.sort(key=lambda line: (not line.regresses, -abs(line.price.lost), line.old, line.new))
        overall = priced(changed) if changed else None
        unknown = int(((sides[0].config == UNKNOWN) | (sides[1].config == UNKNOWN)).sum())
        counts = len(ids), len(changed), unknown, overall.untimed if overall else 0
        key = after.kernel.name, after.device.key
        return ModuleChange(*key, Kind.CHANGED, None, *counts, overall, tuple(lines))

    def served(self) -> Iterator[Served]:
        """The GPUs that another module serves than before, by what both modules launch."""
        old, new = self.old.spec, self.new.spec
        for name in (name for name in new.kernels if name in old.kernels):
            moved: dict[tuple[str, str], list[str]] = {}
            for words, gpu in self.gpus().items():
                before, now = _serving(old, name, gpu), _serving(new, name, gpu)
                if before != now:
                    moved.setdefault((before, now), []).append(words)
            for (before, now), gpus in moved.items():
                one, other = self.old.modules.get((name, before)), self.new.modules.get((name, now))
                if not isinstance(other, Module):  # then nobody knows what a build makes of this spec
                    continue
                # A module has a table; `default` has none.
                snapshot, key = (self.old, before) if now == FALLBACK_DEVICE else (self.new, now)
                differs, overall = True, None
                with suppress(InputError):
                    if isinstance(one, Module):
                        found = self.priced(one, other, self.problem(snapshot, (name, key)))
                        differs, overall = found.changed + found.unknown > 0, found.overall
                yield Served(tuple(gpus), name, before, now, differs, overall)

    def gpus(self) -> dict[str, Gpu]:
        """The GPUs that a spec tells apart, in words; each as the first device with its architecture says."""
        every = [(side.spec, one) for side in (self.new, self.old) for one in side.spec.devices.values()]
        devices = [replace(device, arch=device.arch or self.arch(spec, device)) for spec, device in every]
        gpus = [(name, (name, one.arch or "", one.vendor)) for one in devices for name in one.names]
        gpus += [(f"other {one.arch} GPUs", ("", one.arch, one.vendor)) for one in devices if one.arch]
        gpus += [(f"other {one.vendor} GPUs", ("", "", one.vendor)) for one in devices]
        return {**dict(gpus), **dict(sorted(gpus, key=lambda gpu: not gpu[1][1])[::-1])}

    def arch(self, spec: Spec, device: DeviceSpec) -> str | None:
        """The architecture of a device by its tables, as for a GPU that no other name serves any more."""
        for kernel in spec.kernels.values() if device.names else ():
            with suppress(InputError, KeyError):
                table = self.read(kernel.tables[device.key])
                if any(is_model(table.device_name, name) for name in device.names):
                    return str(table.provenance["device"]["arch"])
        return None


def _forbidden(config: Config, module: Module, problem: Problem, rows: Sequence[int]) -> str | None:
    """The constraint that a config breaks in most of some scenarios, by a module's spec; None if none."""
    kernel, own = module.kernel, module.kernel.own(config)
    if own == kernel.fallback:  # is exempt
        return None
    found: Counter[str] = Counter()
    for features in problem.features[rows].tolist():
        known = dict(zip(problem.names, features, strict=True))
        known = kernel.with_derived({**module.device.limits, **known})
        found.update(rule.text for rule in broken(own, kernel, known))
    return next((text for text, count in found.most_common(1) if 2 * count > len(rows)), None)


def _serving(spec: Spec, kernel: str, gpu: Gpu) -> str:
    """The device whose module serves a GPU, as `for_device` of the generated package finds it."""
    by_name, by_arch, by_vendor = serving(spec.kernels[kernel], spec.devices)
    named = (key for model, key in by_name if is_model(gpu[0], model))
    return next(named, by_arch.get(gpu[1]) or by_vendor.get(gpu[2]) or FALLBACK_DEVICE)


def other_config(kernel: KernelSpec, old: Launches, new: Launches) -> npt.NDArray[np.bool_]:
    """[shapes] whether two modules launch other configs of a kernel; not where one cannot be asked."""
    configs = [[kernel.own(config) for config in side.configs] for side in (old, new)]
    names = {config: number for number, config in enumerate(dict.fromkeys([*configs[0], *configs[1]]))}
    numbers = [np.array([names[config] for config in side]) for side in configs]
    differ = numbers[0][old.config] != numbers[1][new.config]
    return np.asarray(differ & (old.config != UNKNOWN) & (new.config != UNKNOWN))


def difference(old: Module, new: Module, problem: Problem) -> Shape | None:
    """A shape for which two modules launch other configs; None if none was found.

    Rows and conditions that are equal launch the same for every integer. All else is asked at random shapes
    and along each feature's axis, from some scenarios of the problem, on both sides of each place where a
    module's choice changes. Of the shapes found, one that the spec's invariants allow comes first.
    """
    features = list(dict.fromkeys([*new.kernel.features, *old.kernel.features]))
    count, draw = len(problem.scenarios), random.Random(0)
    known, drawn = {}, {}
    for name in features:
        known[name] = problem.column(name).tolist() if name in problem.names else [1] * count
        most = math.log2(2 * max(1, *known[name]))
        drawn[name] = [int(2 ** draw.uniform(0, most)) for _ in range(_RANDOM)]
    found: list[Shape] = []

    def choices(shapes: Columns) -> Ints:
        """[shapes, 2] both modules' choices; shapes where they differ are noted."""
        size = len(shapes[features[0]])
        sides = [launches(m.kernel, m.device.limits, m.heuristic, shapes, size) for m in (old, new)]
        for place in np.flatnonzero(other_config(new.kernel, *sides))[:_KEPT]:
            found.append({name: int(column[place]) for name, column in shapes.items()})
        return np.stack([side.config for side in sides], axis=1)

    def is_impossible(shape: Shape) -> bool:
        derived = new.kernel.with_derived({**new.device.limits, **shape})
        return broken_invariant(new.kernel, new.device, derived) is not None

    choices(as_columns(drawn))
    places = sorted({number * (count - 1) // (_BASES - 1) for number in range(_BASES)})
    starts = {n: [known[n][place] for place in places] + drawn[n][: _BASES // 2] for n in features}
    bases = as_columns(starts)
    near = {number + step for module in (old, new) for number in numbers(module) for step in (-1, 0, 1)}
    rungs = np.array(sorted(_RUNGS | near), dtype=object)
    for axis in features:
        walks = {name: np.repeat(column, len(rungs)) for name, column in bases.items()}
        walks[axis] = np.tile(rungs, len(bases[axis]))
        chosen = choices(walks)
        changes = (chosen[1:] != chosen[:-1]).any(axis=1)
        changes[len(rungs) - 1 :: len(rungs)] = False  # where another walk begins
        ends = np.flatnonzero(changes)
        low, high, start = walks[axis][ends], walks[axis][ends + 1], chosen[ends]
        while len(ends) and (high - low > 1).any():  # two neighbours between which a choice changes
            middle = (low + high) // 2
            at = choices({**{name: column[ends] for name, column in walks.items()}, axis: middle})
            same = (at == start).all(axis=1)
            low, high = np.where(same, middle, low), np.where(same, high, middle)
    return min(found, key=is_impossible, default=None)

"""The list of changes between two snapshots, which JSON, Markdown and the terminal show alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import numpy as np

from treegen.core.errors import InputError
from treegen.core.heuristic import broken
from treegen.core.launches import UNKNOWN
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import FALLBACK_DEVICE, Config, Spec, is_model, serving
from treegen.crossval.score import Ints, launched, times_of
from treegen.fit.costs import table_noise
from treegen.read.problem import build_problem, read_table, refuse_other_gpu
from treegen.review.diff.prices import Price, Rules, price
from treegen.review.diff.probes import Shape, difference, other_config
from treegen.review.diff.snapshots import Snapshot, naming_revision
from treegen.review.diff.specs import row_changes, signature_changes, spec_changes, with_parameters_of
from treegen.review.diff.world import World, world_of
from treegen.review.modules import Module, ModuleKey, plain
from treegen.write.lock import digests


class Kind(StrEnum):
    """What became of a device's module."""

    SAME = "launches the same"
    TEXT = "launches the same; only text changed"
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
    price: Price | None  # None where no table has a time


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

    @property
    def worst(self) -> Line | None:
        """The line that costs most of those that regress."""
        regressing = [line for line in self.lines if line.regresses]
        return max(regressing, key=lambda line: line.worst[1].lost, default=None)


@dataclass(frozen=True)
class Diff:
    """Everything that differs between two snapshots."""

    old: str  # what the user called the old snapshot
    new: str
    threshold: float  # accepted slowdown, above 1
    gone: tuple[str, ...]  # names that programs may use, and that no longer exist or are called otherwise
    fields: tuple[str, ...]  # parameters that `Config` gains, with their kernel
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
    return _Comparison(old, new, threshold).diff()


class _Comparison:
    def __init__(self, old: Snapshot, new: Snapshot, threshold: float) -> None:
        self.old, self.new, self.threshold = old, new, threshold
        self.read = cache(read_table)  # several devices may share a table

    def diff(self) -> Diff:
        old, new = self.old.spec, self.new.spec
        keys = dict.fromkeys([*self.new.modules, *self.old.modules])
        modules = tuple(self.module(key) for key in keys)
        gone, fields = [], []
        if old.output.name != new.output.name and old is not new:
            gone.append(f"the package {old.output.name} is called {new.output.name} now")
        for name, kernel in old.kernels.items():
            if (now := new.kernels.get(name)) is None:
                gone.append(f"the kernel {name} is gone")
                continue
            left = (key for key in self.old.modules if key[0] == name and key not in self.new.modules)
            gone += [f"the module {'.'.join(key)} is gone" for key in left]
            gone += [f"{name}: {words}" for words in signature_changes(kernel, now)]
            fields += [f"{name}: {new}" for new in now.parameters if new not in kernel.parameters]
        paths = {f"{kernel}/{device}.py" for kernel, device in keys}
        texts = sorted({*self.old.texts, *self.new.texts} - paths)
        others = tuple(path for path in texts if self.old.texts.get(path) != self.new.texts.get(path))
        served = tuple(self.served())
        labels = self.old.label, self.new.label
        return Diff(*labels, self.threshold, tuple(gone), tuple(fields), served, modules, others)

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
            names = [kernel.constant_name(kernel.fallback) for kernel in (before.kernel, after.kernel)]
            if names[0] == names[1]:
                return ModuleChange(*key, same_text)
            return ModuleChange(*key, Kind.FALLBACK, text=(f"fallback: {names[0]} -> {names[1]}",))
        rows = with_parameters_of(after.kernel, before.heuristic)
        text = (*spec_changes(before, after), *row_changes(rows, after.heuristic, after.kernel))
        data_same = rows == after.heuristic and not [*spec_changes(before, after)]
        if data_same and self.same_table(key):
            return ModuleChange(*key, same_text)
        problem = self.problem(self.new, key)
        assert problem is not None  # the spec names its table, as it has a module
        found = self.priced(before, after, problem)
        told = {place for line in found.lines for place in line.places}
        found = replace(found, text=tuple(words for words in text if words.split(":")[0] not in told))
        if not found.changed:
            example = None if data_same else difference(before, after, problem)
            found = replace(found, kind=Kind.ELSEWHERE if example else same_text, example=example)
        try:
            past = self.problem(self.old, key)
            modules = before, after
            return replace(
                found, world=None if past is None else world_of(modules, (past, problem), self.threshold)
            )
        except InputError as error:
            return replace(found, note=f"the old table cannot be read: {error}")

    def problem(self, snapshot: Snapshot, key: ModuleKey) -> Problem | None:
        """A snapshot's table of a device as its spec reads it, with no config forbidden; None without one."""
        kernel = snapshot.spec.kernels.get(key[0])
        device = snapshot.spec.devices.get(key[1])
        if kernel is None or device is None or key[1] not in kernel.tables:
            return None
        with naming_revision(snapshot.label, snapshot.temporary):
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
        sides = [launched(problem, one.kernel, one.device.limits, one.heuristic) for one in (before, after)]
        times = [times_of(side, problem) for side in sides]
        differs = other_config(after.kernel, *sides)
        rules = Rules(self.threshold, table_noise(problem.table) / UNIT, problem.table.cells)
        ids = np.array(problem.scenarios)

        def priced(rows: Ints) -> Price:
            return price(ids[rows], times[0][rows], times[1][rows], rules)

        pairs: dict[tuple[int, int], list[int]] = {}
        for row in np.flatnonzero(differs).tolist():
            pairs.setdefault((int(sides[0].config[row]), int(sides[1].config[row])), []).append(row)
        lines = []
        for (one, other), rows in pairs.items():
            places: dict[str, list[int]] = {}
            for row in rows:
                places.setdefault(sides[1].place(after.kernel, after.heuristic, row), []).append(row)
            lines.append(
                Line(
                    before.kernel.constant_name(sides[0].configs[one]),
                    after.kernel.constant_name(sides[1].configs[other]),
                    priced(np.array(rows)),
                    {place: priced(np.array(inside)) for place, inside in places.items()},
                    _forbidden(sides[0].configs[one], after, problem, rows),
                )
            )
        lines.sort(key=lambda line: (not line.regresses, -abs(line.price.lost), line.old, line.new))
        changed = np.flatnonzero(differs)
        overall = priced(changed) if len(changed) else None
        return ModuleChange(
            after.kernel.name,
            after.device.key,
            Kind.CHANGED,
            scenarios=len(ids),
            changed=len(changed),
            unknown=int(((sides[0].config == UNKNOWN) | (sides[1].config == UNKNOWN)).sum()),
            untimed=0 if overall is None else overall.untimed,
            overall=overall,
            lines=tuple(lines),
        )

    def served(self) -> Iterator[Served]:
        """The GPUs that another module serves than before, by what both modules launch."""
        for name in self.new.spec.kernels:
            moved: dict[tuple[str, str], list[str]] = {}
            for words, gpu in (
                _gpus(self.old.spec, self.new.spec).items() if name in self.old.spec.kernels else ()
            ):
                pair = _serving(self.old.spec, name, gpu), _serving(self.new.spec, name, gpu)
                if pair[0] != pair[1]:
                    moved.setdefault(pair, []).append(words)
            for (before, now), gpus in moved.items():
                yield self.served_by(name, before, now, gpus)

    def served_by(self, name: str, before: str, now: str, gpus: Sequence[str]) -> Served:
        one, other = self.old.modules.get((name, before)), self.new.modules.get((name, now))
        unknown = Served(tuple(gpus), name, before, now, True, None)
        if not isinstance(one, Module) or not isinstance(other, Module):
            return unknown
        try:
            problem = self.problem(self.new, (name, now)) or self.problem(self.old, (name, before))
        except InputError:
            problem = None
        if problem is None:
            return unknown
        found = self.priced(one, other, problem)
        return replace(unknown, differs=found.changed > 0, price=found.overall)


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
    return max(found, key=found.__getitem__, default=None)


Gpu = tuple[str, str, str]
"""A GPU's name, architecture and vendor."""


def _gpus(old: Spec, new: Spec) -> dict[str, Gpu]:
    """The GPUs that one of two specs tells apart, in words."""
    found: dict[str, Gpu] = {}
    devices = [*new.devices.values(), *old.devices.values()]
    for device in devices:
        for name in device.names:
            found.setdefault(name, (name, device.arch or "", device.vendor))
    for device in devices:
        if device.arch is not None:
            found.setdefault(f"other {device.arch} GPUs", ("", device.arch, device.vendor))
    for device in devices:
        found.setdefault(f"other {device.vendor} GPUs", ("", "", device.vendor))
    return found


def _serving(spec: Spec, kernel: str, gpu: Gpu) -> str:
    """The device whose module serves a GPU, as `for_device` of the generated package finds it."""
    by_name, by_arch, by_vendor = serving(spec.kernels[kernel], spec.devices)
    named = (key for model, key in by_name if is_model(gpu[0], model))
    return next(named, by_arch.get(gpu[1]) or by_vendor.get(gpu[2]) or FALLBACK_DEVICE)

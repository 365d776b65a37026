"""The list of changes between two snapshots, which JSON, Markdown and the terminal show alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from treegen.core.spec import FALLBACK_DEVICE, KernelSpec, Spec, is_model, serving
from treegen.read.problem import read_table
from treegen.review.diff.prices import Price, PricedChoices, Verdict
from treegen.review.diff.rows import Line, line_changes, same_data, signature_changes, spec_changes
from treegen.review.diff.snapshots import Snapshot
from treegen.review.diff.tables import TableChange, price_modules
from treegen.review.modules import Module, ModuleKey
from treegen.write.lock import digests


class Kind(StrEnum):
    """What became of a device's module."""

    SAME = "launches the same"
    TEXT = "changed in text only: it launches the same"
    CHANGED = "launches differently"
    ADDED = "is new"
    REMOVED = "is gone"
    UNREADABLE = "cannot be read"
    INCOMPARABLE = "cannot be compared"


@dataclass(frozen=True)
class Change:
    """One bound, cell or list of runners-up that changed, or a pair of cells where the rows are others."""

    what: str
    prices: tuple[Price, ...]  # of the scenarios that change with it, one for each pricing table
    regresses: bool  # whether a table that judges finds it slower than allowed


@dataclass(frozen=True)
class ModuleChange:
    """What became of one kernel's and device's module."""

    kernel: str
    device: str
    kind: Kind
    note: str | None = None  # why something could not be compared
    served: str | None = None  # the device whose module serves this GPU in the snapshot without its module
    spec: tuple[str, ...] = ()  # what the spec says differently about launches
    launched: Price | None = None  # time that is launched, by the new table over the old one
    # The same for each config that was launched and now regresses, by its name.
    slower: Mapping[str, Price] = field(default_factory=dict)
    overall: tuple[Price, ...] = ()  # of all scenarios, one for each pricing table
    changes: tuple[Change, ...] = ()
    table: TableChange | None = None
    regresses: bool = False  # whether something is slower than allowed, or the new module cannot be read

    def __str__(self) -> str:
        return f"{self.kernel} on {self.device}"

    @property
    def same(self) -> bool:
        return self.kind in (Kind.SAME, Kind.TEXT)

    @property
    def priced(self) -> bool:
        """Return whether some table that judges has times, or winners, of what changed."""
        judged = [price for price in self.overall if price.judges]
        return self.launched is not None or any(price.verdict is not Verdict.UNTIMED for price in judged)

    @property
    def has_news(self) -> bool:
        """Return whether a reader should see more than that the module is the same."""
        return self.kind is not Kind.SAME or any((self.table, self.note, self.spec))

    @property
    def contradicted(self) -> bool:
        """Return whether one table that judges says faster and another one slower."""
        return {Verdict.FASTER, Verdict.SLOWER} <= {price.verdict for price in self.overall if price.judges}

    @property
    def how(self) -> str:
        """What became of the module, and in how many scenarios it launches another config."""
        text = str(self.kind)
        if self.served is not None:
            text += f", served by {self.served} {'now' if self.kind is Kind.REMOVED else 'before'}"
        if self.same or not self.overall:
            return text
        changed, scenarios = self.overall[0].changed, self.overall[0].scenarios
        if unknown := self.overall[0].unknown:
            lacking = f"in {unknown:,} of {scenarios:,} scenarios the table lacks a feature that is asked"
            return f"{text}: {lacking}"
        others = f"other configs in {changed:,} of {scenarios:,} measured scenarios"
        return f"{text}: {others if changed else 'only where nothing was measured'}"


@dataclass(frozen=True)
class Diff:
    """Everything that differs between two snapshots."""

    old: str  # what the user called the old snapshot
    new: str
    threshold: float  # accepted slowdown, above 1
    regresses: bool
    signature: Mapping[str, tuple[str, ...]]  # by kernel, what breaks callers of its modules
    modules: tuple[ModuleChange, ...]
    files: Mapping[str, str]  # how each other file of the output folder changed, by path


def compare(old: Snapshot, new: Snapshot, threshold: float) -> Diff:
    """Everything that differs between two snapshots. threshold: the accepted slowdown, above 1.

    Raises InputError for a table of the new snapshot that cannot be read.
    """
    read = cache(read_table)  # several devices may share a table

    def compare_module(key: ModuleKey) -> ModuleChange:
        before, after, kind, served = old.modules.get(key), new.modules.get(key), Kind.CHANGED, None
        if before is None:
            kind = Kind.ADDED
            before, served = serving_module(old, new, key)
        elif after is None:
            kind = Kind.REMOVED
            after, served = serving_module(new, old, key)
        if isinstance(after, str):
            note = f"the new module cannot be read: {after}"
            return ModuleChange(*key, Kind.UNREADABLE, note, regresses=True)
        if isinstance(before, str):
            return ModuleChange(*key, Kind.INCOMPARABLE, f"the old module cannot be read: {before}")
        if before is None or after is None:
            return ModuleChange(*key, kind)
        device = before.device if kind is Kind.REMOVED else after.device
        same = kind is Kind.CHANGED and same_data(before, after)
        if same:
            kind = Kind.SAME if before.text == after.text else Kind.TEXT
        of_spec = tuple(spec_changes(before, after)) if served is None else ()
        if same and not of_spec and same_table(old, new, key):
            return ModuleChange(*key, kind)
        pricing = price_modules((old, new), (before, after), device, threshold, read)
        overall = tuple(choices.price() for choices in pricing.choices)
        changes = () if same else _changes(before, after, pricing.choices)
        prices = [*overall, *pricing.slower.values(), *(p for c in changes for p in c.prices)]
        prices += [] if pricing.launched is None else [pricing.launched]
        return ModuleChange(
            *key,
            kind,
            pricing.note,
            served,
            of_spec,
            pricing.launched,
            pricing.slower,
            overall,
            changes,
            pricing.change,
            any(price.regresses for price in prices),
        )

    modules = tuple(compare_module(key) for key in dict.fromkeys([*new.modules, *old.modules]))
    regresses = any(module.regresses for module in modules)
    kernels = old.spec.kernels
    pairs = {name: (kernels[name], kernel) for name, kernel in new.spec.kernels.items() if name in kernels}
    signature = {name: parts for name, pair in pairs.items() if (parts := tuple(signature_changes(*pair)))}
    return Diff(old.label, new.label, threshold, regresses, signature, modules, _other_files(old, new))


def same_table(old: Snapshot, new: Snapshot, key: ModuleKey) -> bool:
    """Whether two snapshots have the same table for a module, or none."""
    specs = [snapshot.spec.kernels.get(key[0]) for snapshot in (old, new)]
    before, after = (spec.tables.get(key[1]) if spec else None for spec in specs)
    try:
        return before == after if before is None or after is None else digests(before) == digests(after)
    except OSError:
        return False  # pricing tells of the file


def serving_module(
    snapshot: Snapshot, other: Snapshot, key: ModuleKey
) -> tuple[Module | str | None, str | None]:
    """Return what serves a GPU in a snapshot without a module for it: the module and the key of its device.

    `other` has a module for the GPU. The snapshot serves it with the module of its model, architecture or
    vendor, or with the default module, as `for_device` of the generated package does.
    """
    kernel, name = key
    device, spec = other.spec.devices.get(name), snapshot.spec
    if device is None:
        return None, None
    keys: list[str | None] = []
    if kernel in spec.kernels:
        by_name, by_arch, by_vendor = serving(spec.kernels[kernel], spec.devices)
        keys = [key for model, key in by_name if any(is_model(given, model) for given in device.names)]
        keys += [by_arch.get(device.arch or ""), by_vendor.get(device.vendor)]
    for served in (*keys, FALLBACK_DEVICE):
        if served is not None and (kernel, served) in snapshot.modules:
            return snapshot.modules[kernel, served], served
    return None, None


def _changes(before: Module, after: Module, choices: Sequence[PricedChoices]) -> tuple[Change, ...]:
    """All changes, regressions and what moves most time first."""
    lines = line_changes(before, after, choices[0] if choices else None)
    priced = [(line, tuple(c.price(c.rows_of(line.scenarios)) for c in choices)) for line in lines]

    def rank(found: tuple[Line, tuple[Price, ...]]) -> tuple[bool, bool, float, int]:
        line, prices = found
        times = [abs(math.log(price.ratio)) * price.timed for price in prices if price.ratio]
        regresses = any(price.regresses for price in prices)
        return not line.is_tree, not regresses, -max(times, default=0.0), -len(line.scenarios)

    return tuple(
        Change(line.what, prices, any(price.regresses for price in prices))
        for line, prices in sorted(priced, key=rank)
    )


def _other_files(old: Snapshot, new: Snapshot) -> dict[str, str]:
    """How each generated file that is no device's module changed."""
    modules = {f"{kernel}/{device}.py" for kernel, device in (*old.modules, *new.modules)}
    changes = {}
    for path in sorted({*old.texts, *new.texts} - modules):
        before, after = old.texts.get(path), new.texts.get(path)
        if before != after:
            how = _how_changed(path, old.spec, new.spec)
            changes[path] = "is new" if before is None else "is gone" if after is None else how
    return changes


def _how_changed(path: str, old: Spec, new: Spec) -> str:
    """What a file that all devices of a kernel share says differently: `changed: sm_90: a -> b`."""
    name, _, file = path.partition("/")
    if name not in old.kernels or name not in new.kernels:
        return "changed"
    before, after = (_said(file, spec.kernels[name], spec) for spec in (old, new))
    words = [
        f"{key}: {before.get(key, 'not listed')} -> {after.get(key, 'not listed')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return f"changed: {'; '.join(words)}" if words else "changed"


def _said(file: str, kernel: KernelSpec, spec: Spec) -> dict[str, str]:
    """What a kernel's `__init__.py` or `config.py` says of its spec."""
    if file == "config.py":
        defaults = kernel.fields()
        return {f"Config.{n}": "required" if d is None else f"{d} by default" for n, d in defaults}
    if file != "__init__.py":
        return {}
    by_name, by_arch, by_vendor = serving(kernel, spec.devices)
    found = dict(by_name) | by_arch | {f"{vendor} GPUs": key for vendor, key in by_vendor.items()}
    for name in kernel.features:
        if name not in kernel.values:
            continue
        words = (f"{number}: {word}" for number, word in sorted(kernel.values[name].items()))
        found[f"VALUES of {name}"] = ", ".join(words)
    return found

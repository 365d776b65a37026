"""Compare two snapshots, module by module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.spec import FALLBACK_DEVICE, Budget, DeviceSpec, Spec, is_model, serving
from treegen.core.table import Table
from treegen.core.tree import size
from treegen.read.table_file import read_table
from treegen.review.diff.changes import config_changes
from treegen.review.diff.decisions import with_new_names
from treegen.review.diff.pricing_tables import find_pricing_tables
from treegen.review.diff.results import ComparisonKind, Diff, ModuleComparison
from treegen.review.diff.snapshots import Snapshot
from treegen.review.modules import Module, ModuleKey

_MEANINGS = {"config.py": "the launch config's type", "__init__.py": "which module serves which GPU"}


def compare(old: Snapshot, new: Snapshot, threshold: float, *, expect_jump: bool = False) -> Diff:
    """Everything that differs between two snapshots. threshold: the accepted slowdown, above 1.

    Raises InputError for a table of the new snapshot that cannot be read, and for times that all changed by
    10x or more, unless `expect_jump`.
    """
    read = cache(read_table)  # several devices may share a table
    comparisons = tuple(
        _compare_module(old, new, key, threshold, read, expect_jump=expect_jump) for key in _keys(old, new)
    )
    return Diff(old.label, new.label, threshold, comparisons, _other_files(old, new))


def _keys(old: Snapshot, new: Snapshot) -> list[ModuleKey]:
    """The modules to compare: all of both snapshots, or the one that the user named."""
    if new.single:
        return list(new.modules)
    if old.single:
        return [key for key in new.modules if key in old.modules] or list(old.modules)
    return list(dict.fromkeys([*new.modules, *old.modules]))


def _compare_module(
    old: Snapshot,
    new: Snapshot,
    key: ModuleKey,
    threshold: float,
    read: Callable[[Path], Table],
    *,
    expect_jump: bool,
) -> ModuleComparison:
    before, after = old.modules.get(key), new.modules.get(key)
    kind = served = None
    if before is None:
        kind = ComparisonKind.ADDED
        before, served = serving_module(old, new, key)
    elif after is None:
        kind = ComparisonKind.REMOVED
        after, served = serving_module(new, old, key)
    if isinstance(after, str):
        note = f"the new module cannot be read: {after}"
        return ModuleComparison(*key, kind or ComparisonKind.UNREADABLE, note=note)
    if isinstance(before, str):
        note = f"the old module cannot be read: {before}"
        return ModuleComparison(*key, kind or ComparisonKind.INCOMPARABLE, note=note)
    if before is None or after is None:
        return ModuleComparison(*key, kind or ComparisonKind.INCOMPARABLE)
    device = before.device if kind is ComparisonKind.REMOVED else after.device
    tables = find_pricing_tables(old, new, after.kernel, device, read, expect_jump=expect_jump)
    choices = [table.price_choices(before, after, threshold) for table in tables.tables]
    changes = config_changes(with_new_names(before, after), after.tree, after.kernel, choices)
    if kind is None and changes:
        kind = ComparisonKind.CHANGED
    return ModuleComparison(
        *key,
        kind or (ComparisonKind.SAME if before.text == after.text else ComparisonKind.TEXT),
        note=tables.note,
        served=served,
        priced_by=tuple(table.label for table in tables.tables),
        judges=tuple(table.label for table in tables.tables if table.judges),
        overall=tuple(priced.overall() for priced in choices),
        changes=changes,
        leaves=(size(before.tree), size(after.tree)),
        budget=_budget_change(before.kernel.budget, after.kernel.budget),
        table=tables.change,
    )


def _budget_change(old: Budget, new: Budget) -> dict[str, tuple[float, float]]:
    before, now = asdict(old), asdict(new)
    return {limit: (before[limit], now[limit]) for limit in now if before[limit] != now[limit]}


def serving_module(
    snapshot: Snapshot, other: Snapshot, key: ModuleKey
) -> tuple[Module | str | None, str | None]:
    """Return what serves a GPU in a snapshot without a module for it: the module and the key of its device.

    `other` has a module for the GPU. The snapshot serves it with the module of its model, architecture or
    vendor, or with the default module, as `for_device` of the generated package does. If the user named one
    file, its module serves the GPU. Raises InputError if that module is of another kernel.
    """
    kernel, device = key
    if snapshot.single:
        (((module_kernel, served), module),) = snapshot.modules.items()
        if module_kernel != kernel:
            raise InputError(
                shown(snapshot.label),
                f"is a module of {module_kernel}; it cannot be compared with one of {kernel}",
            )
        return module, served
    described = other.spec.devices.get(device)
    for served in _serving_devices(snapshot.spec, kernel, described) if described else ():
        if (kernel, served) in snapshot.modules:
            return snapshot.modules[kernel, served], served
    return None, None


def _serving_devices(spec: Spec, kernel: str, device: DeviceSpec) -> list[str]:
    """Keys of the devices whose module may serve a GPU, the closest first."""
    if kernel not in spec.kernels:
        return [FALLBACK_DEVICE]
    by_name, by_arch, by_vendor = serving(spec.kernels[kernel], spec.devices)
    by_model = [key for name, key in by_name if any(is_model(given, name) for given in device.names)]
    others = (by_arch.get(device.arch or ""), by_vendor.get(device.vendor), FALLBACK_DEVICE)
    return [*by_model, *filter(None, others)]


def _other_files(old: Snapshot, new: Snapshot) -> dict[str, str]:
    """The change of each generated file that is no device's module; empty if a snapshot is one module."""
    if old.single or new.single:
        return {}
    modules = {f"{kernel}/{device}.py" for kernel, device in (*old.modules, *new.modules)}
    changes = {}
    for path in sorted({*old.texts, *new.texts} - modules):
        before, after = old.texts.get(path), new.texts.get(path)
        if before != after:
            how = "is new" if before is None else "is gone" if after is None else "changed"
            folder, _, name = path.rpartition("/")
            changes[path] = f"{how} ({_MEANINGS[name]})" if folder and name in _MEANINGS else how
    return changes

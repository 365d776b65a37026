"""The kind, title and exit code of what became of a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, KERNEL, REPOSITORY, as_h100, error_of, planted, spec, write_project
from treegen_diffs import BEST, MEDIUM, NARROW, WIDE, compared, of_device, project, write_modules

from treegen.core.tree import Split, Tree
from treegen.review.diff.price import Verdict
from treegen.review.diff.results import ComparisonKind, Diff, ModuleComparison
from treegen.review.diff.wording import size_words, summary, title

MODULE = Path("generated/scale/nvidia_h100.py")


def _kinds(diff: Diff) -> dict[str, ComparisonKind]:
    return {comparison.device: comparison.kind for comparison in diff.comparisons}


def _project_of(folder: Path, trees: dict[str, Tree], tables: list[str], **devices: dict[str, Any]) -> Path:
    """A project with more devices and the modules of some."""
    content = spec(tables={key: as_h100() for key in tables})
    content["devices"] |= devices
    write_modules(write_project(folder, content), {(KERNEL, key): tree for key, tree in trees.items()})
    return folder


def test_changed(tmp_path: Path) -> None:
    """MEDIUM costs 1.25 of WIDE's time where it replaces it."""
    new = project(tmp_path / "new", Split("area", 64, NARROW, MEDIUM))
    diff = compared(project(tmp_path / "old"), new)
    found = of_device(diff)
    assert found.kind is ComparisonKind.CHANGED and diff.regresses
    assert title(found) == "scale on nvidia_h100 launches differently in 3 of 9 measured scenarios"
    (change,) = found.changes
    assert (change.old, change.new) == ("PLAIN_B128_W8", "PLAIN_B64_W4")
    assert (change.where, change.measured) == (("area over 64",), "rows over 7, columns over 7")
    assert change.prices[0].ratio == pytest.approx(1.25)
    assert found.overall[0].ratio == pytest.approx(1.25 ** (3 / 9))
    assert summary(diff).startswith(
        "1 of 2 modules changed. scale on nvidia_h100 regresses by more than noise"
    )


def test_changed_where_nothing_was_measured(tmp_path: Path) -> None:
    diff = compared(
        project(tmp_path / "old"), project(tmp_path / "new", Split("area", 1_000_000, BEST, NARROW))
    )
    found = of_device(diff)
    assert title(found) == "scale on nvidia_h100 launches differently, but only where nothing was measured"
    assert found.changes[0].prices[0].verdict is Verdict.SAME and found.changes[0].empty == 1
    assert found.changes[0].where == ("area over 1,000,000",)
    assert not diff.regresses


H200 = {"nvidia_h200": {"names": ["NVIDIA H200"], "arch": "sm_90", "vendor": "nvidia"}}
FAMILY = {"nvidia": {"vendor": "nvidia"}}
L4 = {"nvidia_l4": {"names": ["NVIDIA L4"], "arch": "sm_89", "vendor": "nvidia"}}
MI300X = {"amd_mi300x": {"names": ["AMD Instinct MI300X"], "arch": "gfx942", "vendor": "amd"}}


@pytest.mark.parametrize(
    ("device", "served"),
    [(H200, DEVICE), (L4, "nvidia"), (MI300X, "default")],
    ids=["by architecture", "by vendor", "by default"],
)
def test_added_and_removed(tmp_path: Path, device: dict[str, Any], served: str) -> None:
    """A new module is compared with the one that served its GPU, a removed one with the one that does now."""
    (key,) = device
    trees: dict[str, Tree] = {DEVICE: NARROW, "nvidia": WIDE}
    without = _project_of(tmp_path / "without", trees, [DEVICE, "nvidia"], **FAMILY)
    having = _project_of(tmp_path / "with", {**trees, key: BEST}, [DEVICE, "nvidia", key], **FAMILY, **device)
    added, removed = of_device(compared(without, having), key), of_device(compared(having, without), key)
    assert (added.kind, added.served, removed.kind, removed.served) == (
        ComparisonKind.ADDED,
        served,
        ComparisonKind.REMOVED,
        served,
    )
    changed = {DEVICE: 3, "nvidia": 6, "default": 9}[served]
    how = f"other configs in {changed} of 9 measured scenarios"
    assert title(added) == f"scale on {key} is new, served by {served} before: {how}"
    assert title(removed) == f"scale on {key} is gone, served by {served} now: {how}"
    assert not added.regresses and removed.regresses
    for one, other in zip(added.overall, removed.overall, strict=True):
        assert one.ratio is not None and other.ratio == pytest.approx(1 / one.ratio)
    assert (added.judges, removed.judges) == (("by the table",), ("by the old table",))


def test_a_new_module_that_launches_what_served_its_gpu(tmp_path: Path) -> None:
    without = _project_of(tmp_path / "without", {DEVICE: BEST}, [DEVICE])
    having = _project_of(tmp_path / "with", dict.fromkeys([DEVICE, *H200], BEST), [DEVICE, *H200], **H200)
    found = of_device(compared(without, having), "nvidia_h200")
    assert title(found) == "scale on nvidia_h200 is new, served by nvidia_h100 before: launches the same"


def test_a_kernel_that_comes_or_goes_was_served_by_nothing(tmp_path: Path) -> None:
    old = project(tmp_path / "old")
    content = spec()
    content["kernels"]["shift"] = content["kernels"][KERNEL]
    spec_path = write_project(tmp_path / "new", content, kernel="scale")
    write_modules(spec_path, {(KERNEL, DEVICE): BEST, ("shift", DEVICE): BEST})
    for diff, kind in (
        (compared(old, tmp_path / "new"), ComparisonKind.ADDED),
        (compared(tmp_path / "new", old), ComparisonKind.REMOVED),
    ):
        found = [c for c in diff.comparisons if c.kernel == "shift"]
        assert found == [ModuleComparison("shift", device, kind) for device in (DEVICE, "default")]
        assert summary(diff).endswith(". No table prices shift on nvidia_h100, shift on default.")
        assert not diff.regresses
    one, other = (f"generated/{kernel}/{DEVICE}.py" for kernel in (KERNEL, "shift"))
    message = error_of(compared, tmp_path / "new" / one, tmp_path / "new" / other, spec_path)
    assert message.endswith("is a module of scale; it cannot be compared with one of shift")


def test_a_change_of_the_budget_is_named(tmp_path: Path) -> None:
    content = spec(tree={"max_depth": 4, "max_leaves": 2, "leaf_price": 0.002})
    found = of_device(compared(project(tmp_path / "old"), project(tmp_path / "new", NARROW, content)))
    assert found.budget == {"max_leaves": (8, 2), "leaf_price": (0.0, 0.002)}
    assert size_words(found) == (
        "Leaves, guards included: 2 before, 1 now. "
        "The spec's budget changed: max_leaves 8 -> 2, leaf_price 0 -> 0.002."
    )


def test_unreadable(tmp_path: Path) -> None:
    """An edited new module fails the diff, as its launches are unknown; an edited old one does not."""
    good, bad = project(tmp_path / "good"), project(tmp_path / "bad")
    (bad / MODULE).write_text((bad / MODULE).read_text().replace("area <=", "area <"))
    new, old = compared(good, bad), compared(bad, good)
    assert (of_device(new).kind, of_device(old).kind) == (
        ComparisonKind.UNREADABLE,
        ComparisonKind.INCOMPARABLE,
    )
    assert (new.regresses, old.regresses) == (True, False)
    assert (of_device(new).note or "").startswith(f"the new module cannot be read: {bad / MODULE}:")
    assert (of_device(old).note or "").startswith(f"the old module cannot be read: {bad / MODULE}:")
    rest = "regresses by more than noise and 1.0%"
    unknown = "scale on nvidia_h100 cannot be read"
    assert summary(new) == f"1 of 2 modules changed. {unknown}. No other module {rest}."
    assert summary(old) == f"1 of 2 modules changed. Nothing {rest}. No table prices scale on nvidia_h100."
    assert of_device(compared(bad, bad)).kind is ComparisonKind.UNREADABLE


def test_other_files(tmp_path: Path) -> None:
    old = project(tmp_path / "old")
    content = spec()
    content["devices"][DEVICE]["names"] = ["NVIDIA H100", "NVIDIA GH200"]
    new = project(tmp_path / "new", content=content)
    (new / "generated/scale/extra.py").write_text("")
    assert compared(old, new).files == {
        "scale/__init__.py": "changed (which module serves which GPU)",
        "scale/extra.py": "is new",
    }
    assert compared(new, old).files["scale/extra.py"] == "is gone"
    assert compared(old / MODULE, new, new / "treegen.yaml").files == {}


def test_the_fallback_breaks_no_constraint_but_may_have_failed(tmp_path: Path) -> None:
    """MEDIUM is the fallback; 100 heads forbid its block of 64 to all but the fallback."""
    shapes = [(rows, 8, 100) for rows in (1, 8, 64)]
    for name, times, verdict_ in (
        ("good", lambda row: planted(row), Verdict.UNTIMED),
        ("failed", lambda row: [10.0, "inf", 20.0], Verdict.SLOWER),
    ):
        old = project(tmp_path / name / "old", WIDE, shapes=shapes, times=times)
        new = project(tmp_path / name / "new", MEDIUM, shapes=shapes, times=times)
        assert of_device(compared(old, new)).overall[0].verdict is verdict_


def test_the_repository_compares_with_itself() -> None:
    """One module, as tables of the others take seconds to read."""
    spec_path = REPOSITORY / "treegen.yaml"
    diff = compared(REPOSITORY / "generated/unified_attention/amd.py", REPOSITORY, spec_path)
    assert _kinds(diff) == {"amd": ComparisonKind.SAME} and not diff.regresses

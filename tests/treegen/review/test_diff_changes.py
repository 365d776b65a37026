"""What became of each module, and the exit codes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    Cell,
    as_h100,
    build,
    imported,
    planted,
    spec,
    write_project,
    write_spec,
)
from treegen_builders import Row as GridRow
from treegen_diffs import BEST, MEDIUM, NARROW, WIDE, Ask, Tree, compared, of_device, project, write_modules

from treegen.cli.main import main
from treegen.core.heuristic import Row
from treegen.read.spec import read_spec
from treegen.review.diff.changes import Change, Kind, ModuleChange, compare, serving_module
from treegen.review.diff.markdown import markdown
from treegen.review.diff.prices import Verdict
from treegen.review.diff.snapshots import read_snapshot
from treegen.review.modules import Module

MODULE = Path("generated/scale/nvidia_h100.py")
SLOWER = Ask("area", 64, NARROW, MEDIUM)
"""It costs 25% more than BEST in a third of the scenarios."""


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_exit_codes(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    old, slower = project(tmp_path / "old"), project(tmp_path / "slower", SLOWER)
    for arguments, status in (
        ((old, old), 0),
        ((slower, old), 0),
        ((old, slower), 1),
        ((old, slower, "--threshold", "24"), 1),
        ((old, slower, "--threshold", "26"), 0),
        ((old, slower, "--threshold", "0"), 1),
    ):
        assert main(["diff", *map(str, arguments), "--format", form]) == status
        said = capsys.readouterr()
        assert said.err == "" and said.out.endswith("\n")


def _lines(tmp_path: Path, old: Tree, new: Tree, **content: Any) -> list[Change]:
    written = spec(**content)
    found = of_device(
        compared(project(tmp_path / "old", old, written), project(tmp_path / "new", new, written))
    )
    assert found.kind is Kind.CHANGED
    return list(found.changes)


def test_a_cell_names_the_classes_that_change(tmp_path: Path) -> None:
    classes = {"few": "heads <= 1", "some": "heads <= 4", "many": "otherwise"}
    new = Ask("area", 64, NARROW, Row(WIDE, {"some": MEDIUM}))
    (change,) = _lines(tmp_path, BEST, new, classes=classes)
    assert change.what == "steps, row 1, some: PLAIN_B128_W8 -> PLAIN_B64_W4"
    assert change.prices[0].scenarios == 3


def test_a_moved_bound_is_a_line_with_the_rows_that_serve_now(tmp_path: Path) -> None:
    (change,) = _lines(tmp_path, BEST, Ask("area", 8, NARROW, WIDE))
    assert change.what == "steps: area <= 64 -> 8, from row 0 to row 1"
    assert (change.prices[0].scenarios, change.prices[0].ratio) == (3, pytest.approx(3.0))


def test_other_runners_up_are_a_line_without_scenarios(tmp_path: Path) -> None:
    (change,) = _lines(tmp_path, BEST, Ask("area", 64, NARROW, Row(WIDE, then=(MEDIUM,))))
    assert change.what == "steps, row 1: runners-up none -> PLAIN_B64_W4"
    assert change.prices[0].scenarios == 0


def test_other_questions_are_listed_by_pairs_of_cells_costliest_first(tmp_path: Path) -> None:
    changes = _lines(tmp_path, BEST, Ask("rows", 1, WIDE, Ask("columns", 8, MEDIUM, WIDE)))
    pairs = [change for change in changes if change.prices[0].scenarios]
    assert [change.what for change in pairs] == [
        "steps, row 0 PLAIN_B16_W2 -> steps, row 0 PLAIN_B128_W8",
        "steps, row 0 PLAIN_B16_W2 -> steps, row 1 PLAIN_B64_W4",
        "steps, row 1 PLAIN_B128_W8 -> steps, row 1 PLAIN_B64_W4",
    ]
    assert len(changes) == 4 and "2 rows before, 3 rows now" in changes[0].what


def test_regressions_come_first_then_what_saves_most(tmp_path: Path) -> None:
    changes = _lines(tmp_path, Ask("area", 64, WIDE, NARROW), Ask("area", 64, MEDIUM, WIDE))
    assert [change.what[-13:] for change in changes] == ["-> PLAIN_B64_W4"[-13:], "PLAIN_B128_W8"]


def test_a_spec_that_says_something_else_about_launches(tmp_path: Path) -> None:
    old = project(tmp_path / "old")
    new = project(tmp_path / "new", content=spec(constraints=["block >= 2 * heads"]))
    found = of_device(compared(old, new))
    assert any("block >= heads" in line for line in found.spec)
    assert not compared(old, new).signature and found.kind is Kind.CHANGED


def test_a_changed_signature_comes_first_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new spec has dropped a feature; the old module is priced by the table's column all the same."""
    old = project(tmp_path / "old", Ask("heads", 2, NARROW, WIDE))
    content = spec(features=["rows", "columns"], constants=["rows"], constraints=[])
    new = project(tmp_path / "new", WIDE, content)
    found = of_device(compared(old, new))
    assert found.regresses and found.overall[0].timed == 9
    tolerant = ["diff", str(old), str(new), "--format", "markdown", "--threshold", "1000"]
    assert main(tolerant) == 1
    first = capsys.readouterr().out.split("\n\n")[1]
    assert "choose()" in first and "heads" in first
    assert main([*tolerant, "--expect-signature"]) == 0
    assert main(["diff", str(old), str(new), "--expect-signature"]) == 1  # it is slower, too


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"constants": ["heads"]}, ["for_model()", "step"]),
        ({"constants": ["columns", "heads"]}, ["for_model()"]),
        ({"features": ["rows", "heads", "columns"]}, []),
        ({"features": ["columns", "rows", "heads"], "constants": ["heads"]}, ["for_model()", "step"]),
    ],
)
def test_arguments_by_place_are_part_of_the_signature(
    tmp_path: Path, change: dict[str, list[str]], broken: list[str]
) -> None:
    before = {"constants": ["heads", "columns"]}
    old = project(tmp_path / "old", content=spec(**before))
    diff = compared(old, project(tmp_path / "new", content=spec(**{**before, **change})))
    parts = diff.signature.get(KERNEL, ())
    assert [
        name for name in ("choose()", "for_model()", "step") if any(name in part for part in parts)
    ] == broken


@pytest.mark.parametrize("key", ["date", "driver"])
def test_a_launched_config_that_got_slower_regresses(tmp_path: Path, key: str) -> None:
    """The modules are the same; the headline states the time by the new table over the old one."""
    old = project(tmp_path / "old")
    slower = {"times": lambda row: [1.2 * time for time in planted(row)], key: "2026-02-01"}
    diff = compared(old, project(tmp_path / "new", **slower))
    found = of_device(diff)
    assert found.kind is Kind.SAME and found.launched is not None
    assert found.launched.ratio == pytest.approx(1.2) and diff.regresses
    assert "+20%" in markdown(diff).split("####")[0]
    assert not compared(tmp_path / "new", old).regresses


def _launched_anew(tmp_path: Path, times: Callable[[GridRow], Sequence[Cell]]) -> ModuleChange:
    """BEST in 36 shapes of which one, of area 1, launches NARROW, with other times in the new table."""
    shapes = [(1, 1, 2)] + [(rows, 64, 2) for rows in range(2, 37)]
    old = project(tmp_path / "old", shapes=shapes)
    return of_device(compared(old, project(tmp_path / "new", shapes=shapes, times=times, date="2026-02-01")))


def test_one_launched_config_that_got_slower_regresses_whatever_the_others_hide(tmp_path: Path) -> None:
    found = _launched_anew(tmp_path, lambda row: [planted(row)[0] * 1.2, *planted(row)[1:]])
    assert found.launched is not None and found.launched.verdict is Verdict.TOLERATED
    assert found.regresses and list(found.slower) == ["PLAIN_B16_W2"]
    assert found.slower["PLAIN_B16_W2"].ratio == pytest.approx(1.2)


def test_a_launched_config_that_fails_now_regresses(tmp_path: Path) -> None:
    found = _launched_anew(tmp_path, lambda row: ["inf", *planted(row)[1:]] if row[0] == 1 else planted(row))
    assert found.regresses and found.launched is not None and found.launched.failing == 1


def test_nothing_is_said_to_regress_or_not_of_a_module_that_no_table_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A feature has another name, so neither table holds what the other module asks about."""
    old = project(tmp_path / "old", Ask("heads", 1, NARROW, WIDE))
    renamed = ["rows", "columns", "groups"]
    content = spec(features=renamed, constants=["groups"], constraints=["block >= groups"])
    new = project(tmp_path / "new", Ask("groups", 1, WIDE, NARROW), content, features=renamed)
    found = of_device(compared(old, new))
    assert not found.priced and found.overall[0].unknown == 9 and found.overall[0].changed == 0
    assert main(["diff", str(old), str(new), "--format", "markdown"]) == 1
    assert "regress" not in (page := capsys.readouterr().out) and f"No table prices scale on {DEVICE}" in page


def test_shared_files_say_which_module_serves_which_gpu(tmp_path: Path) -> None:
    without = _project_of(tmp_path / "without", {DEVICE: BEST}, **FAMILY)
    having = _project_of(tmp_path / "with", {DEVICE: BEST, "nvidia": BEST, "nvidia_l4": BEST}, **FAMILY, **L4)
    how = compared(without, having).files[f"{KERNEL}/__init__.py"]
    for name, served in (("NVIDIA L4", "nvidia_l4"), ("sm_89", "nvidia_l4"), ("nvidia GPUs", "nvidia")):
        assert f"{name}: not listed -> {served}" in how


def test_what_an_older_treegen_printed_is_compared_as_the_old_side(tmp_path: Path) -> None:
    old, new = (write_project(tmp_path / name).parent for name in ("old", "new"))
    assert [build(folder / "treegen.yaml") for folder in (old, new)] == [0, 0]
    path, lock = old / MODULE, old / "generated/treegen.lock"
    built = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(path.read_text().replace("# Row(", "# A row("))
    printed = hashlib.sha256(path.read_bytes()).hexdigest()
    for digests, kind in (((built, built), Kind.INCOMPARABLE), ((built, printed), Kind.TEXT)):
        lock.write_text(lock.read_text().replace(*digests))
        with ExitStack() as stack:
            before, after = (read_snapshot(str(f), None, stack, older=f == old) for f in (old, new))
            assert of_device(compare(before, after, 1.01)).kind is kind
    assert main(["diff", str(old), str(new)]) == 0 and main(["diff", str(new), str(old)]) == 1


H200 = {"nvidia_h200": {"names": ["NVIDIA H200"], "arch": "sm_90", "vendor": "nvidia"}}
FAMILY = {"nvidia": {"vendor": "nvidia"}}
L4 = {"nvidia_l4": {"names": ["NVIDIA L4"], "arch": "sm_89", "vendor": "nvidia"}}
MI300X = {"amd_mi300x": {"names": ["AMD Instinct MI300X"], "arch": "gfx942", "vendor": "amd"}}


def _project_of(folder: Path, trees: dict[str, Tree], **devices: dict[str, Any]) -> Path:
    """A project with more devices and the modules of those in `trees`."""
    content = spec(tables={key: as_h100() for key in trees})
    content["devices"] |= devices
    write_modules(write_project(folder, content), {(KERNEL, key): tree for key, tree in trees.items()})
    return folder


@pytest.mark.parametrize(
    ("device", "served", "changed"),
    [(H200, DEVICE, 3), (L4, "nvidia", 6), (MI300X, "default", 9)],
    ids=["by architecture", "by vendor", "by default"],
)
def test_a_new_or_removed_module_is_compared_with_what_serves_its_gpu_without_it(
    tmp_path: Path, device: dict[str, Any], served: str, changed: int
) -> None:
    (key,) = device
    trees: dict[str, Tree] = {DEVICE: NARROW, "nvidia": WIDE}
    without = _project_of(tmp_path / "without", trees, **FAMILY)
    having = _project_of(tmp_path / "with", {**trees, key: BEST}, **FAMILY, **device)
    added, removed = of_device(compared(without, having), key), of_device(compared(having, without), key)
    assert (added.kind, removed.kind) == (Kind.ADDED, Kind.REMOVED)
    assert added.served == removed.served == served
    assert added.overall[0].changed == changed
    assert (added.overall[0].table, removed.overall[0].table) == ("by the table", "by the old table")
    assert not added.regresses and removed.regresses
    assert added.overall[0].ratio == pytest.approx(1 / (removed.overall[0].ratio or 0))


def test_serving_agrees_with_the_generated_package(tmp_path: Path) -> None:
    devices: dict[str, dict[str, Any]] = {
        "second": {"names": ["GPU X"], "arch": "a2", "vendor": "v1"},
        "exact": {"names": ["GPU X Large"], "arch": "a3", "vendor": "v1"},
        "first": {"names": ["GPU Y"], "arch": "a2", "vendor": "v2"},
        "by_arch": {"arch": "a4", "vendor": "v2"},
        "family": {"vendor": "v1"},
        "untabled": {"names": ["GPU Q"], "arch": "a5", "vendor": "v3"},
    }
    tabled = ["first", "exact", "second", "family", "by_arch"]  # another order than the devices'
    models = ["GPU X Large 80GB", "GPU X-2", "GPU Y", "GPU Q", "GPU"]
    gpus = list(product(models, ["a2", "a3", "a4", "a5"], ["v1", "v2", "v3"]))

    def content(devices: dict[str, dict[str, Any]], tabled: list[str]) -> dict[str, Any]:
        return {**spec(constraints=[], tables={key: as_h100() for key in tabled}), "devices": devices}

    folder = tmp_path / "serving"
    write_modules(write_project(folder, content(devices, tabled)), {(KERNEL, key): NARROW for key in tabled})
    with ExitStack() as stack:
        snapshot = read_snapshot(str(folder), None, stack)
    found = {}
    for name, arch, vendor in gpus:  # each alone, as no two devices of a spec may share a name
        gpu = {"gpu": {"names": [name], "arch": arch, "vendor": vendor}}
        other = replace(snapshot, spec=read_spec(write_spec(tmp_path, content(gpu, ["gpu"]))))
        module, served = serving_module(snapshot, other, (KERNEL, "gpu"))
        assert isinstance(module, Module) and module is snapshot.modules[KERNEL, served or ""]
        found[name, arch, vendor] = served
    with imported(folder) as generated:
        keys = {module.choose: key for key, module in generated.scale.MODULES.items()}
        assert found == {gpu: keys[generated.scale.for_device(*gpu)] for gpu in gpus}
    assert set(found.values()) == {"exact", "second", "first", "by_arch", "family", "default"}


def test_a_kernel_that_comes_or_goes_was_served_by_nothing(tmp_path: Path) -> None:
    old = project(tmp_path / "old")
    content = spec()
    content["kernels"]["shift"] = content["kernels"][KERNEL]
    spec_path = write_project(tmp_path / "new", content, kernel="scale")
    write_modules(spec_path, {(KERNEL, DEVICE): BEST, ("shift", DEVICE): BEST})
    for diff, kind in (
        (compared(old, tmp_path / "new"), Kind.ADDED),
        (compared(tmp_path / "new", old), Kind.REMOVED),
    ):
        found = [module for module in diff.modules if module.kernel == "shift"]
        assert found == [ModuleChange("shift", device, kind) for device in (DEVICE, "default")]
        assert not diff.regresses


def test_an_edited_new_module_fails_the_diff_and_an_edited_old_one_does_not(tmp_path: Path) -> None:
    good, bad = project(tmp_path / "good"), project(tmp_path / "bad")
    (bad / MODULE).write_text((bad / MODULE).read_text().replace("area <=", "area <"))
    new, old = compared(good, bad), compared(bad, good)
    assert (of_device(new).kind, of_device(old).kind) == (Kind.UNREADABLE, Kind.INCOMPARABLE)
    assert (new.regresses, old.regresses) == (True, False)
    for found in (of_device(new), of_device(old)):
        assert str(bad / MODULE) in (found.note or "")


def test_the_fallback_breaks_no_constraint_but_may_have_failed(tmp_path: Path) -> None:
    """MEDIUM is the fallback; 100 heads forbid its block of 64 to all but the fallback."""
    shapes = [(rows, 8, 100) for rows in (1, 8, 64)]
    for name, times, verdict in (
        ("good", planted, Verdict.UNTIMED),
        ("failed", lambda row: [10.0, "inf", 20.0], Verdict.SLOWER),
    ):
        old = project(tmp_path / name / "old", WIDE, shapes=shapes, times=times)
        new = project(tmp_path / name / "new", MEDIUM, shapes=shapes, times=times)
        assert of_device(compared(old, new)).overall[0].verdict is verdict

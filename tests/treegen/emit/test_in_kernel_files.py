"""in_kernel: what the spec may say, and what build, check and other commands make of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    as_h100,
    build,
    contents,
    error_of,
    imported,
    spec,
    write_project,
    write_spec,
)

from treegen.cli.main import main
from treegen.read.spec import read_spec

FOLDER = f"generated/{KERNEL}/in_kernel"
FILES = {f"{KERNEL}/in_kernel", *(f"{KERNEL}/in_kernel/{n}.py" for n in ("__init__", "default", DEVICE))}


def _spec(**kernel: Any) -> dict[str, Any]:
    return spec(in_kernel=["block", "warps"], **kernel)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A built project that is the current folder."""
    monkeypatch.chdir(tmp_path)
    assert build(write_project(tmp_path, _spec())) == 0
    capsys.readouterr()
    return tmp_path


def test_the_files(project: Path) -> None:
    found = contents(project / "generated")
    write_spec(project, spec())
    assert build(project / "treegen.yaml", "--output", project / "plain") == 0
    plain = contents(project / "plain")
    assert set(found) - set(plain) == FILES
    assert {name: found[name] for name in plain} == plain  # lock included
    assert f'"{DEVICE}": {DEVICE},' in (project / FOLDER / "__init__.py").read_text()
    with imported(project) as generated:
        assert not hasattr(generated.scale, "in_kernel")
    write_spec(project, spec(in_kernel=[]))
    assert build(project / "treegen.yaml", "--output", project / "empty") == 0
    assert contents(project / "empty") == plain


@pytest.mark.parametrize(
    "value, message",
    [
        (["blocks"], "unknown parameter 'blocks'; known here: block, warps"),
        (["variant"], "unknown parameter 'variant'; known here: block, warps"),
        (["rows"], "unknown parameter 'rows'; known here: block, warps"),
        (["block", "block"], "names 'block' twice"),
        ("block", "must be a list"),
        ({"block": 1}, "must be a list"),
        ([1], "holds 1, which is not a word"),
        ([["block"]], "which is not a word"),
        (None, "must be a list"),
    ],
)
def test_what_is_refused(tmp_path: Path, value: object, message: str) -> None:
    path = write_spec(tmp_path, spec(in_kernel=value))
    error = error_of(lambda: read_spec(path))
    assert message in error and "in_kernel" in error and error.startswith(f"{path}:")


@pytest.mark.parametrize("name", ["tl", "triton"])
def test_names_of_triton(tmp_path: Path, name: str) -> None:
    features = [name, "columns", "heads"]
    contents = [
        spec(features=features, derived={"area": "columns"}),
        spec(derived={name: "rows"}),
        spec(
            config={"variants": ["plain"], "parameters": {"block": "B", name: "W"}},
            fallback={"variant": "plain", "block": 64, name: 4},
        ),
    ]
    for content in contents:
        read_spec(write_spec(tmp_path, content))
        listed = list(content["kernels"][KERNEL]["config"]["parameters"])
        content["kernels"][KERNEL]["in_kernel"] = listed
        error = error_of(lambda content=content: read_spec(write_spec(tmp_path, content)))  # type: ignore[misc]
        assert f"{name!r} is the name of a module that functions for Triton use; rename it" in error


def test_a_device_or_a_kernel_with_the_folders_name(tmp_path: Path) -> None:
    content = spec(tables={"in_kernel": "tables/h100"})
    content["devices"]["in_kernel"] = content["devices"].pop(DEVICE)
    kernels = spec()
    kernels["kernels"]["in_kernel"] = kernels["kernels"].pop(KERNEL)
    for wrong in (content, kernels):
        error = error_of(lambda wrong=wrong: read_spec(write_spec(tmp_path, wrong)))  # type: ignore[misc]
        assert "'in_kernel' is a name that the generated package uses itself" in error


def test_they_go_with_the_key_with_a_device_and_with_the_kernel(tmp_path: Path) -> None:
    content = _spec(tables={DEVICE: "tables/h100", "nvidia_a100": as_h100()})
    content["devices"]["nvidia_a100"] = {"names": ["NVIDIA A100"], "arch": "sm_80", "vendor": "nvidia"}
    path = write_project(tmp_path, content)

    def left() -> set[str]:
        return {f.name for f in (tmp_path / FOLDER).glob("*.py")}

    assert build(path) == 0
    (tmp_path / FOLDER / "mine.py").write_text("MINE = 1\n")
    usual = {"__init__.py", "default.py", f"{DEVICE}.py", "mine.py"}
    assert left() == {*usual, "nvidia_a100.py"}
    assert build(write_spec(tmp_path, _spec())) == 0
    assert left() == usual and "a100" not in (tmp_path / FOLDER / "__init__.py").read_text()
    write_spec(tmp_path, spec())
    assert build(path, "--check") == 1
    assert build(path) == 0
    assert left() == {"mine.py"}
    assert build(path, "--check") == 0
    assert build(write_spec(tmp_path, _spec())) == 0
    other = spec()
    other["kernels"]["other"] = {
        **other["kernels"].pop(KERNEL),
        "translate": {KERNEL: {"variant": "plain", "rename": {"rows": "rows"}}},
    }
    assert build(write_spec(tmp_path, other)) == 0
    assert left() == {"mine.py"} and not (tmp_path / "generated" / KERNEL / "config.py").exists()


def test_nothing_is_removed_or_written_through_a_link(tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = write_project(tmp_path, _spec())
    assert build(path) == 0
    (tmp_path / FOLDER).rename(tmp_path / "elsewhere")
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link; nothing is written through it" in refusal(tmp_path, "build", "--spec", path)
    assert build(write_spec(tmp_path, spec())) == 0
    assert len(list((tmp_path / "elsewhere").glob("*.py"))) == 3


@pytest.mark.parametrize("name", ["__init__", "default", DEVICE])
def test_a_hand_written_file_is_not_replaced(tmp_path: Path, refusal: Callable[..., str], name: str) -> None:
    path = write_project(tmp_path, _spec())
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / f"{name}.py").write_text("MINE = 1\n")
    assert f"{name}.py: was not written by treegen" in refusal(tmp_path, "build", "--spec", path)


def test_a_file_in_place_of_the_folder(tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = write_project(tmp_path, _spec())
    (tmp_path / FOLDER).parent.mkdir(parents=True)
    (tmp_path / FOLDER).write_text("mine\n")
    line = refusal(tmp_path, "build", "--spec", path)
    assert line == f"{tmp_path / FOLDER}: is a file, but a folder belongs there"


def test_a_tree_that_cannot_be_printed_is_refused(tmp_path: Path, refusal: Callable[..., str]) -> None:
    content = _spec(derived={"area": "min(rows * columns, limit * 4)"}, split_on=["area"])
    content["devices"][DEVICE]["limits"] = {"limit": 1 << 62}
    path = write_project(tmp_path, content)
    line = refusal(tmp_path, "build", "--spec", path)
    what = "depends on area, which holds a number beyond 64 bits"
    assert line == f"{path}: in_kernel of scale on {DEVICE}: block {what}"
    del content["kernels"][KERNEL]["in_kernel"]
    assert build(write_spec(tmp_path, content)) == 0


def _check(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["check", "--skip", "code", "--skip", "compile"])
    return status, capsys.readouterr().out


def test_check_finds_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = _check(capsys)
    assert status == 0
    assert "modules      2 modules, 4 leaves, 2 for kernels\n" in out
    assert "fresh        generated: 9 files of a build\n" in out


@pytest.mark.parametrize("name", ["__init__", "default", DEVICE])
def test_check_finds_a_module_that_was_edited(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = project / FOLDER / f"{name}.py"
    path.write_text(path.read_text() + "import os\n")
    status, out = _check(capsys)
    assert status == 1
    assert f"    {FOLDER}/{name}.py: is not what treegen prints; `treegen build` rewrites it\n" in out
    assert f"    {FOLDER}/{name}.py is stale: line " in out
    assert build(project / "treegen.yaml", "--check") == 1
    assert build(project / "treegen.yaml") == 0
    assert _check(capsys)[0] == 0


def test_check_finds_what_is_missing_or_too_much(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / FOLDER / "default.py").rename(project / FOLDER / "more.py")
    status, out = _check(capsys)
    assert status == 1
    assert f"    {FOLDER}/default.py: no such file\n" in out
    assert f"    {FOLDER}/more.py: no table of the spec has such a module\n" in out
    assert f"    {FOLDER}/default.py is missing\n" in out
    assert f"    {FOLDER}/more.py belongs to no table of the spec any more\n" in out


def test_check_finds_a_module_of_another_tree(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that treegen prints, but not for the tree that the host has."""
    path = project / FOLDER / f"{DEVICE}.py"
    path.write_text(path.read_text().replace("area <= ", "area <= 1"))
    status, out = _check(capsys)
    assert status == 1 and f"    {FOLDER}/{DEVICE}.py: is not what treegen prints" in out


def test_reviews_work(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_spec(project, spec())
    assert build(project / "treegen.yaml", "--output", project / "plain") == 0
    write_spec(project, _spec())
    capsys.readouterr()
    assert main(["diff", "plain"]) == 0
    assert main(["explain", KERNEL, "rows=8", "columns=8", "heads=2"]) == 0

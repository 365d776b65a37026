"""The operands OLD and NEW; a git revision compares like the folder that it was committed from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import build, contents, planted, spec, write_project, write_table, yaml_text
from treegen_diffs import BEST, MEDIUM, NARROW, WIDE, commit, compared, git, of_device, project

from treegen.cli.main import main
from treegen.core.tree import Split
from treegen.review.diff.results import ComparisonKind, json_text

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
OTHER = Split("area", 8, NARROW, MEDIUM)


def _slower_wide(row: tuple[int, int, int]) -> list[float]:
    narrow, medium, wide = planted(row)
    return [narrow, medium, 2 * wide]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which temporary files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: another tree and another table."""
    folder = project(tmp_path / "repository")
    commit(folder)
    project(folder, OTHER, times=_slower_wide)
    commit(folder)
    return folder


def _figures(old: Path | str, new: Path | str) -> dict[str, Any]:
    found = json.loads(json_text(compared(old, new)))
    return {key: value for key, value in found.items() if key not in ("old", "new")}


@needs_git
def test_revisions_compare_like_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    """Two builds as folders, and the same two builds as commits."""
    folder = tmp_path / "repository"
    folders = []
    for name, times in (("one", planted), ("two", _slower_wide)):
        assert build(write_project(folder, times=times), "--fresh") == 0
        commit(folder, name)
        folders.append(Path(shutil.copytree(folder, tmp_path / name, ignore=shutil.ignore_patterns(".git"))))
    monkeypatch.chdir(folder)
    by_folders = _figures(*folders)
    assert by_folders["comparisons"][0]["kind"] == ComparisonKind.CHANGED
    assert by_folders["comparisons"][0]["table"]["drift"]["cells"] == 27
    assert (
        _figures("HEAD~1", "HEAD")
        == _figures(folders[0], "HEAD")
        == _figures("HEAD~1", folders[1])
        == by_folders
    )
    assert list(temporary.iterdir()) == []
    assert git(folder, "status", "--porcelain") == ""


@needs_git
def test_the_new_snapshot_is_the_working_tree(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    assert main(["diff", "HEAD", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparisons"][0]["kind"] == ComparisonKind.SAME
    project(repository, Split("area", 8, WIDE, MEDIUM), times=_slower_wide)
    before = contents(repository)
    assert main(["diff", "HEAD", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["old"], found["new"]) == ("HEAD", "this folder")
    assert [change["what"] for change in found["comparisons"][0]["changes"]] == [
        "16 -> 128 block, 2 -> 8 warps"
    ]
    assert contents(repository) == before


@needs_git
def test_the_spec_may_lie_in_a_sub_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run it at the top, where another project lies, in another folder, and in the spec's folder."""
    top = project(tmp_path / "top")
    inner = project(top / "inner", OTHER)
    commit(top)
    project(inner, BEST)
    for here, spec_path in (
        (top, "inner/treegen.yaml"),
        (inner / "tables", "../treegen.yaml"),
        (inner, "treegen.yaml"),
    ):
        monkeypatch.chdir(here)
        assert main(["diff", "HEAD", "--spec", spec_path, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["new"] == ("this folder" if here == inner else str(Path(spec_path).parent))
        assert found["comparisons"][0]["kind"] == ComparisonKind.CHANGED
    monkeypatch.chdir(top)
    assert main(["diff", "HEAD"]) == 0
    assert "All modules launch the same" in capsys.readouterr().out


@needs_git
def test_messages_name_the_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    module = repository / "generated/scale/nvidia_h100.py"
    module.write_text(module.read_text().replace("area = rows", "area = row5"))
    (repository / "tables/h100/times.csv").write_text("broken\n")
    broken = commit(repository, "broken")
    project(repository)
    monkeypatch.chdir(repository)
    note = of_device(compared(broken, ".")).note or ""
    assert note.startswith(f"the old module cannot be read: {broken}:generated/scale/nvidia_h100.py: ")
    project(repository, times=_slower_wide)
    (repository / "tables/h100/times.csv").write_text("broken\n")
    commit(repository)
    project(repository)
    note = of_device(compared("HEAD", ".")).note or ""
    assert note.startswith("the old table cannot price this change: HEAD:tables/h100/times.csv:1: ")
    assert list(temporary.iterdir()) == []


@needs_git
def test_bad_revisions_are_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str], temporary: Path
) -> None:
    (repository / "tables/h100/times.csv").write_text("broken\n")
    commit(repository)
    git(repository, "rm", "--quiet", "-r", "generated")
    commit(repository)
    (repository / "treegen.yaml").write_text(yaml_text({**spec(), "output": "../out"}))
    commit(repository)
    git(repository, "rm", "--quiet", "treegen.yaml")
    commit(repository)
    project(repository)
    monkeypatch.chdir(repository)
    nothing = "is neither a file nor a folder, nor a git revision here"
    for arguments, start in {
        ("nope",): f"'nope': {nothing}",
        ("",): "'': names no revision, folder or file",
        ("--", "--output=x"): f"'--output=x': {nothing}",
        ("a\nb\x1b[31m",): f"'a\\nb\\x1b[31m': {nothing}",
        ("HEAD",): "HEAD:treegen.yaml: no such spec in this revision",
        ("HEAD~1",): "HEAD~1:treegen.yaml:2: output: '../out' must be a folder below",
        ("HEAD~2",): "HEAD~2:generated: no such output folder; this revision does not hold it",
        ("HEAD~4", "HEAD~3"): "HEAD~3:tables/h100/times.csv:1: ",
    }.items():
        assert refusal(repository, "diff", *arguments).startswith(start)
        assert list(temporary.iterdir()) == []


@needs_git
def test_without_an_old_table_the_new_one_alone_prices(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "rm", "--quiet", "-r", "tables")
    commit(repository)
    project(repository, BEST)
    monkeypatch.chdir(repository)
    found = of_device(compared("HEAD", "."))
    assert found.judges == ("by the table",)
    assert (found.note or "").startswith(
        "the old table cannot price this change: HEAD:tables/h100: no such table folder"
    )


def test_folders_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project, its output folder and one module of it compare alike."""
    old, new = project(tmp_path / "old", OTHER), project(tmp_path / "new")
    shutil.rmtree(old / "tables")
    write_table(old / "tables/h100")
    monkeypatch.chdir(new)
    expected = of_device(compared(old, new))
    assert expected.kind is ComparisonKind.CHANGED
    module = "generated/scale/nvidia_h100.py"
    for one in (old, old / "generated", old / module):
        for other in (new, Path(), Path("generated"), Path(module)):
            assert of_device(compared(one, other)) == expected
    assert len(compared(old, new / module).comparisons) == len(compared(old / module, new).comparisons) == 1


def test_files_that_are_no_module_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    folder = project(tmp_path / "project")
    module = (folder / "generated/scale/nvidia_h100.py").read_text()
    for name, text in {
        "empty.py": "",
        "alien.py": '"""scale on nvidia_h100: mine."""\n',
        "unknown.py": module.replace("scale on nvidia_h100", "scale on nvidia_h200"),
        "kernel.py": module.replace("scale on", "shift on"),
        "edited.py": module.replace("area <=", "area <"),
    }.items():
        (folder / name).write_text(text)
    (folder / "binary.py").write_bytes(b'"""scale on \xff')
    monkeypatch.chdir(folder)
    for name, what in {
        "empty.py": "empty.py: is no module that treegen wrote",
        "alien.py": "alien.py: is no module that treegen wrote",
        "unknown.py": "unknown.py: is of scale on nvidia_h200, which treegen.yaml does not know",
        "kernel.py": "kernel.py: is of shift on nvidia_h100, which treegen.yaml does not know",
        "edited.py": "edited.py:",
        "binary.py": "binary.py: not UTF-8 text (byte 12)",
        "treegen.yaml": "treegen.yaml: is no module that treegen wrote",
        "generated/scale/config.py": "generated/scale/config.py: is no module that treegen wrote",
        "tables": "tables: holds no generated module of scale",
    }.items():
        for arguments in ((name, "."), (".", name)):
            assert refusal(folder, "diff", *arguments).startswith(what)
    monkeypatch.chdir(tmp_path)
    assert refusal(tmp_path, "diff", "project").startswith("treegen.yaml: no such spec")
    assert refusal(tmp_path, "diff", "project/generated", "project").startswith("treegen.yaml: no such spec")

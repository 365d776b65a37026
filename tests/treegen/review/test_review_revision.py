"""A git revision gives its spec, output folder and tables, and nothing that leads elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from treegen_builders import contents, error_of, spec, yaml_text
from treegen_diffs import commit, git, project

from treegen.review.diff.snapshots import find_revision, lay_out

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, with files that are none of treegen's beside the project."""
    folder = project(tmp_path / "repository")
    (folder / "README.md").write_text("hello")
    commit(folder)
    return folder


def _lay_out(folder: Path, name: str = "HEAD", spec_path: str = "treegen.yaml") -> dict[str, bytes | None]:
    out = folder.parent / "out"
    out.mkdir(exist_ok=True)
    assert lay_out(find_revision(name, folder), folder / spec_path, out) == out / spec_path
    return contents(out)


def test_the_spec_its_output_and_its_tables_as_committed(repository: Path) -> None:
    expected = {
        path: content
        for path, content in contents(repository).items()
        if path.split("/")[0] in ("treegen.yaml", "generated", "tables")
    }
    for path in repository.rglob("*.csv"):
        path.write_text("changed since")
    (repository / "generated/new.py").write_text("not committed")
    assert _lay_out(repository) == expected


def test_filters_and_attributes_change_nothing(repository: Path) -> None:
    (repository / ".gitattributes").write_text("*.py eol=crlf filter=evil export-subst\n")
    (repository / "generated/scale/mark.py").write_text("# $Format:%H$\n")
    commit(repository)
    git(repository, "config", "filter.evil.smudge", f"touch {repository.parent / 'ran'}")
    assert _lay_out(repository)["generated/scale/mark.py"] == b"# $Format:%H$\n"
    assert not (repository.parent / "ran").exists()


def test_links_and_submodules_are_left_out(repository: Path) -> None:
    (repository.parent / "secret.py").write_text("secret")
    (repository / "generated/scale/linked.py").symlink_to(repository.parent / "secret.py")
    (repository / "generated/away").symlink_to("/etc")
    git(repository, "add", "--all")
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},generated/submodule")
    git(repository, "commit", "--quiet", "--message", "links")
    found = _lay_out(repository)
    assert "generated/scale/nvidia_h100.py" in found
    assert not {"generated/scale/linked.py", "generated/away", "generated/submodule"} & found.keys()


def test_a_linked_spec_is_no_spec(repository: Path) -> None:
    (repository / "other.yaml").symlink_to("treegen.yaml")
    commit(repository)
    (repository / "other.yaml").unlink()
    (repository / "other.yaml").write_text("a plain file now")
    assert (
        error_of(_lay_out, repository, "HEAD", "other.yaml")
        == "HEAD:other.yaml: no such spec in this revision"
    )


@pytest.mark.parametrize(
    "name", ["new\nline.py", "tab\there.py", "sp ace.py", '"quoted".py', "[a-z]*.py", "ü\udcff.py"]
)
def test_any_file_name(repository: Path, name: str) -> None:
    path = repository / "generated/scale" / name
    path.write_text("x")
    commit(repository)
    assert _lay_out(repository)[f"generated/scale/{name}"] == b"x"


@pytest.mark.parametrize("where", ["../outside", "/etc", "tables/../.."])
def test_a_spec_that_leads_out_of_its_folder_is_refused(repository: Path, where: str) -> None:
    for content in (spec(tables={"nvidia_h100": where}), {**spec(), "output": where}):
        (repository / "treegen.yaml").write_text(yaml_text(content))
        commit(repository)
        assert "must be a folder below the one that holds the spec" in error_of(_lay_out, repository)
        assert not (repository.parent / "outside").exists()


def test_a_tree_that_names_the_folder_above_is_refused(repository: Path) -> None:
    """git itself makes no such tree, but it lists one."""

    def write(content: bytes, *options: str) -> bytes:
        command = ["git", "-C", str(repository), "hash-object", "-w", *options, "--stdin"]
        return subprocess.run(command, input=content, capture_output=True, check=True).stdout.strip()

    def tree(*entries: tuple[bytes, bytes, bytes]) -> bytes:
        raw = [mode + b" " + name + b"\0" + bytes.fromhex(sha.decode()) for mode, name, sha in entries]
        return write(b"".join(raw), "-t", "tree", "--literally")

    above = tree((b"100644", b"evil.py", write(b"evil")))
    output = tree((b"40000", b"..", above))
    spec_blob = git(repository, "rev-parse", "HEAD:treegen.yaml").encode()
    top = tree((b"40000", b"generated", output), (b"100644", b"treegen.yaml", spec_blob))
    head = git(repository, "commit-tree", top.decode(), "-m", "evil")
    assert (
        error_of(_lay_out, repository, head)
        == f"{head}:generated/../evil.py: must be a file of at most 64 MiB below the top folder"
    )
    assert not list(repository.parent.rglob("evil.py"))


def test_a_file_in_the_place_of_a_folder_is_one_line(repository: Path) -> None:
    out = repository.parent / "out"
    out.mkdir()
    (out / "generated").write_text("in the way")
    assert error_of(_lay_out, repository).startswith(
        "HEAD:generated/__init__.py: cannot be written to a temporary folder: "
    )


def test_a_revision_without_the_spec(repository: Path) -> None:
    git(repository, "mv", "treegen.yaml", "moved.yaml")
    commit(repository)
    assert error_of(_lay_out, repository) == "HEAD:treegen.yaml: no such spec in this revision"


def test_a_spec_outside_the_repository(repository: Path) -> None:
    shutil.copy(repository / "treegen.yaml", repository.parent)
    message = error_of(_lay_out, repository, "HEAD", "../treegen.yaml")
    assert message.endswith(f"is outside the repository {repository} of 'HEAD'")


def test_names_of_revisions(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    second = commit(repository, "second")
    git(repository, "tag", "--annotate", "--message", "of the first", "v1", first)
    git(repository, "update-ref", "refs/heads/--output=x", first)
    for name, commit_of in {
        "HEAD": second,
        "main": second,
        second[:9]: second,
        "HEAD~1": first,
        "v1": first,
        ":/second": second,
        "main@{0}": second,
        "--output=x": first,
    }.items():
        found = find_revision(name, repository)
        assert (found.name, found.commit, found.top) == (name, commit_of, repository)
    for name in (
        "nope",
        "--all",
        "--output=y",
        "-h",
        "HEAD:treegen.yaml",
        "HEAD..v1",
        "\n",
        "a\0b",
        "HEAD~9",
    ):
        assert error_of(find_revision, name, repository).endswith("nor a git revision here")
    assert not (repository / "x").exists()


def test_a_worktree_is_its_own_top(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "worktree"
    git(repository, "worktree", "add", "--quiet", str(other))
    assert find_revision("HEAD", other).top == other
    assert "treegen.yaml" in _lay_out(other)


def test_no_repository(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare").mkdir()
    git(repository, "clone", "--quiet", "--bare", ".", str(tmp_path / "bare/git"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for folder in (tmp_path / "bare", tmp_path / "bare/git"):
        assert "nor a git revision here (fatal: " in error_of(find_revision, "HEAD", folder)
    monkeypatch.setenv("PATH", os.fspath(tmp_path / "nothing"))
    message = error_of(find_revision, "HEAD", repository)
    assert message.endswith("nor a git revision here (git cannot be run: No such file or directory)")


def test_folders_are_named_literally(repository: Path) -> None:
    """git takes `:(...)` for a pattern where it may."""
    content = {**spec(), "output": ":(exclude)/out"}
    (repository / "treegen.yaml").write_text(yaml_text(content))
    (repository / ":(exclude)").mkdir()
    (repository / "generated").rename(repository / ":(exclude)/out")
    commit(repository)
    assert ":(exclude)/out/scale/nvidia_h100.py" in _lay_out(repository)

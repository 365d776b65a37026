"""The operands OLD and NEW: a git revision compares like the folder that it was committed from."""

import json
import shutil
import subprocess
import tempfile
from itertools import product
from pathlib import Path

import pytest
from treegen_builders import build, contents, error_of, planted, spec, write_project, yaml_text
from treegen_diffs import BEST, MEDIUM, NARROW, WIDE, Ask, commit, compared, git, of_device, project

from treegen.cli.main import main
from treegen.review.diff.changes import Kind
from treegen.review.diff.snapshots import lay_out

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
OTHER = Ask("area", 8, NARROW, MEDIUM)
MODULE = "generated/scale/nvidia_h100.py"


def _slower_wide(row):
    narrow, medium, wide = planted(row)
    return [narrow, medium, 2 * wide]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty folder in which temporary files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits in this folder, with another tree and another table."""
    folder = project(tmp_path / "repository")
    commit(folder, "first")
    project(folder, OTHER, times=_slower_wide)
    (folder / "README.md").write_text("none of treegen's")
    commit(folder, "second")
    monkeypatch.chdir(folder)
    return folder


def _lay_out(folder, name="HEAD"):
    """The files that a revision gives."""
    out = folder.parent / "out"
    out.mkdir(exist_ok=True)
    assert lay_out(name, folder / "treegen.yaml", out).path == out / "treegen.yaml"
    return contents(out)


def test_revisions_compare_like_folders(tmp_path, monkeypatch, temporary):
    """Two builds as folders, as output folders with the spec that is here, and as commits."""
    folder, without = tmp_path / "repository", shutil.ignore_patterns(".git")
    folders = []
    for name, times in (("one", planted), ("two", _slower_wide)):
        assert build(write_project(folder, times=times), "--fresh") == 0
        commit(folder, name)
        folders.append(Path(shutil.copytree(folder, tmp_path / name, ignore=without)))
    monkeypatch.chdir(folder)
    by_folders = compared(*folders)
    assert by_folders.modules[0].kind is Kind.CHANGED and by_folders.modules[0].world is not None
    for old, new in (("HEAD~1", "HEAD"), (folders[0], "HEAD"), ("HEAD~1", folders[1]), (folders[0], ".")):
        assert compared(old, new).modules == by_folders.modules
    for old, new in product((folders[0], folders[0] / "generated"), (folders[1], Path("generated"))):
        assert compared(old, new).modules[0].lines == by_folders.modules[0].lines
    assert list(temporary.iterdir()) == []
    assert git(folder, "status", "--porcelain") == ""


def test_the_new_snapshot_is_the_working_tree(repository, capsys):
    assert main(["diff", "HEAD", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["modules"][0]["kind"] == Kind.SAME
    project(repository, Ask("area", 8, WIDE, MEDIUM), times=_slower_wide)
    before = contents(repository)
    assert main(["diff", "HEAD", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["old"], found["new"]) == ("HEAD", "this folder")
    assert all("steps, row 0" in line["places"] for line in found["modules"][0]["lines"])
    assert contents(repository) == before


def test_the_spec_may_lie_in_a_sub_folder(repository, monkeypatch, capsys):
    """Run it at the top, where another project lies, in another folder, and in the spec's folder."""
    inner = project(repository / "inner", OTHER)
    commit(repository)
    project(inner, BEST)
    places = {repository: "inner/treegen.yaml", inner / "tables": "../treegen.yaml", inner: "treegen.yaml"}
    for here, spec_path in places.items():
        monkeypatch.chdir(here)
        assert main(["diff", "HEAD", "--spec", spec_path, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["modules"][0]["kind"] == Kind.CHANGED


def test_messages_name_the_revision(repository, temporary):
    (repository / MODULE).write_text((repository / MODULE).read_text().replace("area = rows", "area = row5"))
    (repository / "tables/h100/times.csv").write_text("broken\n")
    broken = commit(repository)
    project(repository)
    assert f"{broken}:{MODULE}:" in (of_device(compared(broken, ".")).note or "")
    (repository / "tables/h100/times.csv").write_text("broken\n")
    commit(repository)
    project(repository)
    found = of_device(compared("HEAD", "."))
    assert "HEAD:tables/h100/times.csv:1:" in (found.note or "")
    assert found.world is None and found.kind is Kind.SAME
    assert error_of(lambda: compared(".", "HEAD")).startswith("HEAD:tables/h100/times.csv:1:")
    assert list(temporary.iterdir()) == []


def test_bad_operands_are_one_line(repository, refusal, temporary):
    git(repository, "rm", "--quiet", "-r", "generated")
    commit(repository)
    (repository / "treegen.yaml").write_text(yaml_text({**spec(), "output": "../out"}))
    commit(repository)
    git(repository, "mv", "treegen.yaml", "moved.yaml")
    commit(repository)
    project(repository)
    (repository / "linked.yaml").symlink_to("treegen.yaml")
    for arguments, start in {
        ("nope",): "'nope': ",
        ("",): "'': ",
        ("--", "--output=x"): "'--output=x': ",
        ("a\nb\x1b[31m",): "'a\\nb\\x1b[31m': ",
        ("HEAD..HEAD~1",): "'HEAD..HEAD~1': ",
        ("HEAD",): "HEAD:treegen.yaml: ",
        ("HEAD~1",): "HEAD~1:treegen.yaml:2: output: ",
        ("HEAD~2",): "HEAD~2:generated: ",
        (MODULE,): f"{MODULE}: ",
        ("tables",): "tables: ",
        ("main", "--threshold=nan"): "--threshold nan: ",
        ("main", "--threshold=1001"): "--threshold 1001.0: ",
    }.items():
        assert refusal(repository, "diff", *arguments).startswith(start)
        assert list(temporary.iterdir()) == []


def test_a_revision_is_what_was_committed_without_filters_attributes_links_and_submodules(repository):
    (repository / ".gitattributes").write_text("*.py eol=crlf filter=evil export-subst\n")
    for name in ("mark.py", "new\nline.py", "[a-z]*.py", "ü\udcff.py"):
        (repository / "generated/scale" / name).write_text(f"# $Format:%H$ {name!a}\n")
    git(repository, "config", "filter.evil.smudge", f"touch {repository.parent / 'ran'}")
    parts = ("treegen.yaml", "generated", "tables")
    expected = {path: text for path, text in contents(repository).items() if path.split("/")[0] in parts}
    (repository.parent / "secret.py").write_text("secret")
    (repository / "generated/scale/linked.py").symlink_to(repository.parent / "secret.py")
    (repository / "generated/away").symlink_to("/etc")
    git(repository, "add", "--all")
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},generated/submodule")
    git(repository, "commit", "--quiet", "--message", "links")
    for path in repository.rglob("*.csv"):
        path.write_text("changed since")
    assert _lay_out(repository) == expected
    assert not (repository.parent / "ran").exists()


def test_nothing_leads_out_of_the_folder(repository):
    """git itself makes no tree that names the folder above, but it lists one."""

    def write(content, *options):
        command = ["git", "-C", str(repository), "hash-object", "-w", *options, "--stdin"]
        return subprocess.run(command, input=content, capture_output=True, check=True).stdout.strip()

    def tree(*entries):
        raw = [mode + b" " + name + b"\0" + bytes.fromhex(sha.decode()) for mode, name, sha in entries]
        return write(b"".join(raw), "-t", "tree", "--literally")

    above = tree((b"100644", b"evil.py", write(b"evil")))
    output = tree((b"40000", b"..", above))
    spec_blob = git(repository, "rev-parse", "HEAD:treegen.yaml").encode()
    top = tree((b"40000", b"generated", output), (b"100644", b"treegen.yaml", spec_blob))
    head = git(repository, "commit-tree", top.decode(), "-m", "evil")
    assert error_of(_lay_out, repository, head).startswith(f"{head}:generated/../evil.py: ")
    assert not list(repository.parent.rglob("evil.py"))

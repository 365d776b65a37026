"""Workflows and pre-commit hooks: a pull request's code never gets a token that can write."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from treegen_builders import REPOSITORY

from treegen.cli.main import _parser

FOLDER = REPOSITORY / ".github/workflows"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
UNTRUSTED, PRIVILEGED = WORKFLOWS["heuristics.yml"], WORKFLOWS["heuristics-comment.yml"]
ON = True  # YAML 1.1 takes `on` for a boolean
HOOKS = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def scripts(workflow: dict[Any, Any]) -> Iterator[str]:
    """Everything that a shell or JavaScript runs."""
    for step in steps(workflow):
        yield from (text for text in (step.get("run"), step.get("with", {}).get("script")) if text)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_is_interpolated_into_what_is_run(name: str) -> None:
    assert list(scripts(WORKFLOWS[name]))
    for script in scripts(WORKFLOWS[name]):
        assert "${{" not in script


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_workflow_is_pinned_and_bounded_and_states_its_permissions(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert "pull_request_target" not in workflow[ON]
    assert "group" in workflow["concurrency"]
    assert "permissions" in workflow
    assert all(job["timeout-minutes"] <= 30 for job in workflow["jobs"].values())
    for step in steps(workflow):
        assert "uses" not in step or re.fullmatch(r"actions/[a-z-]+@v[0-9]+", step["uses"])


def test_the_workflow_that_runs_the_pull_requests_code_may_only_read() -> None:
    assert set(UNTRUSTED[ON]) == {"pull_request"}
    assert UNTRUSTED["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in UNTRUSTED["jobs"].values())
    assert "secrets" not in (FOLDER / "heuristics.yml").read_text()
    (checkout,) = [step for step in steps(UNTRUSTED) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["persist-credentials"] is False


def test_the_workflow_that_may_write_runs_nothing_of_the_pull_request() -> None:
    assert PRIVILEGED[ON] == {"workflow_run": {"workflows": [UNTRUSTED["name"]], "types": ["completed"]}}
    assert PRIVILEGED["permissions"] == {}
    (job,) = PRIVILEGED["jobs"].values()
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    used = [step["uses"].split("@")[0] for step in steps(PRIVILEGED)]
    assert used == ["actions/download-artifact", "actions/github-script"]
    (script,) = scripts(PRIVILEGED)
    for word in ("child_process", "eval", "require('./", "import(", "exec"):
        assert word not in script


def test_the_heuristics_workflow_runs_if_its_inputs_change() -> None:
    ends = [path.removeprefix("**") for path in UNTRUSTED[ON]["pull_request"]["paths"]]
    for path in (
        "treegen.yaml",
        "t/k/d/run.yaml",
        "t/k/d/times.csv",
        "any_name/scale/h100.py",
        "x/treegen.lock",
    ):
        assert path.endswith(tuple(ends))


def test_the_heuristics_workflow_installs_treegen_where_it_was_copied(tmp_path: Path) -> None:
    """From an address, as the package is on no index yet."""
    (step,) = [step for step in steps(UNTRUSTED) if step.get("id") == "install"]
    assert re.fullmatch(r"attn-kernels\[treegen\] @ git\+https://\S+@TAG", step["env"]["TREEGEN"])
    for folder, wanted in (
        (tmp_path, f"<{step['env']['TREEGEN']}>"),
        (REPOSITORY, "<--editable> <.[kernels,treegen]>"),
    ):
        command = f"python() {{ printf ' <%s>' \"$@\"; }}; {step['run']}"
        done = subprocess.run(
            ["bash", "-e", "-c", command], cwd=folder, env=step["env"], capture_output=True, text=True
        )
        assert done.stdout == f" <-m> <pip> <install> {wanted}"


def test_ci_loses_no_check_silently() -> None:
    assert "treegen check --strict" in [step.get("run") for step in steps(UNTRUSTED)]
    assert "treegen check --strict" in (REPOSITORY / "Makefile").read_text()


def test_the_artifact_is_the_one_that_is_downloaded() -> None:
    (sent,) = [step["with"] for step in steps(UNTRUSTED) if "upload-artifact" in step.get("uses", "")]
    (got,) = [step["with"] for step in steps(PRIVILEGED) if "download-artifact" in step.get("uses", "")]
    assert sent["name"] == got["name"]


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (2, 2)])
def test_the_diff_step_keeps_comment_and_exit_code(tmp_path: Path, status: int, expected: int) -> None:
    """Run as GitHub runs it, with a treegen that says something and ends with `status`."""
    (script,) = [step["run"] for step in steps(UNTRUSTED) if step.get("name") == "treegen diff"]
    fake = tmp_path / "bin/treegen"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@"\nexit {status}\n')
    fake.chmod(0o755)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    for message in ("base", "head"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], cwd=tmp_path, check=True)
    both = subprocess.run(
        ["git", "rev-parse", "HEAD^1", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{fake.parent}:/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == expected
    assert (tmp_path / "review/status").read_text() == f"{status}\n"
    comment = (tmp_path / "review/comment.md").read_text()
    assert comment.split() == ["diff", *both.stdout.split(), "--format", "markdown"]


DRIVER = """
const given = JSON.parse(process.argv[1]);
const calls = [];
const core = {info: (text) => calls.push(['info', text])};
const context = {
  repo: {owner: 'us', repo: 'here'},
  payload: {workflow_run: {head_repository: {owner: {login: 'them'}}, head_branch: 'a`b', head_sha: 'abc',
                           html_url: 'https://example.org/run'}},
};
const github = {
  paginate: async () => given.comments,
  rest: {
    pulls: {list: async (query) => { calls.push(['list', query.head]); return {data: given.pulls}; }},
    issues: {
      listComments: null,
      updateComment: async (c) => calls.push(['update', c.comment_id, c.body]),
      createComment: async (c) => calls.push(['create', c.issue_number, c.body]),
    },
  },
};
const Run = Object.getPrototypeOf(async () => {}).constructor;
new Run('github', 'context', 'core', 'require', given.script)(github, context, core, require)
  .then(() => console.log(JSON.stringify(calls)));
"""


def posted(folder: Path, comment: str | Path | None, status: str = "0\n", **changes: Any) -> list[list[Any]]:
    """The calls of GitHub's API that the comment script makes. A path is linked instead of written."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    (folder / "review").mkdir()
    if isinstance(comment, Path):
        (folder / "review/comment.md").symlink_to(comment)
    elif comment is not None:
        (folder / "review/comment.md").write_text(comment)
    (folder / "review/status").write_text(status)
    (script,) = scripts(PRIVILEGED)
    pulls = [{"number": 7, "head": {"sha": "abc"}}, {"number": 8, "head": {"sha": "older"}}]
    given = {"script": script, "pulls": pulls, "comments": [], **changes}
    done = subprocess.run(
        [node, "-e", DRIVER, json.dumps(given)], cwd=folder, check=True, capture_output=True, text=True
    )
    calls: list[list[Any]] = json.loads(done.stdout)
    return calls


def test_a_comment_is_made_once_and_then_changed(tmp_path: Path) -> None:
    listed, (how, number, body) = posted(tmp_path, "decode: 2% faster")
    assert listed == ["list", "them:a`b"]
    assert (how, number) == ("create", 7)
    assert body.startswith("<!-- treegen diff -->\ndecode: 2% faster\n")
    comments = [
        {"id": 1, "user": {"type": "User"}, "body": body},
        {"id": 2, "user": {"type": "Bot"}, "body": "else"},
        {"id": 3, "user": {"type": "Bot"}, "body": body},
    ]
    (tmp_path / "again").mkdir()
    _, (how, number, _) = posted(tmp_path / "again", "new", comments=comments)
    assert (how, number) == ("update", 3)


def test_the_pull_request_is_the_events_whatever_the_artifact_says(tmp_path: Path) -> None:
    pulls = [{"number": 8, "head": {"sha": "older"}}]
    assert [call[0] for call in posted(tmp_path, "number: 8", pulls=pulls)] == ["list", "info"]


def test_a_long_comment_is_cut_and_calls_nobody(tmp_path: Path) -> None:
    _, (_, _, body) = posted(tmp_path, "@everyone " + "\U0001f600x" * 100_000, "1\n")
    assert len(body.encode("utf-16-le")) // 2 < 65_536
    assert "(cut here)" in body
    assert "@everyone" not in body


@pytest.mark.parametrize(("comment", "status"), [(None, "0\n"), ("half", "2\n"), ("text", "anything")])
def test_a_failed_comparison_is_posted_as_such(tmp_path: Path, comment: str | None, status: str) -> None:
    _, (_, _, body) = posted(tmp_path, comment, status)
    assert "could not compare" in body
    assert "half" not in body


def test_an_artifact_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("token")
    _, (_, _, body) = posted(tmp_path, tmp_path / "secret")
    assert "token" not in body


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_pre_commit_hooks_are_commands_and_run_for_their_inputs(hook: dict[str, Any]) -> None:
    program, *arguments = hook["entry"].split()
    assert program == "treegen"
    assert _parser().parse_args(arguments).run
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    assert hook["additional_dependencies"] == [".[treegen]"]
    seen = (
        "treegen.yaml",
        "generated/scale/h100.py",
        "any_name/scale/in_kernel/h100.py",
        "t/scale/h100/times.csv",
        "src/treegen.yaml",
        "mykernels/heuristics/swiglu_bwd/cpu.py",
        "mykernels/heuristics/swiglu_bwd/in_kernel/cpu.py",
    )
    assert all(re.search(hook["files"], path) for path in seen)
    unseen = ("README.md", "treegen/cli.py", "tests/generated/x.py", "tests/treegen.yaml", "treegen_yaml")
    assert not any(re.search(hook["files"], path) for path in unseen)


def test_pre_commit_hooks_have_the_names_that_other_repositories_use() -> None:
    assert [hook["id"] for hook in HOOKS] == ["treegen-build-check", "treegen-check"]

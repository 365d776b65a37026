"""Workflows and pre-commit hooks: a pull request's code never gets a token that can write."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from treegen_builders import DEVICE, KERNEL, REPOSITORY
from treegen_diffs import MEDIUM, NARROW, Ask, commit, git, project, write_modules

from treegen.cli.main import parsed

FOLDER = REPOSITORY / ".github/workflows"
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())["runs"]["steps"]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
UNTRUSTED, PRIVILEGED = WORKFLOWS["heuristics.yml"], WORKFLOWS["heuristics-comment.yml"]
ON = True  # YAML 1.1 takes `on` for a boolean
HOOKS = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())


def steps(workflow):
    for job in workflow["jobs"].values():
        yield from job["steps"]


def scripts(steps):
    """Everything that a shell or JavaScript runs."""
    for step in steps:
        yield from (text for text in (step.get("run"), step.get("with", {}).get("script")) if text)


def test_nothing_is_interpolated_into_what_is_run():
    texts = [text for of in (ACTION, *map(steps, WORKFLOWS.values())) for text in scripts(of)]
    assert len(texts) > 6 and not any("${{" in text for text in texts)
    assert not any("pull_request_target" in workflow[ON] for workflow in WORKFLOWS.values())


def test_the_workflow_that_runs_the_pull_requests_code_may_only_read():
    assert set(UNTRUSTED[ON]) == {"pull_request"} and UNTRUSTED["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in UNTRUSTED["jobs"].values())
    assert "secrets" not in (FOLDER / "heuristics.yml").read_text()
    (checkout,) = [step for step in steps(UNTRUSTED) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["persist-credentials"] is False
    ends = tuple(path.removeprefix("**") for path in UNTRUSTED[ON]["pull_request"]["paths"])
    inputs = ["treegen.yaml", "t/k/d/run.yaml", "t/k/d/times.csv", "any_name/scale/h100.py", "x/treegen.lock"]
    assert all(path.endswith(ends) for path in inputs)


def test_the_workflow_that_may_write_runs_nothing_of_the_pull_request():
    assert PRIVILEGED[ON] == {"workflow_run": {"workflows": [UNTRUSTED["name"]], "types": ["completed"]}}
    assert PRIVILEGED["permissions"] == {}
    (job,) = PRIVILEGED["jobs"].values()
    assert job["permissions"] == {"actions": "read", "contents": "read", "pull-requests": "write"}
    checkout, download, script = steps(PRIVILEGED)
    used = [step["uses"].split("@")[0] for step in (checkout, download, script)]
    assert used == ["actions/checkout", "actions/download-artifact", "actions/github-script"]
    assert not {"ref", "repository"} & set(checkout["with"])  # the default branch
    code = script["with"]["script"]
    assert re.findall(r"require\((.*?)\)", code) == ["'./.github/post_comment.js'"]
    for word in ("child_process", "eval", "import(", "exec"):
        assert word not in code + (REPOSITORY / ".github/post_comment.js").read_text()
    (sent,) = [step["with"] for step in ACTION if "upload" in step.get("uses", "")]
    assert sent["name"] == download["with"]["name"]


@pytest.mark.parametrize("spec", ["treegen.yaml", "other/treegen.yaml"], ids=["slower", "adopts treegen"])
def test_the_action_compares_a_merge_with_its_base(tmp_path, spec):
    """The step's own script, in a checkout as GitHub makes it."""
    repository, review = project(tmp_path / "repository"), tmp_path / "review"
    base = commit(repository)
    git(repository, "checkout", "-q", "-b", "change")
    write_modules(repository / "treegen.yaml", {(KERNEL, DEVICE): Ask("area", 64, NARROW, MEDIUM)})
    (repository / "other").mkdir()
    (repository / "other/treegen.yaml").write_bytes((repository / "treegen.yaml").read_bytes())
    commit(repository)
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "merge", "change")
    program = tmp_path / "bin/treegen"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m treegen "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "SPEC": spec}
    for name, file in (("REVIEW", "review"), ("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary")):
        environment[name] = str(tmp_path / file)
    (step,) = [step for step in ACTION if step.get("id") == "diff"]
    command = ["bash", "-eo", "pipefail", "-c", step["run"]]  # as GitHub runs it
    status = subprocess.run(command, cwd=repository, env=environment, check=False).returncode
    slower = spec == "treegen.yaml"
    assert (status, (review / "status").read_text()) == ((1, "1\n") if slower else (0, "0\n"))
    text = (review / "comment.md").read_text()
    assert (base[:7] in text) == slower and text == (tmp_path / "summary").read_text()
    assert (tmp_path / "output").read_text() == f"folder={review}\n"


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_pre_commit_hooks_are_commands_and_run_for_their_inputs(hook):
    program, *arguments = hook["entry"].split()
    assert program == "treegen" and parsed(arguments).run
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)
    assert hook["additional_dependencies"] == [".[treegen]"]
    seen = ["treegen.yaml", "src/treegen.yaml", "generated/__init__.py", "t/scale/h100/times.csv"]
    seen += ["any_name/scale/in_kernel/h100.py", "mykernels/heuristics/swiglu_bwd/cpu.py"]
    assert all(re.search(hook["files"], path) for path in seen)
    unseen = ["README.md", "treegen/cli.py", "tests/generated/x.py", "tests/treegen.yaml", "treegen_yaml"]
    assert not any(re.search(hook["files"], path) for path in unseen)


OURS = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
RUFF = [hook["entry"] for hook in OURS if hook["entry"].startswith("ruff")]


@pytest.mark.parametrize("entry", RUFF)
def test_our_own_hooks_leave_generated_modules_as_they_are(entry):
    """pre-commit names the files, and ruff excludes none of those that are named unless it has to."""
    modules = [*REPOSITORY.glob("generated/*/*.py"), *REPOSITORY.glob("examples/*/heuristics/*/*.py")]
    command = [sys.executable, "-m", *entry.split(), "--diff", *map(str, modules)]
    assert modules and subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0

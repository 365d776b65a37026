"""Hooks in their own process: whatever they do, `treegen check` goes on and says it in one line."""

from __future__ import annotations

import argparse
import multiprocessing
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, KERNEL, build, spec, write_project

from treegen.cli import check as check_command
from treegen.cli.parsers import FINE, FOUND, Parser
from treegen.review.check.hook import CompileCase, HookDescription
from treegen.review.check.hook_process import HookFailure, HookProcess, MissingHook

HOOK = """
import sys

class Needs:
    registers, spills = 40, None
    def __init__(self, case):
        self.shared_memory = case.parameters["block"] * (case.largest["columns"] or 512)

class Outcome:
    error = None
    def __init__(self, case):
        self.kernels = {"scale": Needs(case)}

class Hook:
    features = ["rows", "columns", "heads"]
    variants = {"plain"}
    parameters = {"block": None, "warps": 4}
    sizes = ("columns",)
    targets = {"nvidia": ("sm_80",)}
    def compile(self, cases, jobs):
        return map(Outcome, cases)

HOOK = Hook()
"""
CASE = CompileCase("sm_90", "plain", {"block": 16, "warps": 2}, {"columns": 64})


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that installs a hook called `scale_hook` of this code, for this test alone."""
    installed = tmp_path / "installed"
    (installed / "scale_code-1.dist-info").mkdir(parents=True)
    (installed / "scale_code-1.dist-info/METADATA").write_text("Name: scale-code\nVersion: 1\n")

    def install(code: str) -> None:
        (installed / "scale_code.py").write_text(textwrap.dedent(code))
        entry = "[treegen.hooks]\nscale_hook = scale_code:HOOK\n"
        (installed / "scale_code-1.dist-info/entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(str(installed))

    return install


def changed(code: str) -> str:
    """HOOK with more lines in its class."""
    return HOOK.replace("HOOK = Hook()", textwrap.indent(textwrap.dedent(code), "    ") + "\nHOOK = Hook()")


def test_a_hook_describes_itself_and_compiles(offer: Callable[[str], None]) -> None:
    offer(HOOK)
    with HookProcess("scale_hook") as hook:
        assert hook.description == HookDescription(
            frozenset({"rows", "columns", "heads"}),
            frozenset({"plain"}),
            {"block": None, "warps": 4},
            ("columns",),
            {"nvidia": ("sm_80",)},
        )
        (outcome,) = hook.compile([CASE], 1)
        assert (outcome.error, outcome.kernels["scale"].shared_memory) == (None, 1024)
        assert outcome.kernels["scale"].spills is None


def test_a_name_that_nobody_offers() -> None:
    with HookProcess("nobody_offers_this") as hook:
        assert hook.description == MissingHook("no installed package offers the hook nobody_offers_this")


def test_a_hook_whose_dependency_is_missing(offer: Callable[[str], None]) -> None:
    offer("import no_such_compiler")
    with HookProcess("scale_hook") as hook:
        what = "the hook scale_hook needs no_such_compiler, which is not installed"
        assert hook.description == MissingHook(what)


def test_two_packages_that_offer_one_name(
    offer: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(HOOK)
    other = tmp_path / "other/other_code-1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: other-code\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[treegen.hooks]\nscale_hook = other_code:HOOK\n")
    monkeypatch.syspath_prepend(str(other.parent))
    with HookProcess("scale_hook") as hook, pytest.raises(HookFailure, match="several packages offer"):
        _ = hook.description


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("raise ValueError('no\\nway')", "ValueError: no$"),
        ("import scale_code.part", "ModuleNotFoundError: No module named 'scale_code.part'"),
        ("HOOK = 7", "TypeError: the object is no hook; it lacks features, variants"),
        ("HOOKS = 7", "AttributeError"),
        ("raise SystemExit(4)", "SystemExit: 4"),
        ("import os; os.write(2, b'LLVM ERROR: no\\n'); os._exit(5)", "ended with 5: LLVM ERROR: no$"),
        (changed("features = 'rows'"), "the hook must give several texts, not str"),
        (changed("parameters = {'block': 'many'}"), "the hook must give an integer, not str"),
    ],
)
def test_what_goes_wrong_on_loading(offer: Callable[[str], None], code: str, what: str) -> None:
    offer(code)
    with HookProcess("scale_hook") as hook, pytest.raises(HookFailure, match=what):
        _ = hook.description


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("raise KeyError('gone')", "KeyError: 'gone'"),
        ("import os; os._exit(9)", "its process ended with 9$"),
        ("import os; os.kill(os.getpid(), 11)", "its process ended with -11"),
        ("return []", "fewer outcomes than there are cases"),
        ("return [Outcome(cases[0])] * 2", "more outcomes than there are cases"),
        ("return [None]", "AttributeError"),
        ("o = Outcome(cases[0]); o.error = 3; return [o]", "the hook must give a text, not int"),
        (
            "o = Outcome(cases[0]); o.kernels['scale'].spills = 1.5; return [o]",
            "the hook must give an integer, not float",
        ),
    ],
)
def test_what_goes_wrong_on_compiling(offer: Callable[[str], None], code: str, what: str) -> None:
    offer(changed(f"def compile(self, cases, jobs):\n    {code}"))
    with HookProcess("scale_hook") as hook, pytest.raises(HookFailure, match=what):
        list(hook.compile([CASE], 1))


def test_a_failure_is_told_again(offer: Callable[[str], None], tmp_path: Path, capsys: Any) -> None:
    """And not what came of it: that the process has ended since."""
    offer("raise ValueError('no way')")
    path = project(tmp_path)
    capsys.readouterr()
    assert check(path, *ONLY) == FOUND
    failure = f"    {KERNEL}: the hook scale_hook failed: ValueError: no way"
    assert capsys.readouterr().out.splitlines()[1:4:2] == [failure, failure]


def test_a_hook_that_ends_before_it_is_asked(offer: Callable[[str], None]) -> None:
    code = "import os, threading, time\ndef end():\n    time.sleep(0.5); os._exit(6)\n"
    offer(code + "threading.Thread(target=end, daemon=True).start()\n" + HOOK)
    with HookProcess("scale_hook") as hook:
        assert isinstance(hook.description, HookDescription)
        time.sleep(2)
        with pytest.raises(HookFailure, match="its process ended with 6"):
            list(hook.compile([CASE], 1))


def test_an_abandoned_hook_is_ended(offer: Callable[[str], None]) -> None:
    offer(
        changed(
            "def compile(self, cases, jobs):\n    yield Outcome(cases[0])\n    __import__('time').sleep(600)"
        )
    )
    before = set(multiprocessing.active_children())
    with HookProcess("scale_hook") as hook:
        next(iter(hook.compile([CASE, CASE], 1)))
    assert set(multiprocessing.active_children()) == before


def check(path: Path, *options: str) -> int:
    """`treegen check` in this process."""
    parser = Parser(prog="treegen")
    check_command.add(parser.add_subparsers())
    chosen: argparse.Namespace = parser.parse_args(["check", "--spec", str(path), *options])
    return int(chosen.run(chosen))


def project(folder: Path, shared_memory: int = 1 << 20) -> Path:
    content = spec(hook="scale_hook")
    content["devices"][DEVICE]["limits"]["shared_memory"] = shared_memory
    path = write_project(folder, content)
    assert build(path) == 0
    return path


ONLY = ("--skip", "tables", "--skip", "fresh", "--skip", "modules", "--skip", "constraints")


def test_code_and_compile_through_a_hook_that_prints(
    offer: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    offer(
        "print('loading')\n"
        + changed("def compile(self, cases, jobs):\n    print(cases); return map(Outcome, cases)")
    )
    path = project(tmp_path)
    capfd.readouterr()
    assert check(path, *ONLY) == FINE
    out, err = capfd.readouterr()
    code, compiled, verdict = out.splitlines()
    assert code == f"code         {KERNEL}: 3 features, 1 variant, 2 parameters"
    assert compiled.startswith(f"compile      {KERNEL}: ")
    assert compiled.endswith(" on sm_80, sm_90; at most 0 spilled registers")
    assert verdict.endswith("no problem; skipped tables, fresh, modules, constraints")
    assert [line.split(":")[0] for line in err.splitlines()] == ["code", "compile"]


def test_code_that_disagrees(
    offer: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(
        changed(
            "features = ['rows', 'columns', 'pages']\nvariants = ['bare']\nsizes = ['depth']\n"
            "parameters = {'block': None, 'stages': None, 'lanes': 2}"
        )
    )
    path = project(tmp_path)
    capsys.readouterr()
    assert check(path, *ONLY, "--skip", "compile") == FOUND
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        f"    {KERNEL}: the code does not pass the feature heads to choose()",
        f"    {KERNEL}: the code passes pages to choose(), which is no feature of the spec",
        f"    {KERNEL}: the code has no variant plain; it has bare",
        f"    {KERNEL}: the code has no launch parameter warps; it has block, stages, lanes",
        f"    {KERNEL}: the code requires stages, which is no parameter of the spec",
        f"    {KERNEL}: the code is compiled for depth, which is no feature of the spec",
    ]


def test_defaults_that_disagree(
    offer: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(HOOK)
    parameters = {"block": {"letter": "B", "default": 64}, "warps": {"letter": "W", "default": 8}}
    content = spec(hook="scale_hook", config={"variants": ["plain"], "parameters": parameters})
    path = write_project(tmp_path, content)
    assert check(path, *ONLY, "--skip", "compile") == FOUND
    assert capsys.readouterr().out.splitlines()[1:3] == [
        f"    {KERNEL}: block is 64 by default, but must be given in the code",
        f"    {KERNEL}: warps is 8 by default, but 4 in the code",
    ]


def test_a_kernel_that_needs_too_much(
    offer: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fallback (64 rows) fits 64 x 512 bytes, a leaf of 128 rows does not."""
    offer(HOOK)
    path = project(tmp_path, shared_memory=64 * 512)
    capsys.readouterr()
    assert check(path, *ONLY, "--skip", "code") == FOUND
    assert capsys.readouterr().out.splitlines()[1:-1] == [
        f"    {KERNEL} on {DEVICE}, sm_90: PLAIN_B128_W8 (columns any): the kernel scale needs 65,536 bytes "
        "of shared memory; the limit is 32,768"
    ]


def test_a_hook_that_fails_is_a_finding(
    offer: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(changed("def compile(self, cases, jobs):\n    import os; os._exit(9)"))
    path = project(tmp_path)
    capsys.readouterr()
    assert check(path, *ONLY) == FOUND
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "compile      1 problem",
        f"    {KERNEL}: the hook scale_hook failed: its process ended with 9",
    ]


def test_a_hook_that_is_not_installed_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project(tmp_path)
    capsys.readouterr()
    assert check(path, *ONLY) == FINE
    *lines, verdict = capsys.readouterr().out.splitlines()
    why = "not run: no installed package offers the hook scale_hook"
    assert lines == [f"code         {why}", f"compile      {why}"]
    assert "no problem; not all was run of code, compile; skipped" in verdict

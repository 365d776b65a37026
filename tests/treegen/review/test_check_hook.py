"""Hooks in a process of their own: whatever a hook does, `treegen check` reports it in one line."""

from __future__ import annotations

import multiprocessing
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from treegen_builders import DEVICE, KERNEL, build, spec, write_project

from treegen.cli.main import main
from treegen.cli.parsers import FINE, FOUND
from treegen.review.check.hook import CompileCase, CompileOutcome, HookDescription, KernelNeeds
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


Offer = Callable[[str], None]
Check = Callable[..., list[str]]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """A function that installs a hook called `scale_hook` with this code, for this test alone."""
    installed = tmp_path / "installed"
    (installed / "scale_code-1.dist-info").mkdir(parents=True)
    (installed / "scale_code-1.dist-info/METADATA").write_text("Name: scale-code\nVersion: 1\n")

    def install(code: str) -> None:
        (installed / "scale_code.py").write_text(textwrap.dedent(code))
        entry = "[treegen.hooks]\nscale_hook = scale_code:HOOK\n"
        (installed / "scale_code-1.dist-info/entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(str(installed))

    return install


@pytest.fixture
def check(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Check:
    """A function that runs the hook's two checks, less those that `skip` names, on a project.

    It asserts the exit code and returns the lines of stdout. shared_memory: the device's limit in bytes.
    """

    def run(status: int, *skip: str, shared_memory: int = 1 << 20, **sections: object) -> list[str]:
        content = spec(hook="scale_hook", **sections)
        content["devices"][DEVICE]["limits"]["shared_memory"] = shared_memory
        path = write_project(tmp_path, content)
        assert build(path) == 0
        capfd.readouterr()
        skipped = ["tables", "fresh", "modules", "constraints", *skip]
        options = [word for name in skipped for word in ("--skip", name)]
        assert main(["check", "--spec", str(path), *options]) == status
        out, err = capfd.readouterr()
        ran = [name for name in ("code", "compile") if name not in skip]
        assert [line.split(":")[0] for line in err.splitlines()] == ran
        return out.splitlines()

    return run


def changed(code: str) -> str:
    """HOOK with more lines in its class."""
    return HOOK.replace("HOOK = Hook()", textwrap.indent(textwrap.dedent(code), "    ") + "\nHOOK = Hook()")


def test_a_hook_describes_itself_and_compiles(offer: Offer) -> None:
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
        assert outcome == CompileOutcome({"scale": KernelNeeds(1024, 40, None)}, None)


def test_a_hook_whose_dependency_is_missing(offer: Offer) -> None:
    offer("import no_such_compiler")
    with HookProcess("scale_hook") as hook:
        why = "the hook scale_hook needs no_such_compiler, which is not installed"
        assert hook.description == MissingHook(why)


def test_two_packages_that_offer_one_name(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
def test_failures_of_loading(offer: Offer, code: str, what: str) -> None:
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
def test_failures_of_compiling(offer: Offer, code: str, what: str) -> None:
    offer(changed(f"def compile(self, cases, jobs):\n    {code}"))
    with HookProcess("scale_hook") as hook, pytest.raises(HookFailure, match=what):
        list(hook.compile([CASE], 1))


def test_a_hook_that_ends_before_it_compiles(offer: Offer) -> None:
    code = "import os, threading, time\ndef end():\n    time.sleep(0.5); os._exit(6)\n"
    offer(code + "threading.Thread(target=end, daemon=True).start()\n" + HOOK)
    with HookProcess("scale_hook") as hook:
        assert isinstance(hook.description, HookDescription)
        time.sleep(2)
        with pytest.raises(HookFailure, match="its process ended with 6"):
            list(hook.compile([CASE], 1))


def test_an_abandoned_hook_is_ended(offer: Offer) -> None:
    offer(
        changed(
            "def compile(self, cases, jobs):\n    yield Outcome(cases[0])\n    __import__('time').sleep(600)"
        )
    )
    before = set(multiprocessing.active_children())
    with HookProcess("scale_hook") as hook:
        next(iter(hook.compile([CASE, CASE], 1)))
    assert set(multiprocessing.active_children()) == before


def test_both_checks_through_a_hook_that_prints(offer: Offer, check: Check) -> None:
    offer(
        "print('loading')\n"
        + changed("def compile(self, cases, jobs):\n    print(cases); return map(Outcome, cases)")
    )
    code, compiled, verdict = check(FINE)
    assert code == f"code         {KERNEL}: 3 features, 1 variant, 2 parameters"
    assert compiled.startswith(f"compile      {KERNEL}: ")
    assert compiled.endswith(" on sm_80, sm_90; at most 0 spilled registers")
    assert verdict.endswith("no problem; skipped tables, fresh, modules, constraints")


def test_code_that_differs_from_the_spec(offer: Offer, check: Check) -> None:
    offer(
        changed(
            "features = ['rows', 'columns', 'pages']\nvariants = ['bare']\nsizes = ['depth']\n"
            "parameters = {'block': None, 'stages': None, 'lanes': 2}"
        )
    )
    assert check(FOUND, "compile")[1:-1] == [
        f"    {KERNEL}: the code does not pass the feature heads to choose()",
        f"    {KERNEL}: the code passes pages to choose(), which is no feature of the spec",
        f"    {KERNEL}: the code has no variant plain; it has bare",
        f"    {KERNEL}: the code has no launch parameter warps; it has block, stages, lanes",
        f"    {KERNEL}: the code requires stages, which is no parameter of the spec",
        f"    {KERNEL}: the code is compiled for depth, which is no feature of the spec",
    ]


def test_defaults_that_differ(offer: Offer, check: Check) -> None:
    offer(HOOK)
    parameters = {"block": {"letter": "B", "default": 64}, "warps": {"letter": "W", "default": 8}}
    assert check(FOUND, "compile", config={"variants": ["plain"], "parameters": parameters})[1:3] == [
        f"    {KERNEL}: block is 64 by default, but must be given in the code",
        f"    {KERNEL}: warps is 8 by default, but 4 in the code",
    ]


def test_a_kernel_that_needs_too_much(offer: Offer, check: Check) -> None:
    """The fallback (64 rows) fits 64 x 512 bytes; a leaf of 128 rows does not."""
    offer(HOOK)
    assert check(FOUND, "code", shared_memory=64 * 512)[1:-1] == [
        f"    {KERNEL} on {DEVICE}, sm_90: PLAIN_B128_W8 (columns any): the kernel scale needs 65,536 bytes "
        "of shared memory; the limit is 32,768"
    ]


def test_both_checks_report_one_failure(offer: Offer, check: Check) -> None:
    """The second check does not report that the process has ended since."""
    offer("raise ValueError('no way')")
    code, failure, compiled, again, _ = check(FOUND)
    assert (code.split(), compiled.split()) == (["code", "1", "problem"], ["compile", "1", "problem"])
    assert failure == again == f"    {KERNEL}: the hook scale_hook failed: ValueError: no way"


def test_a_failure_of_compiling_is_a_problem(offer: Offer, check: Check) -> None:
    offer(changed("def compile(self, cases, jobs):\n    import os; os._exit(9)"))
    assert check(FOUND, "code")[1] == f"    {KERNEL}: the hook scale_hook failed: its process ended with 9"


def test_a_hook_that_is_not_installed_is_no_problem(check: Check) -> None:
    why = "not run: no installed package offers the hook scale_hook"
    *lines, verdict = check(FINE)
    assert lines == [f"code         {why}", f"compile      {why}"]
    assert "no problem; not all was run of code, compile; skipped" in verdict

"""Hooks in a process of their own: whatever a hook does, `treegen check` reports it in one line."""

import textwrap

import pytest
from treegen_builders import DEVICE, KERNEL, build, spec, write_project

from treegen.cli.main import main
from treegen.cli.parsers import FINE, FOUND
from treegen.review.check.checks import CheckReport
from treegen.review.check.hook import CompileCase, HookFailure, HookProcess

HOOK = """
from types import SimpleNamespace

class Outcome:
    error = None
    def __init__(self, case):
        shared_memory = case.parameters["block"] * (case.largest["columns"] or 512)
        needs = SimpleNamespace(shared_memory=shared_memory, registers=40, spills=None)
        self.kernels = {"scale": needs}

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
def offer(tmp_path, monkeypatch):
    """A function that installs a hook called `scale_hook` with this code, for this test alone."""
    about = tmp_path / "installed/scale_code-1.dist-info"

    def install(code):
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Name: scale-code\nVersion: 1\n")
        (about / "entry_points.txt").write_text("[treegen.hooks]\nscale_hook = scale_code:HOOK\n")
        (about.parent / "scale_code.py").write_text(code)
        monkeypatch.syspath_prepend(str(about.parent))

    return install


@pytest.fixture
def check(tmp_path, capfd):
    """A function that runs the hook's two checks, less those that `skip` names, on a project.

    It asserts the exit code and returns the lines of stdout. shared_memory: the device's limit in bytes.
    """

    def run(status, *skip, shared_memory=1 << 20, strict=False):
        content = spec(hook="scale_hook")
        content["devices"][DEVICE]["limits"]["shared_memory"] = shared_memory
        path = write_project(tmp_path, content)
        assert build(path) == 0
        capfd.readouterr()
        skipped = ["tables", "fresh", "modules", *skip]
        options = [word for name in skipped for word in ("--skip", name)] + ["--strict"] * strict
        assert main(["check", "--spec", str(path), *options]) == status
        out, err = capfd.readouterr()
        ran = [name for name in ("code", "compile") if name not in skip]
        assert [line.split(":")[0] for line in err.splitlines()] == ran
        return out.splitlines()

    return run


def changed(code):
    """HOOK with more lines in its class."""
    return HOOK.replace("HOOK = Hook()", textwrap.indent(code, "    ") + "\nHOOK = Hook()")


@pytest.mark.parametrize(("code", "what"), [
    ("raise ValueError('no\\nway')", "ValueError: no$"),
    ("import scale_code.part", "ModuleNotFoundError"),
    ("HOOK = 7", "AttributeError"),
    ("raise SystemExit(4)", "SystemExit: 4"),
    ("import os; os.write(2, b'LLVM ERROR: no\\n'); os._exit(5)", "LLVM ERROR: no$"),
    (changed("features = 'rows'"), "TypeError"),
    (changed("parameters = {'block': 'many'}"), "TypeError"),
    *(
        (changed(f"def compile(self, cases, jobs):\n    {code}"), what)
        for code, what in {
            "raise KeyError('gone')": "KeyError: 'gone'",
            "import os; os.kill(os.getpid(), 11)": "ended",
            "return []": "TypeError",
            "return [Outcome(cases[0])] * 2": "TypeError",
            "return [None]": "AttributeError",
            "o = Outcome(cases[0]); o.error = 3; return [o]": "TypeError",
            "o = Outcome(cases[0]); o.kernels['scale'].spills = 1.5; return [o]": "TypeError",
        }.items()
    ),
])  # fmt: skip
def test_failures_of_loading_and_of_compiling(offer, code, what):
    offer(code)
    with HookProcess("scale_hook") as hook, pytest.raises(HookFailure, match=what):
        hook.describe()
        hook.compile([CASE], 1)


def test_both_checks_through_a_hook_that_prints(offer, check):
    prints = "def compile(self, cases, jobs):\n    print(cases); return map(Outcome, cases)"
    offer("print('loading')\n" + changed(prints))
    code, compiled, verdict = check(FINE)
    assert code == f"code         {KERNEL}: 3 features, 1 variant, 2 parameters"
    assert compiled.startswith(f"compile      {KERNEL}: ")
    assert compiled.endswith(" on sm_80, sm_90; at most 0 spilled registers")
    assert verdict.endswith("no problem; skipped tables, fresh, modules")


def test_code_that_differs_from_the_spec(offer, check):
    other = "features = ['rows', 'columns', 'pages']\nvariants = ['bare']\nsizes = ['depth']\n"
    offer(changed(f"{other}parameters = {{'block': None, 'stages': None, 'lanes': 2}}"))
    found = check(FOUND, "compile")[1:-1]
    named = ("heads", "pages", "plain", "warps", "stages", "depth")
    assert all(name in line for name, line in zip(named, found, strict=True))


def test_a_kernel_that_needs_too_much(offer, check):
    """The fallback (64 rows) fits 64 x 512 bytes; a leaf of 128 rows does not."""
    offer(HOOK)
    (line,) = check(FOUND, "code", shared_memory=64 * 512)[1:-1]
    assert all(word in line for word in (DEVICE, "sm_90", "PLAIN_B128_W8", "65,536", "32,768"))


def test_nothing_is_compiled_beside_a_module_that_cannot_be_read(offer, check, tmp_path, capfd):
    offer(HOOK)
    check(FINE)
    (tmp_path / f"generated/{KERNEL}/{DEVICE}.py").write_text("choose = None\n")
    assert main(["check", "--spec", str(tmp_path / "treegen.yaml"), "--skip", "fresh"]) == FOUND
    assert "not run" in capfd.readouterr().out.splitlines()[-2]


def test_two_kernels_name_a_missing_hook_once():
    lines = CheckReport(not_run=["the hook h needs torch"] * 2).lines("code")
    assert next(lines).count("needs torch") == 1


def test_a_hook_that_is_not_installed_fails_strict_checks_alone(check, offer):
    *lines, verdict = check(FINE)
    assert len(lines) == 2 and all("not run" in line and "scale_hook" in line for line in lines)
    assert "no problem; not all was run of code, compile; skipped" in verdict
    check(FOUND, strict=True)
    offer("import triton_of_another_name")
    assert "needs triton_of_another_name" in check(FINE)[0]

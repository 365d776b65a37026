"""Damage of every kind, a little of it: `python -m verification.hostile` does it ten thousand times.

Hypothesis makes the random choices here, so that a failure shrinks. The rest is about the judge itself: it
must notice what it is there for.
"""

from __future__ import annotations

import ast
import html
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import REPOSITORY
from treegen_strategies import examples

from treegen.core.names import IN_KERNEL
from verification.hostile import judge as judging
from verification.hostile import markup, syntax, syntax_in_kernel
from verification.hostile.case import built_project, case, run
from verification.hostile.commands import BUILD, command_for
from verification.hostile.damage import KINDS, damaged
from verification.hostile.folder import EMPTY, Folder, Link, read, write
from verification.hostile.judge import judge
from verification.hostile.modules import sandboxed
from verification.hostile.project import project
from verification.hostile.wrong import Wrong


@pytest.mark.parametrize("kind", KINDS)
@examples(10)
@given(st.randoms(use_true_random=False), st.booleans())
def test_damage_of_a_kind(
    tmp_path_factory: pytest.TempPathFactory, kind: str, random: Random, built: bool
) -> None:
    hurt = damaged(random, built_project() if built else project(), kind)
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as name:
        judge(Path(name), hurt.folder, command_for(random, kind), random)


def test_a_case_is_known_by_its_number() -> None:
    one, other = case(5, 17), case(5, 17)
    assert one[:2] == other[:2] and case(5, 18)[0] != one[0]


def test_a_case_that_is_kept_can_be_looked_at(tmp_path: Path) -> None:
    outcome = run(0, 3, tmp_path / "kept")
    assert outcome.kind == case(0, 3)[0].kind
    assert (tmp_path / "kept/project").is_dir()


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder: Folder = {"a/b": b"1", "a/link": Link("b"), "c": EMPTY}
    write(tmp_path, folder)
    assert read(tmp_path) == {**folder, "a": EMPTY}


# The judge


def _main(act: Callable[[], object], status: int = 0) -> Callable[[list[str]], int]:
    def main(_: list[str]) -> int:
        act()
        return status

    return main


def _error(text: str) -> Callable[[], object]:
    return lambda: sys.stderr.write(text)


def _crash() -> None:
    raise KeyError("x")


def _outside() -> None:
    Path("../outside/new").write_text("x")


def _removed() -> None:
    Path("generated/notes.txt").unlink()


def _foreign() -> None:
    Path("generated/notes.py").write_text("x = 1\n")


def _unnoticed() -> None:
    Path("../passing").write_text("x")
    Path("../passing").unlink()


def _warning() -> None:
    warnings.warn("x", SyntaxWarning, stacklevel=1)


def _module(old: str, new: str) -> Callable[[], None]:
    def edit() -> None:
        path = Path("generated/scale/first.py")
        path.write_text(path.read_text().replace(old, new, 1))

    return edit


WRONG: dict[str, tuple[Callable[[], object], int, str]] = {
    "a traceback": (_crash, 0, "a traceback"),
    "another status": (lambda: None, 3, "exit 3"),
    "two lines": (_error("treegen: a\nb\n"), 2, "other than one line"),
    "no line": (_error(""), 2, "other than one line"),
    "a line without its name": (_error("a\n"), 2, "other than one line"),
    "a terminal escape": (_error("treegen: \x1b[2J\n"), 2, "other than one line"),
    "a terminal escape in the output": (lambda: print("\x1b[2J"), 0, "a terminal may obey"),
    "a warning": (_warning, 0, "with the error"),
    "a file outside": (_outside, 0, "outside/new"),
    "a file outside for a moment": (_unnoticed, 0, "passing"),
    "a refusal that writes": (lambda: (_removed(), _error("treegen: a\n")()), 2, "but changed"),
    "a bystander": (_removed, 0, "notes.txt"),
    "a file that is no module": (_foreign, 0, "notes.py"),
    "a program": (lambda: os.system("true"), 0, "started something"),
    "code": (_module("\n\n\ndef", "\nX = print()\n\n\ndef"), 0, "a generated module holds"),
    "a call": (_module("rows: int", "rows: int = print()"), 0, "a generated module holds"),
    "a failing choice": (
        _module("    return ", "    area = heads // rows\n    return "),
        0,
        "ZeroDivisionError",
    ),
}


@pytest.mark.parametrize(("act", "status", "says"), WRONG.values(), ids=WRONG)
def test_what_the_judge_does_not_let_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], status: int, says: str
) -> None:
    folder = built_project()  # by the real command
    monkeypatch.setattr(judging, "main", _main(act, status))
    with pytest.raises(Wrong, match=says):
        judge(tmp_path, folder, BUILD, Random(0))


def test_an_import_that_does_something(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text(f"open({str(tmp_path / 'new')!r}, 'w').close()\n")
    with pytest.raises(Wrong, match="importing the package does"), sandboxed(tmp_path):
        pass
    (tmp_path / "__init__.py").write_text("import this\n")
    with pytest.raises(Wrong, match=r"imports .*this"), sandboxed(tmp_path):
        pass


HTML = [
    "<p><script>alert(1)</script>",
    "<p><img src=x>",
    "<p title='' onclick=alert(1)>",
    "<a href='javascript:alert(1)'>",
    "<a href='https://example.org'>",
]


@pytest.mark.parametrize("text", HTML)
def test_markup_in_a_page(text: str) -> None:
    assert markup.in_html(text)
    assert not markup.in_html(html.escape(text) + "<script>draw()</script><a href='#a'>")


def test_markup_in_markdown() -> None:
    for text in ("a <script>alert(1)", "a <img src=x>", "[a](javascript:alert(1))", "`a` <b>a</b> `a`"):
        assert markup.in_markdown(text)
        assert not markup.in_markdown(f"a `{text.replace('`', '')}` b")
    assert markup.in_markdown("a `b``<script>")  # no span: the backticks differ in number


# The grammar of generated modules


def _generated(*, for_kernels: bool = False) -> dict[str, str]:
    folder = REPOSITORY / "generated"
    paths = [path for path in sorted(folder.rglob("*.py")) if (path.parent.name == IN_KERNEL) == for_kernels]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_the_committed_modules_hold_what_they_may() -> None:
    syntax.check_package(_generated())
    syntax_in_kernel.check_package(_generated(for_kernels=True))
    assert _generated(for_kernels=True)


H100 = "unified_attention/nvidia_h100.py"
CODE = [
    ("def choose(", "import os\n\n\ndef choose("),
    ("from .config import Config", "from .config import Config as Config"),
    ("from .config import Config", "from ..config import Config"),
    ("from .config import Config", "from config import Config"),
    ("\n\n\ndef", "\nA = Config('a', block_m=-1)\n\n\ndef"),
    ("\n\n\ndef", "\nA = Config('a', **{})\n\n\ndef"),
    ("\n\n\ndef", "\nA = Config(print())\n\n\ndef"),
    ("\n\n\ndef", "\nA = print('a')\n\n\ndef"),
    ("\n\n\ndef", "\na = Config('a')\n\n\ndef"),
    ("\n\n\ndef", "\n@print\ndef"),
    (") -> Config:", ") -> print():"),
    (") -> Config:", "    **more: int,\n) -> Config:"),
    (") -> Config:\n", ") -> Config:\n    while 1: pass\n"),
    (") -> Config:\n", ") -> Config:\n    global print\n"),
    (") -> Config:\n", ") -> Config:\n    'docstring'\n"),
    (") -> Config:\n", ") -> Config:\n    a = num_seqs ** 9\n"),
    (") -> Config:\n", ") -> Config:\n    a = num_seqs << 9\n"),
    (") -> Config:\n", ") -> Config:\n    a = num_seqs // unknown\n"),
    (") -> Config:\n", ") -> Config:\n    a = abs(num_seqs)\n"),
    (") -> Config:\n", ") -> Config:\n    a = max(*num_seqs)\n"),
    (") -> Config:\n", ") -> Config:\n    a = num_seqs.bit_length(1)\n"),
    (") -> Config:\n", ") -> Config:\n    a = num_seqs.real\n"),
    (") -> Config:\n", ") -> Config:\n    a = 1.5\n"),
    (") -> Config:\n", ") -> Config:\n    A = 1\n"),
    (") -> Config:\n", ") -> Config:\n    a = b = 1\n"),
    (") -> Config:\n", ") -> Config:\n    if num_seqs == 1:\n        return 5\n"),
    (") -> Config:\n", ") -> Config:\n    if print():\n        pass\n"),
    (") -> Config:\n", ") -> Config:\n    return Config\n"),
    ('"""unified', 'f"""unified'),
    ('"""unified', '"""\u202eunified'),
]


@pytest.mark.parametrize(("old", "new"), CODE)
def test_what_the_grammar_of_a_device_does_not_know(old: str, new: str) -> None:
    files = _generated()
    assert old in files[H100]
    files[H100] = files[H100].replace(old, new, 1)
    ast.parse(files[H100])
    with pytest.raises(syntax.Forbidden, match=H100):
        syntax.check_package(files)


PACKAGES = [
    ("config.py", "NamedTuple)", "object)"),
    ("config.py", "    variant: str", "    variant: str = print()"),
    ("config.py", "    variant: str", "    variant: str\n\n    def a(self): pass"),
    ("config.py", "block_m: int", "block_m: print()"),
    ("__init__.py", "from . import", "from .. import"),
    ("__init__.py", '"MODULES", ', '"MODULES", "x", '),
    ("__init__.py", ": default,", ": print(),"),
    ("__init__.py", ".choose,", ".config,"),
    ("__init__.py", "return choose", "return print()"),
    ("__init__.py", "_Choose = ", "_Choose = print() or "),
]


@pytest.mark.parametrize(("file", "old", "new"), PACKAGES)
def test_what_the_grammar_of_a_package_does_not_know(file: str, old: str, new: str) -> None:
    files, name = _generated(), f"unified_attention/{file}"
    assert old in files[name]
    files[name] = files[name].replace(old, new, 1)
    ast.parse(files[name])
    with pytest.raises(syntax.Forbidden, match=name):
        syntax.check_package(files)


def test_what_the_grammar_of_the_top_does_not_know() -> None:
    files = _generated()
    for new in ("from . import os", "import os", "from . import unified_attention as a"):
        files["__init__.py"] = files["__init__.py"].replace("from . import unified_attention", new)
        with pytest.raises(syntax.Forbidden):
            syntax.check_package(files)

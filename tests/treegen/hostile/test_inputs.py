"""Damaged input ends in success, or in one clear line with exit code 2 and nothing changed.

`HOSTILE_EXAMPLES=500 python -m pytest tests/treegen/hostile -n 2` tries 500 inputs of each kind.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hostile import run as running
from hostile.damage import KINDS
from hostile.project import project
from hostile.run import BUILD, built_project, check_source, command_for, markup_in_html, run, sandboxed
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import REPOSITORY
from treegen_strategies import examples

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "8"))


@pytest.mark.parametrize("kind", KINDS)
@examples(EXAMPLES)
@given(st.randoms(use_true_random=False), st.booleans())
def test_damage_of_a_kind(
    tmp_path_factory: pytest.TempPathFactory, kind: str, random: Random, built: bool
) -> None:
    folder = dict(built_project() if built else project())
    KINDS[kind](random, folder)
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as name:
        run(Path(name), folder, command_for(random, kind), random)


# `run` notices each of these


def _edit(old: str, new: str) -> Callable[[], object]:
    def edit() -> None:
        path = Path("generated/scale/first.py")
        path.write_text(path.read_text().replace(old, new, 1))

    return edit


def _refuse(text: str, act: Callable[[], object] = lambda: None) -> Callable[[], object]:
    return lambda: (act(), sys.stderr.write(text))


def _crash() -> None:
    raise KeyError("x")


WRONG: dict[str, tuple[Callable[[], object], int]] = {
    "a traceback": (_crash, 0),
    "another status": (lambda: None, 3),
    "two lines": (_refuse("treegen: a\nb\n"), 2),
    "no line": (_refuse(""), 2),
    "a terminal escape": (_refuse("treegen: \x1b[2J\n"), 2),
    "a terminal escape in the output": (lambda: print("\x1b[2J"), 0),
    "a file outside": (lambda: Path("../outside/new").write_text("x"), 0),
    "a refusal that writes": (_refuse("treegen: a\n", lambda: Path("generated/treegen.lock").unlink()), 2),
    "a bystander": (lambda: Path("generated/notes.txt").unlink(), 0),
    "a file that is no module": (lambda: Path("generated/notes.py").write_text("x = 1\n"), 0),
    "a program": (lambda: os.system("true"), 0),
    "code": (_edit("\n\n\ndef", "\nX = print()\n\n\ndef"), 0),
    "a failing choice": (_edit("    return ", "    area = heads // rows\n    return "), 0),
}


@pytest.mark.parametrize(("act", "status"), WRONG.values(), ids=WRONG)
def test_what_must_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], status: int
) -> None:
    folder = built_project()

    def fake_main(_: list[str]) -> int:
        act()
        return status

    monkeypatch.setattr(running, "main", fake_main)
    with pytest.raises((AssertionError, KeyError)):
        run(tmp_path, folder, BUILD)


def test_an_import_that_does_something(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import this\n")
    with pytest.raises(AssertionError, match="this"), sandboxed(tmp_path):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "<p><script>alert(1)</script>",
        "<p title='' onclick=alert(1)>",
        "<a href='javascript:alert(1)'>",
        "<a href='https://example.org'>",
    ],
)
def test_markup_in_a_page(text: str) -> None:
    assert markup_in_html(text)
    assert not markup_in_html(html.escape(text) + "<script>draw()</script><a href='#a'>")


MODULES = {
    path.relative_to(REPOSITORY / "generated").as_posix(): path.read_text()
    for path in (REPOSITORY / "generated").rglob("*.py")
}


@pytest.mark.parametrize("name", MODULES)
def test_committed_modules_hold_only_choices(name: str) -> None:
    check_source(name, MODULES[name])


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from os import path",
        "A = print('a')",
        "A = Config('a', **print())",
        "A = [x for x in ()]",
        "A = lambda: 0",
        "while 1: pass",
        "A = f'{Config}'",
        "A = '\u202e'",
        "A = Config.__init__.__globals__['x']()",
    ],
)
def test_code_in_a_module(line: str) -> None:
    name = "unified_attention/nvidia_h100.py"
    with pytest.raises(AssertionError):
        check_source(name, MODULES[name] + line + "\n")

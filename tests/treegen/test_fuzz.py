"""Mutated bytes anywhere in the input: a build, or one clear line and nothing written. Never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import contents, imported, write_project
from treegen_caches import write_cache
from treegen_strategies import examples

from treegen.cli import main

FILES = ("treegen.yaml", "tables/h100/run.yaml", "tables/h100/scenarios.csv", "tables/h100/times.csv")
SNIPPETS = [
    *(
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\t",
        b" ",
        b"'",
        b'"',
        b",",
        b":",
        b"- ",
        b"#",
        b"{",
        b"]",
    ),
    *(
        b"&a ",
        b"*a",
        b"!!int ",
        b"!!bool ",
        b"|\n",
        b"---\n",
        b"...\n",
        b"<<: ",
        b"? ",
        b"%",
        b"@",
        b"\\",
        b"~",
    ),
    *(
        b"nan",
        b"inf",
        b"-1",
        b"0",
        b"1e99",
        b"0x10",
        b"1_0",
        b"9" * 30,
        b"0x" + b"f" * 5000,
        b"true",
        b"null",
    ),
    *(
        b"../..",
        b"/etc/passwd",
        b"a" * 300,
        b"lambda",
        b"__import__",
        b"rows",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
    ),
]


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A function that damages a text in one place: cut, insert, replace, repeat, swap or drop a line."""
    where, length = draw(st.floats(0, 1)), draw(st.integers(0, 12))
    snippet = draw(st.one_of(st.sampled_from(SNIPPETS), st.binary(max_size=4)))
    kind = draw(st.sampled_from(["cut", "insert", "replace", "repeat line", "drop line", "swap lines"]))

    def damage(text: bytes) -> bytes:
        place = int(where * len(text))
        if kind == "cut":
            return text[:place]
        if kind == "insert":
            return text[:place] + snippet + text[place:]
        if kind == "replace":
            return text[:place] + snippet + text[place + length :]
        lines = text.splitlines(keepends=True)
        line = min(int(where * len(lines)), len(lines) - 1) if lines else 0
        if kind == "repeat line":
            lines[line:line] = lines[line : line + 1]
        elif kind == "drop line":
            del lines[line : line + 1]
        else:
            lines[line : line + 2] = reversed(lines[line : line + 2])
        return b"".join(lines)

    return damage


def _ends_well(folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    before = contents(folder)
    capsys.readouterr()
    status = main(arguments)
    captured = capsys.readouterr()
    assert status in (0, 2)
    if status == 2:
        assert captured.err.count("\n") == 1 and captured.err.startswith("treegen: ")
        assert captured.err[:-1].isprintable()
        assert contents(folder) == before
    else:
        assert captured.err == ""
    return status


@examples(120)
@given(st.sampled_from(FILES), st.lists(mutations(), min_size=1, max_size=3))
def test_a_build_of_damaged_input(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damages: list[Callable[[bytes], bytes]],
) -> None:
    folder = tmp_path_factory.mktemp("p")
    path = write_project(folder / "project", shapes=[(1, 1, 2), (8, 8, 2), (64, 64, 2)])
    text = (folder / "project" / name).read_bytes()
    for damage in damages:
        text = damage(text)
    (folder / "project" / name).write_bytes(text)
    before = contents(folder)
    if _ends_well(folder, ["build", "--spec", str(path)], capsys) == 0:
        written = {name for name in contents(folder) if name not in before}
        (top,) = {"/".join(name.split("/")[:2]) for name in written}  # nothing outside the output folder
        if top == "project/generated":
            with imported(folder / "project") as generated:
                for kernel in generated.__all__:
                    for module in getattr(generated, kernel).MODULES.values():
                        names = module.choose.__code__.co_varnames[: module.choose.__code__.co_kwonlyargcount]
                        module.choose(**dict.fromkeys(names, 7))


@examples(80)
@given(st.lists(mutations(), min_size=1, max_size=3))
def test_an_import_of_a_damaged_cache(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    damages: list[Callable[[bytes], bytes]],
) -> None:
    folder = tmp_path_factory.mktemp("p")
    path = write_cache(folder / "caches")
    text = path.read_bytes()
    for damage in damages:
        text = damage(text)
    path.write_bytes(text)
    _ends_well(folder, ["import", "dejavu", str(folder / "caches"), "--to", str(folder / "tables")], capsys)

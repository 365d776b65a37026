"""Text from outside is never code: it arrives as the text it was, or the build ends with status 2."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, build, contents, imported, spec, write_project, write_table
from treegen_strategies import examples

from treegen.emit.python import literal

ATTACKS = [
    "it's",
    'say "hello"',
    """both ' and \"""",
    '"""\nimport os\nos.system("touch owned")\n"""',
    "'''",
    "a\\",
    'a\\"',
    "\\'",
    "line\nbreak",
    "carriage\rreturn",
    "form\x0cfeed, \x1b[2J, \x85 and \u2028",
    "{{ 7 * 7 }} {% raw %} {# comment #}",
    "%s {0} {kernel.name} ${HOME}",
    "# comment",
    "\\N{BULLET} \\x41 \\u0041 \\101",
    "ＮＶＩＤＩＡ Ä 漢字 🚀 \u202e",  # noqa: RUF001
    "tab\tand nul \0",
    "  blanks  ",
    "",
    "x" * 10_000,
]


@pytest.mark.parametrize("text", ATTACKS, ids=lambda text: ascii(text)[:30])
def test_the_name_of_a_gpu(tmp_path: Path, text: str) -> None:
    content = spec()
    content["devices"][DEVICE] |= {"names": [text], "arch": text + "a", "vendor": text + "v"}
    content["devices"]["family"] = {"vendor": text + "v"}
    content["kernels"]["scale"]["tables"]["family"] = "tables/h100"
    path = write_project(tmp_path, content)
    before = contents(tmp_path)
    if build(path) == 2:
        assert contents(tmp_path) == before
        return
    with imported(tmp_path) as generated:
        package = generated.scale
        assert list(package._BY_NAME) == [text]
        assert list(package._BY_ARCH) == [text + "a"] and list(package._BY_VENDOR) == [text + "v"]
        assert package.for_device(text, "?", "?") is package.MODULES[DEVICE].choose
        assert package.for_device("?", text + "a", "?") is package.MODULES[DEVICE].choose
        assert package.for_device("?", "?", text + "v") is package.MODULES["family"].choose
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("field", ["driver", "torch", "source_hash", "date", "timing"])
def test_what_a_table_says_of_itself_reaches_no_module(tmp_path: Path, field: str) -> None:
    plain = write_project(tmp_path / "plain")
    attack = write_project(tmp_path / "attack")
    write_table(tmp_path / "attack/tables/h100", **{field: ATTACKS[3]})
    assert (build(plain), build(attack)) == (0, 0)
    modules = [
        {name: text for name, text in contents(tmp_path / side / "generated").items() if name.endswith(".py")}
        for side in ("plain", "attack")
    ]
    assert modules[0] == modules[1]


def test_the_device_name_of_a_table_reaches_no_module(tmp_path: Path) -> None:
    path = write_project(tmp_path, device={"name": ATTACKS[3]})
    assert build(path) == 0
    for text in contents(tmp_path / "generated").values():
        assert text is None or b"owned" not in text


MARKUP = ["[/x]", "[bold]7[/bold]", "[link=file:///etc/passwd]x[/link]", "\x1b[2Jgone"]


@pytest.mark.parametrize("text", MARKUP, ids=ascii)
def test_a_count_of_configs_that_is_no_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = write_project(tmp_path)
    write_table(tmp_path / "tables/h100", origin={"evaluated_configs": text})
    assert build(path) in (0, 2)
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert not any(" of " in line for line in captured.out.splitlines() if line.startswith("scale "))


def test_a_count_of_configs_of_5000_digits(tmp_path: Path) -> None:
    path = write_project(tmp_path)
    run = write_table(tmp_path / "tables/h100", origin={"evaluated_configs": 12345}) / "run.yaml"
    run.write_text(run.read_text().replace("12345", "0x" + "f" * 5000))
    assert build(path) in (0, 2)


@examples(300)
@given(st.text())
def test_a_literal_is_its_text(text: str) -> None:
    source = literal(text)
    assert ast.literal_eval(source) == text
    assert source.isascii() and source.isprintable()
    assert len(ast.parse(source).body) == 1


@examples(50)
@given(st.integers())
def test_a_literal_is_its_number(value: int) -> None:
    assert ast.literal_eval(literal(value)) == value


HOSTILE_KEYS: list[dict[str, Any]] = [
    {"features": ['rows"); import os', "columns", "heads"]},
    {"features": ["rows\n    import os", "columns", "heads"]},
    {"configs": [{"id": "a", "variant": 'plain"); import os; ("', "block": 1, "warps": 1}]},
    {"configs": [{"id": 'a"\nimport os', "variant": "plain", "block": 1, "warps": 1}]},
    {"configs": [{"id": "a", "variant": "plain", "block": "1); import os; (1", "warps": 1}]},
]


@pytest.mark.parametrize("changes", HOSTILE_KEYS)
def test_code_in_a_tables_words(tmp_path: Path, refusal: Any, changes: dict[str, Any]) -> None:
    path = write_project(tmp_path)
    write_table(tmp_path / "tables/h100", **changes)
    refusal(tmp_path, "build", "--spec", path)

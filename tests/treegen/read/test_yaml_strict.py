"""YAML from outside: plain data only, no key twice, and a line for every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.read.yaml_file import load

REFUSED = [
    ("key twice", "a: 1\nb: 2\na: 3\n", 3, "key 'a' appears twice (first in line 1)"),
    ("inner key twice", "a:\n  b: 1\n  b: 1\n", 3, "key 'b' appears twice (first in line 2)"),
    ("key twice, spelt differently", "a: 1\n'a': 2\n", 2, "appears twice"),
    ("alias", "a: &x [1]\nb: *x\n", 2, "aliases"),
    ("merge of an alias", "a: &x {b: 1}\nc:\n  <<: *x\n", 3, "aliases"),
    ("ten lines that expand to a billion", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", 2, "aliases"),
    ("tag that runs code", "a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "not allowed"),
    ("tag that makes objects", "a: !!python/object:os.PathLike {}\n", 1, "not allowed"),
    ("tag of one's own", "a: !config {}\n", 1, "YAML tag !config is not allowed"),
    ("binary", "a: !!binary aGk=\n", 1, "not allowed"),
    ("set", "a: !!set {b}\n", 1, "not allowed"),
    ("ordered mapping", "a: !!omap [b: 1]\n", 1, "not allowed"),
    ("mapping as key", "a: 1\n? {b: 1}\n: 2\n", 2, "a key must be a word"),
    ("list as key", "? [b]\n: 2\n", 1, "a key must be a word"),
    ("two documents", "a: 1\n---\na: 2\n", 2, "another document"),
    ("tab", "a:\n\tb: 1\n", 2, "not valid YAML"),
    ("open bracket", "a: [1\nb: 2\n", 2, "not valid YAML"),
    ("open quote", "a: 'b\nc: 1\n", 3, "not valid YAML"),
    ("colon in a value", "a: b: c\n", 1, "not valid YAML"),
    ("percent", "%YAML 9.9\n---\na: 1\n", 1, "not valid YAML"),
    ("text under a mapping's tag", "a: !!map b\n", 1, "cannot read the value 'b'"),
    ("no number under a number's tag", "a: !!float '-'\n", 1, "cannot read the value '-'"),
    ("empty binary number", "a: 0b_\n", 1, "cannot read the value '0b_'"),
    (
        "a number to base 60 that takes minutes",
        "a: 1" + ":30" * 300_000 + "\n",
        1,
        "cannot read the value '1:30",
    ),
    ("a character beyond Unicode", 'a: 1\nb: "\\U00110000"\n', 2, "there is no such character"),
    ("a character far beyond Unicode", 'a: "\\Uffffffff"\n', 1, "there is no such character"),
    ("number of 5,000 digits", "a: " + "9" * 5000 + "\n", 1, "cannot read the value '999"),
]


@pytest.mark.parametrize(
    ("text", "line", "says"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused_with_its_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    message = error_of(load, path)
    assert message.startswith(f"{path}:{line}: ") and says in message


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "just text\n", "- a\n- b\n", "null\n", "7\n", "---\n...\n"]
)
def test_what_is_no_mapping(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    assert (
        error_of(load, tmp_path / "f.yaml") == f"{tmp_path / 'f.yaml'}: must hold a mapping of keys to values"
    )


@pytest.mark.parametrize("value", ["!!int ''", "!!int _", "!!bool maybe", "!!float ''"])
def test_a_tag_that_does_not_fit_its_value(tmp_path: Path, value: str) -> None:
    (tmp_path / "f.yaml").write_text(f"a: 1\nb: {value}\n")
    assert error_of(load, tmp_path / "f.yaml").startswith(f"{tmp_path / 'f.yaml'}:2: ")


@pytest.mark.parametrize("key", ["!!python/name:os.system a", "!mine a", "!!binary a"])
def test_a_tag_on_a_key(tmp_path: Path, key: str) -> None:
    (tmp_path / "f.yaml").write_text(f"b: 1\n{key}: 1\n")
    assert error_of(load, tmp_path / "f.yaml").startswith(f"{tmp_path / 'f.yaml'}:2: ")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_deep_nesting(tmp_path: Path, opening: str, closing: str) -> None:
    (tmp_path / "f.yaml").write_text(f"a: {opening * 500}{closing * 500}\n")
    assert error_of(load, tmp_path / "f.yaml") == f"{tmp_path / 'f.yaml'}: nested too deeply"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_nesting_without_end_is_not_read_to_its_end(tmp_path: Path, opening: str) -> None:
    """PyYAML's scanner takes quadratic time for it."""
    (tmp_path / "f.yaml").write_text("a:\n  " + opening * 100_000)
    assert error_of(load, tmp_path / "f.yaml") == f"{tmp_path / 'f.yaml'}: nested too deeply"


@pytest.mark.parametrize("byte", [b"\0", b"\x07", b"\x1b"])
def test_characters_that_are_no_text(tmp_path: Path, byte: bytes) -> None:
    (tmp_path / "f.yaml").write_bytes(b"a: 1\nb: " + byte + b"\n")
    message = error_of(load, tmp_path / "f.yaml")
    assert message.startswith(f"{tmp_path / 'f.yaml'}: not valid YAML: unacceptable character")
    assert "\n" not in message


def test_no_utf8(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"a: \xff\n")
    assert error_of(load, tmp_path / "f.yaml") == f"{tmp_path / 'f.yaml'}: not UTF-8 text (byte 3)"


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with path.open("wb") as out:
        out.truncate((1 << 20) + 1)
    assert error_of(load, path) == f"{path}: larger than 1 MiB"


def test_plain_data_keeps_its_kinds_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("\ufeffa: 1\nb: [x, 2, 0.5, true, null]\nc:\n  d: 2026-01-31\n  e: '7'\n", "utf-8")
    fields = load(path)
    assert fields.plain() == {"a": 1, "b": ["x", 2, 0.5, True, None], "c": {"d": "2026-01-31", "e": "7"}}
    assert (fields.line_of("a"), fields.line_of("c"), fields["c"].line_of("e")) == (1, 3, 5)


def test_a_date_is_the_text_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("date: 2026-01-31 10:00:00\n")
    assert load(tmp_path / "f.yaml")["date"] == "2026-01-31 10:00:00"


def test_a_mapping_in_the_wrong_place_is_quoted_readably(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: {b: 1}\n")
    message = error_of(load(tmp_path / "f.yaml").get_as, "a", str)
    assert message.startswith(f"{tmp_path / 'f.yaml'}:1: ") and "object at 0x" not in message

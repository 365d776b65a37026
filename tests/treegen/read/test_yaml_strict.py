"""YAML from outside: plain data only, no key twice, and a line for every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.read.yaml_file import load

REFUSED = [
    ("a: 1\nb: 2\na: 3\n", 3, "key 'a' appears twice (first in line 1)"),
    ("a:\n  b: 1\n  b: 1\n", 3, "key 'b' appears twice (first in line 2)"),
    ("a: 1\n'a': 2\n", 2, "appears twice"),
    ("a: &x [1]\nb: *x\n", 2, "aliases"),
    ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "aliases"),
    ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "not allowed"),
    ("a: !!python/object:os.PathLike {}\n", 1, "not allowed"),
    ("a: !config {}\n", 1, "YAML tag !config is not allowed"),
    ("a: !!binary aGk=\n", 1, "not allowed"),
    ("a: !!set {b}\n", 1, "not allowed"),
    ("a: !!omap [b: 1]\n", 1, "not allowed"),
    ("b: 1\n!!python/name:os.system a: 1\n", 2, "a key must be a word"),
    ("b: 1\n!mine a: 1\n", 2, "a key must be a word"),
    ("a: 1\n? {b: 1}\n: 2\n", 2, "a key must be a word"),
    ("? [b]\n: 2\n", 1, "a key must be a word"),
    ("a: 1\n---\na: 2\n", 2, "another document"),
    ("a:\n\tb: 1\n", 2, "not valid YAML"),
    ("a: [1\nb: 2\n", 2, "not valid YAML"),
    ("a: 'b\nc: 1\n", 3, "not valid YAML"),
    ("a: b: c\n", 1, "not valid YAML"),
    ("%YAML 9.9\n---\na: 1\n", 1, "not valid YAML"),
    ("a: !!map b\n", 1, "cannot read the value 'b'"),
    ("a: !!int ''\n", 1, "cannot read the value ''"),
    ("a: !!bool maybe\n", 1, "write true or false, or quote 'maybe'"),
    ("a: yes\n", 1, "write true or false, or quote 'yes'"),
    ("a: !!float '-'\n", 1, "cannot read the value '-'"),
    ("a: 0b_\n", 1, "cannot read the value '0b_'"),
    ("a: 1" + ":30" * 300_000 + "\n", 1, "cannot read the value '1:30"),  # in base 60 this takes minutes
    ('a: 1\nb: "\\U00110000"\n', 2, "there is no such character"),
    ('a: "\\Uffffffff"\n', 1, "there is no such character"),
    ("a: " + "9" * 5000 + "\n", 1, "cannot read the value '999"),
]


@pytest.mark.parametrize(("text", "line", "says"), REFUSED, ids=[ascii(text[:40]) for text, _, _ in REFUSED])
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
    path.write_text(
        "\ufeffa: 1\nb: [x, 2, 0.5, true, null]\nc:\n  d: 2026-01-31 10:00:00\n  e: '7'\n", "utf-8"
    )
    fields = load(path)
    inner = {"d": "2026-01-31 10:00:00", "e": "7"}  # a date is the text that the author wrote
    assert fields.plain() == {"a": 1, "b": ["x", 2, 0.5, True, None], "c": inner}
    assert (fields.line_of("a"), fields.line_of("c"), fields["c"].line_of("e")) == (1, 3, 5)


def test_a_mapping_in_the_wrong_place_is_quoted_readably(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: {b: 1}\n")
    message = error_of(load(tmp_path / "f.yaml").get_as, "a", str)
    assert message.startswith(f"{tmp_path / 'f.yaml'}:1: ") and "object at 0x" not in message

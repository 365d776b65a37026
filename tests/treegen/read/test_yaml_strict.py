"""YAML from outside: plain data only, no key twice, and a line for every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.read.yaml_file import load

# tests/tuning_table/test_run_yaml.py has what is refused beyond plain data.
REFUSED = [
    ("a:\n  b: 1\n  b: 1\n", 3, "key 'b' appears twice (first in line 2)"),
    ("a: &x [1]\nb: *x\n", 2, "YAML aliases (*name) are not allowed"),
    ("a: [1\nb: 2\n", 2, "not valid YAML"),
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
    assert fields == {"a": 1, "b": ["x", 2, 0.5, True, None], "c": inner}
    assert (fields.line_of("a"), fields.line_of("c"), fields["c"].line_of("e")) == (1, 3, 5)


def test_a_mapping_in_the_wrong_place_is_quoted_readably(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: {b: 1}\n")
    message = error_of(load(tmp_path / "f.yaml").get_as, "a", str)
    assert message.startswith(f"{tmp_path / 'f.yaml'}:1: ") and "object at 0x" not in message

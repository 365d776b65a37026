"""YAML from outside: plain data only, no key twice, and a line for every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.read.yaml_file import load

# tests/tuning_table/test_run_yaml.py has what is refused beyond plain data.
REFUSED = [("a:\n  b: 1\n  b: 1\n", 3), ("a: &x [1]\nb: *x\n", 2), ("a: [1\nb: 2\n", 2)]


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_a_repeated_key_an_alias_or_broken_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert error_of(load, path).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    "content",
    [b"", b"# nothing\n", b"just text\n", b"- a\n- b\n", b"null\n", b"7\n", b"---\n...\n", b"a: \xff\n"],
)
def test_what_is_no_mapping_of_utf8_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.yaml").write_bytes(content)
    assert error_of(load, tmp_path / "f.yaml").startswith(f"{tmp_path / 'f.yaml'}: ")


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with path.open("wb") as out:
        out.truncate((1 << 20) + 1)
    assert error_of(load, path).startswith(f"{path}: ")


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

"""Specs are read as strict YAML, of which tests/tuning_table/test_run_yaml.py has the cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of

from treegen.read.spec import read_spec

REFUSED = [
    (b"a:\n  b: 1\n  b: 1\n", ":3: "),
    (b"", ": "),
    (b"a: \xff\n", ":1: "),
    (b"a: " + bytes(1 << 20), ": "),
]


@pytest.mark.parametrize(("content", "place"), REFUSED, ids=["key twice", "empty", "no UTF-8", "too large"])
def test_what_is_refused_names_the_file_and_the_line(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(content)
    assert error_of(read_spec, path).startswith(f"{path}{place}")

"""What is beyond the language of expressions is refused, with the line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of, line_of, spec, write_spec

from treegen.read.spec_file import read_spec

BEYOND = ["rows.real", "rows.__class__.__mro__", "print(rows)", "__import__('os').system('id')"]
BEYOND += ["min(1, 2)(3)", "max(rows, heads, key=rows)", "max(*rows)", "max(rows)", "min()"]
BEYOND += ["next_power_of_2(rows, heads)"]
BEYOND += ["lambda: rows", "f'{rows}'", "'rows'", "rows * 0.5", "rows * 2j", "True", "None", "..."]
BEYOND += [
    "rows / 2",
    "rows ** 2",
    "9 ** 9 ** 9",
    "1 << rows",
    "~rows",
    "not rows",
    "+rows",
    "rows and heads",
]
BEYOND += ["rows < heads", "rows if heads else 1", "rows[0]", "[rows]", "rows, heads", "(rows := 5)"]
BEYOND += ["[rows for rows in heads]", "~" * 290 + "rows", "rows" + ".a" * 140, "9" * 70, "0x7f" + "f" * 14]
NO_EXPRESSIONS = ["", " ", "rows +", "rows columns", "rows; heads", "x = rows", "(" * 250, "rows)", "#"]
NO_EXPRESSIONS += ["rows\nheads", "rows\n  + heads", "rows \\", "$rows", "1rows"]
DIVISIONS = ["rows // columns", "rows // 0", "rows // -1", "rows // (1 - 1)", "rows // max(0, columns)"]
DIVISIONS += ["rows // min(1, columns)", "rows // (1 + columns)", "rows // (2 * columns)", "1 // (0 // 1)"]
DIVISIONS += ["rows // max(columns, heads)", "rows // shared_memory", "rows // (2 - 1)"]


def _error(folder: Path, text: str) -> str:
    """The message after the place of the expression."""
    path = write_spec(folder, spec(derived={"area": text}))
    place = f"{path}:{line_of(path.read_text(), 'area:')}: kernels.scale.derived.area: "
    message = error_of(read_spec, path)
    assert message.startswith(place)
    return message.removeprefix(place)


@pytest.mark.parametrize("text", BEYOND)
def test_beyond_the_language(tmp_path: Path, text: str) -> None:
    message = _error(tmp_path, text)
    assert any(
        word in message for word in ("only integers, names, + - * // %", "beyond 62 bits", "arguments")
    )


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_no_expression(tmp_path: Path, text: str) -> None:
    assert _error(tmp_path, text) == "is not an expression"


@pytest.mark.parametrize("text", DIVISIONS)
def test_division_by_what_may_be_zero(tmp_path: Path, text: str) -> None:
    assert _error(tmp_path, text) == "divides by something that may be 0: write // max(1, ...)"


def test_too_long(tmp_path: Path) -> None:
    assert _error(tmp_path, "rows" + " + rows" * 43) == "is longer than 300 characters"
    read_spec(write_spec(tmp_path, spec(derived={"area": "rows" + " + rows" * 42 + "  "})))


@pytest.mark.parametrize("divisor", ["3", "max(1, columns)", "max(columns, 1)", "next_power_of_2(columns)"])
def test_safe_divisions_are_accepted(tmp_path: Path, divisor: str) -> None:
    path = write_spec(tmp_path, spec(derived={"area": f"rows // {divisor}"}))
    assert "area" in read_spec(path).kernels["scale"].derived

"""What is beyond the language of expressions is refused, with the line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import error_of, line_of, spec, write_spec

from treegen.read.spec_file import read_spec

BEYOND = {
    "attribute": "rows.real",
    "dunder": "rows.__class__.__mro__",
    "call": "print(rows)",
    "import": "__import__('os').system('id')",
    "method": "rows.bit_length()",
    "call of a call": "min(1, 2)(3)",
    "keyword argument": "max(rows, heads, key=rows)",
    "starred argument": "max(*rows)",
    "max of one": "max(rows)",
    "min of none": "min()",
    "power of two of two": "next_power_of_2(rows, heads)",
    "lambda": "lambda: rows",
    "f-string": "f'{rows}'",
    "text": "'rows'",
    "float": "rows * 0.5",
    "complex": "rows * 2j",
    "truth": "True",
    "nothing": "None",
    "ellipsis": "...",
    "true division": "rows / 2",
    "remainder": "rows % 2",
    "power": "9 ** 9 ** 9",
    "shift": "1 << rows",
    "bit operation": "rows & 1",
    "inversion": "~rows",
    "not": "not rows",
    "plus": "+rows",
    "and": "rows and heads",
    "comparison": "rows < heads",
    "conditional": "rows if heads else 1",
    "index": "rows[0]",
    "list": "[rows]",
    "tuple": "rows, heads",
    "comprehension": "[rows for rows in heads]",
    "walrus": "(rows := 5)",
    "await": "await rows",
    "many inversions": "~" * 290 + "rows",
    "many attributes": "rows" + ".a" * 140,
    "a number of 70 digits": "9" * 70,
    "a hexadecimal number of 63 bits": "0x" + "7" + "f" * 15,
}


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND)
def test_beyond_the_language(tmp_path: Path, text: str) -> None:
    path = write_spec(tmp_path, spec(derived={"area": text}))
    line = line_of(path.read_text(), "area:")
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line}: kernels.scale.derived.area: ")
    assert any(word in message for word in ("only integers, names, + - * //", "beyond 62 bits", "arguments"))


NO_EXPRESSIONS = [
    "",
    " ",
    "rows +",
    "rows columns",
    "rows; heads",
    "x = rows",
    "import os",
    "(" * 250,
    "rows)",
    "#",
]


@pytest.mark.parametrize(
    "text", [*NO_EXPRESSIONS, "rows\nheads", "rows\n  + heads", "rows \\", "$rows", "1rows"]
)
def test_no_expression(tmp_path: Path, text: str) -> None:
    path = write_spec(tmp_path, spec(derived={"area": text}))
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:") and "kernels.scale.derived.area: is not an expression" in message


def test_too_long(tmp_path: Path) -> None:
    message = error_of(read_spec, write_spec(tmp_path, spec(derived={"area": "rows" + " + rows" * 50})))
    assert "is longer than 300 characters" in message


DIVISIONS = ["rows // columns", "rows // 0", "rows // -1", "rows // (1 - 1)", "rows // max(0, columns)"]
DIVISIONS += ["rows // min(1, columns)", "rows // (1 + columns)", "rows // (2 * columns)", "1 // (0 // 1)"]
DIVISIONS += ["rows // max(columns, heads)", "rows // shared_memory", "rows // (2 - 1)"]


@pytest.mark.parametrize("text", DIVISIONS)
def test_division_by_what_may_be_zero(tmp_path: Path, text: str) -> None:
    message = error_of(read_spec, write_spec(tmp_path, spec(derived={"area": text})))
    assert "divides by something that may be 0: write // max(1, ...)" in message


@pytest.mark.parametrize(
    "text",
    ["rows // 3", "rows // max(1, columns)", "rows // max(columns, 1)", "rows // next_power_of_2(columns)"],
)
def test_safe_divisions_are_accepted(tmp_path: Path, text: str) -> None:
    assert "area" in read_spec(write_spec(tmp_path, spec(derived={"area": text}))).kernels["scale"].derived


def test_a_constraint_beyond_the_language(tmp_path: Path) -> None:
    path = write_spec(tmp_path, spec(constraints=["block >= heads", "block >= heads.real"]))
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'heads.real')}: ")
    assert "constraint 'block >= heads.real' holds 'heads.real'" in message

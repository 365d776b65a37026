"""Names from the spec become identifiers, file names and folder names: whatever cannot be one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, KERNEL, error_of, spec, write_spec

from treegen.read.spec_file import read_spec

Spec = dict[str, Any]

BAD = [
    "class",
    "None",
    "match",
    "_",
    "print",
    "min",
    "__init__",
    "__builtins",
    "a.b",
    "a-b",
    "a b",
    "a/b",
    "../a",
    "a\\b",
    "1a",
    "",
    "a'b",
    'a"b',
    "a\nb",
    "a\0b",
    "a;b",
    "a#b",
    "a{{b}}",
    "ä",
    "ａ",  # noqa: RUF001 - a fullwidth letter, which Python would read as the ASCII one
    "a\u200b",
    "a" * 65,
]


def _feature(content: Spec, name: str) -> None:
    content["kernels"][KERNEL]["features"].append(name)


def _derived(content: Spec, name: str) -> None:
    content["kernels"][KERNEL]["derived"][name] = "rows"


def _parameter(content: Spec, name: str) -> None:
    content["kernels"][KERNEL]["config"]["parameters"][name] = "X"


def _variant(content: Spec, name: str) -> None:
    content["kernels"][KERNEL]["config"]["variants"].append(name)


def _kernel(content: Spec, name: str) -> None:
    content["kernels"][name] = content["kernels"].pop(KERNEL)


def _device(content: Spec, name: str) -> None:
    content["devices"][name] = {"vendor": "nvidia"}


def _limit(content: Spec, name: str) -> None:
    content["devices"][DEVICE]["limits"][name] = 1


PLACES: list[Callable[[Spec, str], None]] = [
    _feature,
    _derived,
    _parameter,
    _variant,
    _kernel,
    _device,
    _limit,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__[1:])
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_bad_name(tmp_path: Path, place: Callable[[Spec, str], None], name: str) -> None:
    content = spec()
    place(content, name)
    path = write_spec(tmp_path, content)
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:")
    assert any(
        reason in message
        for reason in (
            "is not a plain name",
            "is a word of Python",
            "is a builtin of Python",
            "two underscores",
        )
    )
    assert message.isprintable()


def test_names_up_to_64_letters_are_fine(tmp_path: Path) -> None:
    content = spec()
    _feature(content, "a" * 64)
    assert read_spec(write_spec(tmp_path, content)).kernels[KERNEL].features[-1] == "a" * 64

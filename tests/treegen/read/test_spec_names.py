"""Names from the spec become identifiers, file names and folder names: whatever cannot be one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, KERNEL, error_of, spec, write_spec

from treegen.read.spec_file import read_spec

Spec = dict[str, Any]
BAD = ["class", "match", "_", "print", "__init__", "__builtins", "a.b", "a b", "../a", "a\\b", "1a", ""]
BAD += ["a'b", "a\nb", "a\0b", "a{{b}}", "ä", "a\u200b", "a" * 65]
BAD += ["ａ"]  # noqa: RUF001 - a fullwidth letter, which Python would read as the ASCII one

PLACES: dict[str, Callable[[Spec, str], object]] = {
    "feature": lambda s, name: s["kernels"][KERNEL]["features"].append(name),
    "derived": lambda s, name: s["kernels"][KERNEL]["derived"].update({name: "rows"}),
    "parameter": lambda s, name: s["kernels"][KERNEL]["config"]["parameters"].update({name: "X"}),
    "variant": lambda s, name: s["kernels"][KERNEL]["config"]["variants"].append(name),
    "kernel": lambda s, name: s.update(kernels={name: s["kernels"][KERNEL]}),
    "device": lambda s, name: s["devices"].update({name: {"vendor": "nvidia"}}),
    "limit": lambda s, name: s["devices"][DEVICE]["limits"].update({name: 1}),
    "hook": lambda s, name: s["kernels"][KERNEL].update(hook=name),
}
REASONS = ["is not a plain name", "is a word of Python", "is a builtin of Python", "two underscores"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_bad_name(tmp_path: Path, place: str, name: str) -> None:
    content = spec()
    PLACES[place](content, name)
    path = write_spec(tmp_path, content)
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:") and any(reason in message for reason in REASONS)
    assert message.isprintable()


def test_names_up_to_64_letters_are_fine(tmp_path: Path) -> None:
    content = spec()
    PLACES["feature"](content, "a" * 64)
    assert read_spec(write_spec(tmp_path, content)).kernels[KERNEL].features[-1] == "a" * 64

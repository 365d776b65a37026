"""Damaged run.yaml: an error that names the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import NARROW, WIDE, error_of, line_of, run, write_table, yaml_text

from treegen.read.table_file import read_table


def _error(folder: Path, content: dict[str, Any]) -> tuple[str, Path, str]:
    path = write_table(folder) / "run.yaml"
    path.write_text(yaml_text(content))
    return error_of(read_table, folder), path, path.read_text()


REQUIRED = ["format", "kernel", "device", "cells", "timing", "features", "configs"]


@pytest.mark.parametrize("word", REQUIRED)
def test_missing_word(tmp_path: Path, word: str) -> None:
    content = run()
    del content[word]
    message, path, _ = _error(tmp_path / "t", content)
    assert message == f"{path}:1: lacks '{word}'"


@pytest.mark.parametrize("word", ["driver", "torch", "triton", "source_hash", "date"])
def test_missing_provenance(tmp_path: Path, word: str) -> None:
    content = run()
    del content[word]
    message, path, _ = _error(tmp_path / "t", content)
    assert message == f"{path}:1: lacks {word} (or 'origin', if the table was imported)"


def test_an_imported_table_states_its_origin_instead(tmp_path: Path) -> None:
    content = run(origin={"tool": "another tuner"})
    for word in ("driver", "torch", "triton", "source_hash", "date"):
        del content[word]
    folder = write_table(tmp_path / "t")
    (folder / "run.yaml").write_text(yaml_text(content))
    assert read_table(folder).provenance["origin"] == {"tool": "another tuner"}


def test_unknown_word_is_named(tmp_path: Path) -> None:
    message, path, _ = _error(tmp_path / "t", run(gpu="H100"))
    assert message.startswith(f"{path}:") and "unknown word 'gpu'; known here: format, kernel" in message


def test_unknown_word_is_named_with_its_line(tmp_path: Path) -> None:
    message, path, text = _error(tmp_path / "t", run(gpu="H100"))
    assert message.startswith(f"{path}:{line_of(text, 'gpu')}: ")


def test_unknown_word_of_the_device(tmp_path: Path) -> None:
    message, path, _ = _error(tmp_path / "t", run(device={"name": "H100", "vram": 80}))
    assert message.startswith(f"{path}:") and "device: unknown word 'vram'" in message


def _config(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**WIDE, **changes}.items() if value is not ...}


WRONG = [
    ("format", {"format": 2}, "format:", "must be 1"),
    ("format as text", {"format": "1"}, "format:", "must be an integer, not '1'"),
    ("format as truth", {"format": True}, "format:", "must be an integer, not True"),
    ("cells", {"cells": "medians"}, "cells:", "must be one of measured, winners, not 'medians'"),
    ("kernel", {"kernel": 7}, "kernel:", "must be text, not 7"),
    ("device without a name", {"device": {"arch": "sm_90"}}, "arch:", "lacks 'name'"),
    ("device as text", {"device": "H100"}, "device:", "must be a mapping"),
    ("timing as a list", {"timing": ["graph"]}, "timing:", "must be text or a mapping"),
    ("origin as text", {"origin": "a paper"}, "origin:", "must be a mapping"),
    ("no features", {"features": []}, "features:", "names no feature"),
    ("features as text", {"features": "rows"}, "features:", "must be a list"),
    ("feature twice", {"features": ["rows", "columns", "rows"]}, "features:", "names 'rows' twice"),
    ("feature as a number", {"features": ["rows", 5]}, "features:", "holds 5"),
    ("feature as a keyword", {"features": ["rows", "lambda"]}, "features:", "'lambda' is a word of Python"),
    ("feature as a soft keyword", {"features": ["match"]}, "features:", "'match' is a word of Python"),
    ("feature as a builtin", {"features": ["min"]}, "features:", "'min' is a builtin of Python"),
    ("feature as a dunder", {"features": ["__class__"]}, "features:", "'__class__' is a builtin"),
    ("feature with a dot", {"features": ["os.system"]}, "features:", "'os.system' is not a plain name"),
    ("feature with a quote", {"features": ['a"b']}, "features:", "is not a plain name"),
    ("feature with a line end", {"features": ["a\nb"]}, "features:", "'a\\nb' is not a plain name"),
    ("feature in Cyrillic", {"features": ["rоws"]}, "features:", "is not a plain name"),  # noqa: RUF001
    ("feature too long", {"features": ["a" * 65]}, "features:", "is not a plain name"),
    ("empty feature", {"features": [""]}, "features:", "is not a plain name"),
    ("no configs", {"configs": []}, "configs:", "names no config"),
    ("configs as a mapping", {"configs": {"id": "a"}}, "configs:", "must be a list"),
    ("config as text", {"configs": [dict(NARROW), "wide"]}, "configs:", "entry 2 is not a mapping"),
    ("config without id", {"configs": [_config(id=...)]}, "- variant:", "lacks 'id'"),
    (
        "config id twice",
        {"configs": [dict(NARROW), _config(id="narrow")]},
        ("narrow", 2),
        "names two configs",
    ),
    ("config id with a comma", {"configs": [_config(id="a,b")]}, "a,b", "may hold letters, digits"),
    ("config id as a formula", {"configs": [_config(id="=1+1")]}, "=1+1", "may hold letters, digits"),
    ("config id as a number", {"configs": [_config(id=7)]}, "id: 7", "must be text, not 7"),
    ("parameter as a float", {"configs": [_config(block=1.5)]}, "block: 1.5", "must be an integer, not 1.5"),
    ("parameter as truth", {"configs": [_config(block=True)]}, "block: true", "must be an integer, not True"),
    (
        "parameter as nothing",
        {"configs": [_config(block=None)]},
        "block: null",
        "must be an integer, not None",
    ),
    ("negative parameter", {"configs": [_config(block=-1)]}, "block: -1", "-1 is no launch parameter"),
    (
        "huge parameter",
        {"configs": [_config(block=2**31)]},
        "block: 2147",
        "2147483648 is no launch parameter",
    ),
    ("parameter as a keyword", {"configs": [{**WIDE, "in": 1}]}, "id: wide", "parameter 'in' is a word of"),
    (
        "other parameters",
        {"configs": [dict(NARROW), _config(warps=...)]},
        ("id:", 2),
        "other parameters than",
    ),
    (
        "variant here, none there",
        {"configs": [dict(NARROW), _config(variant=...)]},
        ("id:", 2),
        "all configs or",
    ),
]


@pytest.mark.parametrize(
    ("changes", "needle", "says"), [case[1:] for case in WRONG], ids=[c[0] for c in WRONG]
)
def test_wrong_value(
    tmp_path: Path, changes: dict[str, Any], needle: str | tuple[str, int], says: str
) -> None:
    message, path, text = _error(tmp_path / "t", run(**changes))
    line = line_of(text, needle) if isinstance(needle, str) else line_of(text, *needle)
    assert message.startswith(f"{path}:{line}: ") and says in message


def test_a_number_too_long_to_print(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    path = folder / "run.yaml"
    path.write_text(path.read_text().replace("block: 16", "block: 0x" + "f" * 5000))
    assert error_of(read_table, folder).startswith(f"{path}:{line_of(path.read_text(), 'block:')}: ")

"""`values`: words that integers of features and parameters stand for, in the spec and in tables."""

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    KERNEL,
    NARROW,
    WIDE,
    Row,
    error_of,
    problem,
    spec,
    write_spec,
)

from treegen.core.spec import KernelSpec
from treegen.read.spec import read_spec

SHAPES: list[Row] = [(rows, columns, kind) for rows in (1, 8, 64) for columns in (1, 8) for kind in (0, 1)]


def _read(folder: Path, values: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(values=values))).kernels[KERNEL]


@pytest.mark.parametrize("listed", [["bf16", "fp8 e4m3"], {"fp8 e4m3": 1, "bf16": 0}])
def test_words_are_a_list_or_name_their_integers(tmp_path: Path, listed: Any) -> None:
    assert dict(_read(tmp_path, {"heads": listed}).values["heads"]) == {0: "bf16", 1: "fp8 e4m3"}


def test_a_tables_words_become_the_specs_integers(tmp_path: Path) -> None:
    sections = {"values": {"heads": {"bf16": 7, "fp16": 3}, "warps": {"flat": 5, "deep": 6}}}
    words = {"heads": ["fp16", "bf16"], "warps": ["flat", "deep"]}
    configs = ({**NARROW, "warps": 1}, {**WIDE, "warps": 0})
    table = {"shapes": SHAPES, "configs": configs, "times": lambda row: [1.0, 2.0], "values": words}
    found = problem(tmp_path, {**sections, "constraints": []}, **table)
    assert sorted(set(found.column("heads").tolist())) == [3, 7]
    by_scenario = dict(zip(found.scenarios, found.column("heads").tolist(), strict=True))
    assert (by_scenario["s001"], by_scenario["s002"]) == (3, 7)
    pairs = [tuple(config.parameters) for config in found.configs]
    assert pairs == [(("block", 16), ("warps", 6)), (("block", 128), ("warps", 5))]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["bf16", "fp16"]),
        ({"heads": ["bf16"]}, ["bf16", "fp16"]),
        ({"heads": ["bf16", "fp16"]}, ["bf16"]),
    ],
)
def test_a_word_of_the_table_that_the_spec_lacks_is_refused(
    tmp_path: Path, values: Any, words: list[str]
) -> None:
    message = error_of(lambda: problem(tmp_path, {"values": values}, shapes=SHAPES, values={"heads": words}))
    assert message.startswith(f"{tmp_path / 'tables/h100'}: ") and "heads" in message

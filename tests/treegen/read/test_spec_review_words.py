"""`words` and `regimes` of the spec: phrases for reviews, plain text only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import KERNEL, error_of, spec, write_spec
from treegen_strategies import examples

from treegen.core.spec import KernelSpec, Regime
from treegen.read.spec_file import read_spec


def _read(folder: Path, **sections: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(**sections))).kernels[KERNEL]


def test_words_name_features_derived_features_and_parameters(tmp_path: Path) -> None:
    words = {"rows": "batch", "area": "rows x columns", "block": "rows"}
    assert dict(_read(tmp_path, words=words).words) == words


@pytest.mark.parametrize(
    ("text", "regime"),
    [
        ("rows <= 1", Regime("rows", None, 1)),
        ("rows < 1", Regime("rows", None, 0)),
        ("rows >= 1", Regime("rows", 1, None)),
        ("rows > 1", Regime("rows", 2, None)),
    ],
)
def test_a_regime_is_a_half_line_of_a_feature(tmp_path: Path, text: str, regime: Regime) -> None:
    assert dict(_read(tmp_path, regimes={"decode": text}).regimes) == {"decode": regime}


@pytest.mark.parametrize(("entry", "says"), [
    ("rows", "invariant 'rows' "),
    ("rows <= block", "invariant 'rows <= block' "),
    (7, "invariants: holds 7, which is not a comparison"),
    ({"holds": "rows > 0"}, "invariants: holds a mapping, which is not a comparison"),
])  # fmt: skip
def test_an_invariant_compares_features(tmp_path: Path, entry: object, says: str) -> None:
    path = write_spec(tmp_path, spec(invariants=["area >= rows", entry]))
    assert says in error_of(read_spec, path)


@examples(100)
@given(st.text(min_size=1, max_size=42))
def test_a_phrase_is_plain_text_or_refused(tmp_path_factory: pytest.TempPathFactory, phrase: str) -> None:
    path = write_spec(tmp_path_factory.mktemp("p"), spec(words={"rows": phrase}))
    plain = phrase.isascii() and len(phrase) <= 40 and not set(phrase) & set("<>|`*_[]()\\&@#\"'$\n\r\t\x1b")
    try:
        found = read_spec(path).kernels[KERNEL].words["rows"]
    except Exception as error:
        assert type(error).__name__ == "InputError"
    else:
        assert found == phrase and plain

"""`words` and `regimes` of the spec: phrases for reviews, plain text only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import KERNEL, error_of, line_of, spec, write_spec
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


REFUSED = [
    ({"words": {"nothing": "x"}}, "unknown feature or parameter 'nothing'", "nothing"),
    ({"words": {"rows": "<b>bold</b>"}}, "is not a phrase", "rows: <b>"),
    ({"words": {"rows": 5}}, "must be", "rows: 5"),
    ({"regimes": {"a|b": "rows <= 1"}}, "is not a phrase", "a|b"),
    ({"regimes": {"decode": "rows <= columns"}}, "one feature with an integer", "decode"),
    ({"regimes": {"decode": "block <= 1"}}, "unknown name 'block'", "decode"),
    ({"regimes": {"decode": "rows == 1"}}, "must be one comparison", "decode"),
    ({"hook": "os:system"}, "is not a plain name", "os:system"),
]


@pytest.mark.parametrize(("sections", "what", "at"), REFUSED, ids=[what for _, what, _ in REFUSED])
def test_what_cannot_be_is_refused_with_its_line(
    tmp_path: Path, sections: dict[str, Any], what: str, at: str
) -> None:
    path = write_spec(tmp_path, spec(**sections))
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line_of(path.read_text(), at)}: ") and what in message


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

"""Candidates: readable expressions with the values that they state."""

from __future__ import annotations

import numpy as np
import pytest

from treegen.core import expr
from treegen.suggest import candidates

KNOWN = {
    "m": (np.array([16, 100, 4096, 70]),),
    "n": (np.array([128, 64, 32, 500]),),
    "heads": (np.array([8, 16, 32, 8]),),
    "fixed": (np.array([2, 2, 2, 2]),),
}
RAW = ["m", "n"]


def _found(fresh: list[str], limits: dict[str, list[int]] | None = None) -> dict[str, str]:
    return {c.name: c.text for c in candidates(KNOWN, limits or {}, fresh, RAW)}


def test_products_quotients_remainders_and_tiles() -> None:
    found = _found(list(KNOWN))
    assert found["m_x_n"] == "m * n" and found["m_mod_16"] == "m % 16"
    assert found["m_per_heads"] == "16 * m // max(1, heads)", "its digits are kept"
    assert found["tiles_64_m_n"] == "ceil_div(m, 64) * ceil_div(n, 64)"
    assert "heads_mod_16" not in found and "tiles_64_m_heads" not in found, "heads is not raw"
    assert not any("fixed" in name or name.startswith("waves") for name in found)


def test_names_of_features_may_have_capitals() -> None:
    known = {"M": KNOWN["m"], "N": KNOWN["n"]}
    assert {"M_x_N", "M_mod_16", "tiles_64_M_N"} <= {
        c.name for c in candidates(known, {}, ["M", "N"], ["M", "N"])
    }


def test_waves_need_the_number_of_multiprocessors() -> None:
    found = _found(list(KNOWN), {"multiprocessors": [2]})
    tiles = "ceil_div(m, 64) * ceil_div(n, 64)"
    assert found["waves_64_m_n"] == f"ceil_div({tiles}, max(1, multiprocessors))"


def test_only_what_is_new_is_combined() -> None:
    found = _found(["heads"])
    assert set(found) == {
        "m_x_heads",
        "n_x_heads",
        "m_per_heads",
        "heads_per_m",
        "n_per_heads",
        "heads_per_n",
    }


def test_values_are_those_of_the_expression() -> None:
    for candidate in candidates(KNOWN, {}, list(KNOWN), RAW):
        expression = expr.parse(candidate.text, list(KNOWN))
        for row, value in enumerate(candidate.values[0]):
            assert value == expr.evaluate(expression, {n: int(v[0][row]) for n, v in KNOWN.items()})


def test_what_grows_beyond_62_bits_is_left_out() -> None:
    large = {"m": (np.array([1 << 40, 3]),), "n": (np.array([1 << 40, 5]),)}
    assert "m_x_n" not in {c.name for c in candidates(large, {}, ["m", "n"], ["m", "n"])}


@pytest.mark.parametrize("taken", ["m_x_n", "m_mod_16"])
def test_names_that_are_taken_are_left_out(taken: str) -> None:
    known = {**KNOWN, taken: (np.array([1, 2, 3, 4]),)}
    assert taken not in {c.name for c in candidates(known, {}, list(known), RAW)}

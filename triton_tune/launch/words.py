"""Values of features: integers, and words that integers stand for."""

from collections.abc import Mapping
from typing import Any

NONE = "none"  # the word of None and of an empty text
# Ordered by bits an element, so that a tree can ask for the width.
DTYPES = {
    "bool": 10,
    "float4_e2m1fn_x2": 40,
    "uint8": 80,
    "int8": 81,
    "float8_e4m3fn": 82,
    "float8_e4m3fnuz": 83,
    "float8_e5m2": 84,
    "float8_e5m2fnuz": 85,
    "float8_e8m0fnu": 86,
    "uint16": 160,
    "int16": 161,
    "float16": 162,
    "bfloat16": 163,
    "uint32": 320,
    "int32": 321,
    "float32": 322,
    "uint64": 640,
    "int64": 641,
    "float64": 642,
    "complex64": 643,
    "complex128": 1280,
}
OF_DTYPE = "_dtype"  # the feature `a_ptr_dtype` is the element type of the argument `a_ptr`


class NotAFeature(TypeError):
    """The value is neither an integer nor a word."""


def word_of(value: Any) -> str | None:
    """The word that a value is; None for an integer or a boolean. Raises NotAFeature."""
    if isinstance(value, int):
        return None
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if type(value).__name__ == "dtype":  # torch's or Triton's, neither of which is imported here
        return str(value).removeprefix("torch.")
    raise NotAFeature(f"{value!r:.60} is neither an integer, a boolean, an element type nor a word")


def code_of(value: Any, codes: Mapping[str, int]) -> int:
    """The integer of a feature's value. Raises KeyError for a word without one, and NotAFeature."""
    word = word_of(value)
    if word is None:
        return int(value)
    return codes[word] if word in codes else DTYPES[word]

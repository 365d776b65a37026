"""Values of features: integers, and words for which a table and a generated package have integers."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

NONE = "none"  # the word of None and of an empty text
# The order in which element types get integers: by width, so that a tree can ask for it.
DTYPES: tuple[str, ...] = ("bool", "float4_e2m1fn_x2")
DTYPES += ("uint8", "int8", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
DTYPES += ("float8_e8m0fnu", "uint16", "int16", "float16", "bfloat16", "uint32", "int32", "float32")
DTYPES += ("uint64", "int64", "float64", "complex64", "complex128")
OF_DTYPE = "_dtype"  # the feature `a_ptr_dtype` is the element type of the argument `a_ptr`

OF_SIZE = "_size"  # the feature `a_ptr_size0` is the size of the first dimension of the argument `a_ptr`


class NotAFeature(TypeError):
    """The value is neither an integer nor a word."""


def plain(value: Any) -> Any:
    """The value that a `tl.constexpr` holds; any other value as it is."""
    return value.value if type(value).__name__ == "constexpr" else value


def word_of(value: Any) -> str | None:
    """The word that a value is; None for an integer or a boolean. Raises NotAFeature."""
    if isinstance(value, Integral):
        return None
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return value.removeprefix("torch.")
    if type(value).__name__ == "dtype":  # torch's or Triton's, neither of which is imported here
        return str(value).removeprefix("torch.")
    raise NotAFeature(f"{value!r:.60} is neither an integer, a boolean, an element type nor a word")


def integer_of(value: Any, words: Mapping[str, int]) -> int:
    """The integer of a feature's value. Raises KeyError for an unknown word, and NotAFeature."""
    word = word_of(value)
    return int(value) if word is None else words[word]

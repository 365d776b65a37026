"""Exact sums of large integers at the speed of floating-point matrix products.

A product of float64 matrices of whole numbers is exact, in any order of summation, while every partial sum
stays below 2^53. Larger integers are split into digits for which that holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_MANTISSA = 53

Whole = npt.NDArray[Any]
"""Whole numbers: float64 if one digit is enough, else int64."""


@dataclass(frozen=True)
class Digits:
    """value[row, column] = sum over d of digit[d, row, column] * 2**(bits * d).

    digit: [digits, rows, columns] float64, whole and not negative. The sum of a column of one digit is less
    than 2^53.
    """

    digit: npt.NDArray[np.float64]
    bits: int

    def rows(self, index: npt.NDArray[Any]) -> Digits:
        return Digits(self.digit[:, index], self.bits)

    def times(self, column: int, answers: npt.NDArray[np.float64]) -> Digits:
        """[rows, questions] one column's value where a row answers yes, 0 elsewhere.

        answers: [rows, questions], 0 or 1.
        """
        return Digits(self.digit[:, :, column, None] * answers, self.bits)

    def sums(self, members: npt.NDArray[np.float64]) -> Whole:
        """[sets, columns] the sum over the rows of each set. members: [sets, rows], 0 or 1."""
        result: Whole = members @ self.digit[-1]
        for digit in self.digit[-2::-1]:
            result = (result.astype(np.int64) << self.bits) + (members @ digit).astype(np.int64)
        return result


def digits(values: npt.NDArray[np.int64]) -> Digits:
    """values: [rows, columns], not negative, with column sums below 2^63."""
    if int(values.sum(axis=0).max(initial=0)) < 1 << _MANTISSA:
        return Digits(values.astype(np.float64)[None], _MANTISSA)
    bits = _MANTISSA - len(values).bit_length()
    count = -(-int(values.max()).bit_length() // bits)
    return Digits(
        np.stack([(values >> (bits * d) & ((1 << bits) - 1)).astype(np.float64) for d in range(count)]), bits
    )

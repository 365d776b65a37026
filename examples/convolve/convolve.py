"""The convolution of a signal with a filter, in three ways that suit different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def convolve(signal: Array, kernel: Array, variant: str, block: int) -> Array:
    """All len(signal) + len(kernel) - 1 values.

    variant: `direct` sums products, `fft` transforms everything at once, and `overlap_add` transforms blocks
    of `block` values of the signal.
    """
    if variant == "direct":
        return np.convolve(signal, kernel)
    length = len(signal) + len(kernel) - 1
    if variant == "overlap_add" and block < len(signal):
        blocks = np.zeros((-(-len(signal) // block), block))
        blocks.ravel()[: len(signal)] = signal
        size = _power_of_2(block + len(kernel) - 1)
        parts = np.fft.irfft(np.fft.rfft(blocks, size) * np.fft.rfft(kernel, size), size)
        result = np.zeros(len(blocks) * block + size)
        for number, part in enumerate(parts):
            result[number * block : number * block + size] += part
        return result[:length]
    size = _power_of_2(length)
    return np.fft.irfft(np.fft.rfft(signal, size) * np.fft.rfft(kernel, size), size)[:length]


def _power_of_2(length: int) -> int:
    return 1 << (length - 1).bit_length()

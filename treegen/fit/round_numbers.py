"""Thresholds that a person can remember, well between the measured values around them."""

from __future__ import annotations

import math


def readable_between(below: int, above: int) -> int:
    """A threshold t with below <= t < above: near the geometric mean, with the smallest odd factor there.

    Launch shapes live on a log scale, so the middle half of the gap is taken on that scale; within it
    2^k beats 3 * 2^k beats 5 * 2^k.

    >>> readable_between(1, 2), readable_between(64, 128), readable_between(100, 300), readable_between(0, 1)
    (1, 96, 192, 0)
    """
    if below < 1:
        return below
    low, high = math.log(below), math.log(above)
    first = max(below, math.ceil(math.exp(low + (high - low) / 4)))
    last = min(above - 1, math.floor(math.exp(low + (high - low) * 3 / 4)))
    if first > last:
        return below
    middle = (low + high) / 2
    return min(_roundest(first, last), key=lambda t: (abs(math.log(t) - middle), t))


def _roundest(first: int, last: int) -> list[int]:
    """The integers in [first, last] (from 1 on) with the smallest odd factor."""
    power = 1 << last.bit_length()
    while last // power * power < first:
        power //= 2
    # The largest power of two with a multiple in the range: all such multiples are odd ones of it.
    odd = -(-first // power)
    multiples = [odd * power]
    while multiples[-1] % 2 == 0 and multiples[-1] // 2 >= first:
        multiples.append(multiples[-1] // 2)
    return multiples

"""Round thresholds, well between the measured values around them."""

from __future__ import annotations

import math


def round_between(below: int, above: int) -> int:
    """A threshold t with below <= t < above, near the geometric mean, with the smallest odd factor there.

    Lengths and batch sizes vary on a logarithmic scale, so the middle half of the gap is taken on that scale.
    Within it 2^k is preferred to 3 * 2^k, and that to 5 * 2^k.

    >>> round_between(1, 2), round_between(64, 128), round_between(100, 300), round_between(0, 1)
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
    """The integers in [first, last] (first >= 1) with the smallest odd factor."""
    power = 1 << last.bit_length()
    while last // power * power < first:
        power //= 2
    # `power` is the largest power of two with a multiple in the range; all its multiples there are odd ones.
    odd = -(-first // power)
    multiples = [odd * power]
    while multiples[-1] % 2 == 0 and multiples[-1] // 2 >= first:
        multiples.append(multiples[-1] // 2)
    return multiples

"""Draw shapes from ranges, so that they are not all round: `Tuning(shapes={"M": (1, 16384), "N": [...]})`."""

import math
import random
from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

from triton_tune.core.errors import TuningError

UNTUNED_SHARE = 8  # one in this many shapes is kept aside
TRIES = 50  # drawn shapes for each one that is wanted, as small ranges soon repeat themselves
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)

Shape = dict[str, Any]


def draw(
    shapes: Mapping[Any, Any], count: int, tiles: Collection[int], seed: int = 0
) -> tuple[list[Shape], list[Shape]]:
    """Shapes to tune for, and shapes kept aside to judge by, as docs/shapes.md says.

    The same for the same arguments; a larger `count` gives the same shapes and others.

    Args:
        count: the number of shapes in all; fewer if there are no more.
        tiles: sizes near whose multiples three quarters of the values lie.

    Raises TuningError about a range or list.
    """
    ranges = {name: value for name, value in shapes.items() if isinstance(value, tuple)}
    lists = {name: value for name, value in shapes.items() if name not in ranges}
    for name, values in shapes.items():
        _check(name, values)
    names = [*ranges, *constant_names(shapes)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TuningError(f"shapes: {min(twice)!r:.60} has values twice: give it one range or list")
    if len(ranges) >= len(PRIMES):
        raise TuningError(f"shapes: {len(ranges)} ranges, but {len(PRIMES) - 1} are the most")
    different = {repr(values): values for values in product(*lists.values())}
    combinations = [dict(zip(lists, values, strict=True)) for values in different.values()]
    random.Random(f"{seed}/combinations").shuffle(combinations)
    aside = len(combinations) // UNTUNED_SHARE  # of the combinations
    tuned: list[Shape] = []
    untuned: list[Shape] = []
    seen: set[str] = set()
    shift = random.Random(f"{seed}/shift")
    shifts = [shift.random() for _ in range(1 + len(ranges))]
    for index in range(count * TRIES):
        if len(seen) == count:
            break
        place, *places = ((_halton(index, p) + s) % 1 for p, s in zip(PRIMES, shifts, strict=False))
        number = int(place * len(combinations))
        values = dict(combinations[number])
        rng = random.Random(f"{seed}/{index}")
        for (name, (least, most)), at in zip(ranges.items(), places, strict=True):
            values[name] = _size(least, most, at, tiles, rng)
        shape: Shape = {}
        for name in shapes:  # in the order of the file
            shape.update(
                zip(name, values[name], strict=True) if isinstance(name, tuple) else {name: values[name]}
            )
        if repr(shape) not in seen:
            kept_aside = number < aside if aside else rng.random() < 1 / UNTUNED_SHARE
            (untuned if kept_aside else tuned).append(shape)
            seen.add(repr(shape))
    return tuned, untuned


def constant_names(shapes: Mapping[Any, Any]) -> tuple[str, ...]:
    """The arguments that have lists of values, not ranges."""
    lists = [name for name, values in shapes.items() if not isinstance(values, tuple)]
    return tuple(part for name in lists for part in (name if isinstance(name, tuple) else (name,)))


def _size(least: int, most: int, at: float, tiles: Collection[int], rng: random.Random) -> int:
    """The size at a part of the way from `least` to `most`, in logarithms; perhaps moved to a tile's edge."""
    size = math.exp(math.log(least) + at * (math.log(most + 1) - math.log(least)))
    edge = rng.choice((None, -1, 0, 1))
    fitting = [tile for tile in tiles if tile <= size]
    if edge is not None and fitting:
        tile = rng.choice(fitting)
        size = round(size / tile) * tile + edge
    return max(least, min(most, int(size)))


def _halton(index: int, base: int) -> float:
    """Number `index` of the van der Corput sequence of a base: Halton, Numerische Mathematik 2, 1960."""
    value, part = 0.0, 1.0 / base
    index += 1
    while index:
        index, digit = divmod(index, base)
        value += digit * part
        part /= base
    return value


def _check(name: Any, values: Any) -> None:
    """Raise TuningError for what is neither a range nor a list of values."""
    if isinstance(name, tuple):
        fine = bool(name) and all(isinstance(each, str) for each in name) and isinstance(values, list)
        fine = fine and all(isinstance(value, tuple) and len(value) == len(name) for value in values)
    elif isinstance(values, tuple):
        fine = [type(value) for value in values] == [int, int] and 1 <= values[0] <= values[1]
    else:
        fine = isinstance(values, list)
    if not fine or not values or not isinstance(name, str | tuple):
        expected = "a name takes integers from 1, as (1, 16384), or a list; a tuple of names a list of tuples"
        raise TuningError(f"shapes: {name!r:.60} is {values!r:.60}, but {expected}")

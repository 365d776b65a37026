"""Features as a user writes them on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from treegen.core.errors import InputError

BITS = 62  # of the longest integer
_INTEGER = re.compile(r"-?[0-9]+(_[0-9]+)*")
_MOST_CHARACTERS = 40  # of an integer within 62 bits, with any grouping
_QUOTED = 60  # characters of a wrong argument in a message


def parse_features(
    words: Sequence[str], values: Mapping[str, Mapping[int, str]] = MappingProxyType({})
) -> dict[str, int]:
    """The integers that words such as `num_seqs=8` or `max_seq_len=4_096` give to features.

    values: the spec's words for values, so that `dtype=bf16` is understood as well.

    Raises InputError for a word without `=`, a name given twice, and a value that is not an integer within
    62 bits. Names are checked by `complete`.
    """
    given: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        place = word if len(word) <= _QUOTED else word[: _QUOTED - 3] + "..."
        if not equals or not name:
            raise InputError(place or "''", "must be feature=value, such as num_seqs=8")
        known = values.get(name, {})
        text = next((str(number) for number, of_value in known.items() if of_value == text), text)
        if not _INTEGER.fullmatch(text):
            kind = f"one of {', '.join(known.values())}" if known else "an integer, such as 4096 or 4_096"
            raise InputError(place, f"the value must be {kind}")
        if len(text) > _MOST_CHARACTERS or int(text).bit_length() > BITS:
            raise InputError(place, f"the value must be an integer within {BITS} bits")
        if name in given:
            raise InputError(place, "the feature is given twice")
        given[name] = int(text)
    return given

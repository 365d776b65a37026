"""What a user asks to have explained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError

BITS = 62
"""No integer is longer."""

_LONGEST = 60
_INTEGER = re.compile(r"-?[0-9]+(_[0-9]+)*")
_MOST_CHARACTERS = 40  # of an integer within 62 bits, however it is grouped


@dataclass(frozen=True)
class Request:
    """spec, device: None where nothing was said. given: integers by feature. top: of runners-up and
    neighbours."""

    spec: Path | None
    kernel: str
    device: str | None
    given: Mapping[str, int]
    top: int


def parse(words: Sequence[str]) -> dict[str, int]:
    """The integers that words such as `num_seqs=8` or `max_seq_len=4_096` give to features.

    Raises InputError for a word without `=`, for a name given twice, and for what is no integer within 62
    bits. Whether a name is known, the table decides.
    """
    given: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        place = word if len(word) <= _LONGEST else word[: _LONGEST - 3] + "..."
        if not equals or not name:
            raise InputError(place or "''", "must be feature=value, such as num_seqs=8")
        if not _INTEGER.fullmatch(text):
            raise InputError(place, "the value must be an integer, such as 4096 or 4_096")
        if len(text) > _MOST_CHARACTERS or int(text).bit_length() > BITS:
            raise InputError(place, f"the value must be an integer within {BITS} bits")
        if name in given:
            raise InputError(place, "the feature is given twice")
        given[name] = int(text)
    return given

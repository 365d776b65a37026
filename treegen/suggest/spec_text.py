"""Write suggested features into the text of a spec, which keeps its comments and its layout."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from treegen.suggest.selection import Suggestion

_KEY = re.compile(r"( *)([A-Za-z_][A-Za-z0-9_]*):(.*)")


class UnknownLayout(ValueError):
    """The text has a layout that cannot be edited here. The message says where."""


def feature_lines(found: Sequence[Suggestion]) -> list[str]:
    """A line of the section `derived` for each feature, with what it wins as a comment."""
    return [f"{s.name}: {s.text}  # wins {math.expm1(s.wins):.2%} +- {2 * s.error:.2%}" for s in found]


def with_features(text: str, kernel: str, found: Sequence[Suggestion]) -> str:
    """The spec's text with the features under `derived`, and under `split_on` if the kernel has it.

    Raises UnknownLayout for a kernel that is not written as an indented block.
    """
    lines = text.split("\n")
    top = _block(lines, 0, len(lines), "kernels")
    start, end, _ = _block(lines, top[0] + 1, top[1], kernel)
    if (place := _find(lines, start + 1, end, "split_on")) is not None:
        first, last, indent = _block(lines, start + 1, end, "split_on")
        rest = lines[place].split("#")[0].rstrip()
        if rest.endswith("]"):
            names = "".join(f", {suggestion.name}" for suggestion in found)
            lines[place] = lines[place].replace("]", f"{names}]", 1)
        elif rest.endswith(":"):
            items = [line for line in lines[first + 1 : last] if line.lstrip().startswith("- ")]
            dash = items[0][: len(items[0]) - len(items[0].lstrip())]
            lines[last:last] = [f"{dash}- {suggestion.name}" for suggestion in found]
        else:
            raise UnknownLayout(
                f"line {place + 1}: split_on is neither a list of lines nor one line in brackets"
            )
    start, end, _ = _block(lines, top[0] + 1, len(lines), kernel)
    if (place := _find(lines, start + 1, end, "derived")) is None:
        place = _block(lines, start + 1, end, "features")[1]
        indent = _block(lines, start + 1, end, "features")[2]
        lines[place:place] = [f"{indent}derived:", *(f"{indent}  {line}" for line in feature_lines(found))]
    else:
        first, last, indent = _block(lines, start + 1, end, "derived")
        if last == first + 1:
            raise UnknownLayout(f"line {first + 1}: derived is not an indented block")
        inner = next(line for line in lines[first + 1 : last] if _KEY.fullmatch(line))
        indent = inner[: len(inner) - len(inner.lstrip())]
        lines[last:last] = [f"{indent}{line}" for line in feature_lines(found)]
    return "\n".join(lines)


def _find(lines: Sequence[str], start: int, end: int, key: str) -> int | None:
    """The line of a key of the outermost level between two lines."""
    matches = [(place, _KEY.fullmatch(lines[place])) for place in range(start, end)]
    keys = [(place, len(match[1]), match[2]) for place, match in matches if match]
    level = min((indent for _, indent, _ in keys), default=0)
    return next((place for place, indent, name in keys if name == key and indent == level), None)


def _block(lines: Sequence[str], start: int, end: int, key: str) -> tuple[int, int, str]:
    """The line of a key, the end of its block without blank lines and comments behind it, and its indent."""
    place = _find(lines, start, end, key)
    if place is None:
        raise UnknownLayout(f"{key} is not written as a key of an indented block")
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    last = place + 1
    for number in range(place + 1, end):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        deeper = len(line) - len(line.lstrip()) > len(indent)
        if not deeper and not line.startswith(f"{indent}- "):
            break
        last = number + 1
    return place, last, indent

"""How review commands print: regions and configs in the spec's words, counts, JSON and progress."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from treegen.core.problem import Problem
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells
from treegen.core.tree import Region, within
from treegen.crossval.parallel import ReportProgress

EVERYTHING = "all shapes"


def region_words(region: Region, kernel: KernelSpec) -> str:
    """A region in the spec's words: `decode, batch 17 to 64, longest context over 4,096`.

    The regimes that hold come first, then the bounds that none of them implies, in the spec's order.
    """
    order = [*kernel.features, *kernel.derived]
    regimes: list[str] = []
    ranges: list[str] = []
    for feature in sorted(region, key=lambda name: order.index(name) if name in order else len(order)):
        least, greatest = region[feature]
        for name, regime in kernel.regimes.items():
            if regime.feature != feature:
                continue
            if regime.least is not None and least is not None and least >= regime.least:
                regimes.append(name)
                least = None if least == regime.least else least
            elif regime.greatest is not None and greatest is not None and greatest <= regime.greatest:
                regimes.append(name)
                greatest = None if greatest == regime.greatest else greatest
        if bounds := bounds_words(feature, least, greatest, kernel):
            ranges.append(f"{kernel.words.get(feature, feature)} {bounds}")
    return ", ".join([*regimes, *ranges]) or EVERYTHING


def bounds_words(feature: str, least: int | None, greatest: int | None, kernel: KernelSpec) -> str:
    """`17 to 64`, `up to 64`, `over 16`, `17`, or `bf16 or fp16` for a feature whose values have words.

    Empty without a bound.
    """
    if least is None and greatest is None:
        return ""
    values = sorted(kernel.values.get(feature, {}).items())
    if words := [word for value, word in values if within(value, least, greatest)]:
        return " or ".join(words)
    if least is None:
        return f"up to {greatest:,}"
    if greatest is None:
        return f"over {least - 1:,}"
    return f"{least:,}" if least == greatest else f"{least:,} to {greatest:,}"


def value_words(name: str, value: int, kernel: KernelSpec) -> str:
    """A value of a feature or parameter: `bf16` where the spec has a word for it, else `4,096`."""
    return kernel.values.get(name, {}).get(value) or f"{value:,}"


def change_words(old: Config, new: Config, kernel: KernelSpec) -> str:
    """The variant and the parameters that differ: `split -> segmented, 1 -> 32 segments`."""
    before, after = dict(old.parameters), dict(new.parameters)
    parts = [f"{old.variant} -> {new.variant}"] if old.variant != new.variant else []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            words = kernel.values.get(name, {})
            ends = (words.get(ends.get(name, -1)) or str(ends.get(name, "none")) for ends in (before, after))
            parts.append(f"{' -> '.join(ends)} {kernel.words.get(name, name)}")
    return ", ".join(parts)


def left_out_words(problem: Problem) -> str:
    """Why scenarios have no best config: `in 4 constraints forbid the winner`; empty if none is left out."""
    winners = problem.table.cells is Cells.WINNERS
    timed = "constraints forbid the winner" if winners else "constraints forbid every config with a time"
    every, some = problem.all_forbidden, problem.left_out - problem.all_forbidden
    counts = ((every, "constraints forbid every config"), (some, timed))
    return ", ".join(f"in {count:,} {why}" for count, why in counts if count)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 leaf`, `1,080 scenarios`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(ratio: float, sign: str = "+") -> str:
    """A ratio as a change with two significant digits: +2.4%, -0.31%, +38%."""
    change = 100 * (ratio - 1)
    digits = 0 if abs(change) >= 9.95 else 1 if abs(change) >= 0.995 else 2
    return f"{change:{sign}.{digits}f}%"


def json_text(content: Mapping[str, Any]) -> str:
    """The content as indented JSON; floats get six decimals, as a logarithm's last bits differ by library."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 6)
        if isinstance(value, Mapping):
            return {key: rounded(item) for key, item in value.items()}
        return [rounded(item) for item in value] if isinstance(value, list | tuple) else value

    return json.dumps(rounded(content), indent=1, allow_nan=False) + "\n"


@contextlib.contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that shows progress in one line of a terminal, and nothing elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with console.status("reading") as status:
        yield lambda what, done, total: status.update(f"{what}: {done} of {total}")

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

    The regimes that hold come first, then the bounds of features in the spec's order.
    """
    order = [*kernel.features, *kernel.derived]
    regimes: list[str] = []
    bounds: list[str] = []
    for feature in sorted(region, key=lambda name: order.index(name) if name in order else len(order)):
        names, rest = _regimes_and_bounds(feature, *region[feature], kernel)
        regimes += names
        bounds += [f"{kernel.words.get(feature, feature)} {rest}"] if rest else []
    return ", ".join([*regimes, *bounds]) or EVERYTHING


def value_words(name: str, value: int, kernel: KernelSpec) -> str:
    """A value of a feature or parameter: `bf16` where the spec has a word for it, else `4,096`."""
    return kernel.values.get(name, {}).get(value) or f"{value:,}"


def bounds_words(feature: str, least: int | None, greatest: int | None, kernel: KernelSpec) -> str:
    """`17 to 64`, or `bf16 or fp16` for a feature whose values have words; empty without a bound."""
    words = [
        word
        for value, word in sorted(kernel.values.get(feature, {}).items())
        if within(value, least, greatest)
    ]
    return " or ".join(words) if words and (least, greatest) != (None, None) else range_words(least, greatest)


def range_words(least: int | None, greatest: int | None) -> str:
    """`17 to 64`, `up to 64`, `over 16` or `17`; empty without a bound."""
    if least is None:
        return "" if greatest is None else f"up to {greatest:,}"
    if greatest is None:
        return f"over {least - 1:,}"
    return f"{least:,}" if least == greatest else f"{least:,} to {greatest:,}"


def change_words(old: Config, new: Config, kernel: KernelSpec) -> str:
    """The variant and the parameters that differ: `split -> segmented, 1 -> 32 segments`."""
    before, after = dict(old.parameters), dict(new.parameters)
    parts = [f"{old.variant} -> {new.variant}"] if old.variant != new.variant else []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            values = (
                kernel.values.get(name, {}).get(parameters.get(name, -1)) or str(parameters.get(name, "none"))
                for parameters in (before, after)
            )
            parts.append(f"{' -> '.join(values)} {kernel.words.get(name, name)}")
    return ", ".join(parts)


def _regimes_and_bounds(
    feature: str, least: int | None, greatest: int | None, kernel: KernelSpec
) -> tuple[list[str], str]:
    """The regimes that hold all values between the bounds, and the bounds that no regime implies."""
    names = []
    for name, regime in kernel.regimes.items():
        if regime.feature != feature:
            continue
        if regime.least is not None and least is not None and least >= regime.least:
            names.append(name)
            least = None if least == regime.least else least
        elif regime.greatest is not None and greatest is not None and greatest <= regime.greatest:
            names.append(name)
            greatest = None if greatest == regime.greatest else greatest
    return names, bounds_words(feature, least, greatest, kernel)


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


_DIGITS = 6


def json_text(content: Mapping[str, Any]) -> str:
    """The content as indented JSON; floats get six decimals, as a logarithm's last bits differ by library."""
    return json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


@contextlib.contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that shows progress while the block runs; the line is gone afterwards."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with console.status("reading") as status:
        yield lambda what, done, total: status.update(f"{what}: {done} of {total}")

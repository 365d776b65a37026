"""How review commands print: values and configs in the spec's words, counts and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from treegen.core import expr
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec
from treegen.core.table import Cells


def value_words(name: str, value: int, kernel: KernelSpec) -> str:
    """A value of a feature or parameter: `bf16` where the spec has a word for it, else `4,096`."""
    return kernel.values.get(name, {}).get(value) or f"{value:,}"


def condition(when: expr.Call | None) -> str:
    """The condition of a regime or class, as the spec spells it."""
    return "otherwise" if when is None else expr.to_text(when)


def left_out_words(problem: Problem) -> str:
    """`4 of 89 scenarios are left out: constraints forbid the winner in 4`; empty if none is left out."""
    reasons = {
        "fewer than two configs were tried": problem.uncompared,
        "no config has a time": problem.without_time,
        "constraints forbid every config": problem.all_forbidden,
    }
    timed = "the winner" if problem.table.cells is Cells.WINNERS else "every config with a time"
    reasons[f"constraints forbid {timed}"] = problem.left_out - sum(reasons.values())
    words = ", ".join(f"{why} in {count:,}" for why, count in reasons.items() if count)
    scenarios = counted(len(problem.cost) + problem.left_out, "scenario")
    return f"{problem.left_out:,} of {scenarios} are left out: {words}" if words else ""


def counted(number: int, noun: str) -> str:
    """`1 row`, `1,080 scenarios`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def microseconds(time: float) -> str:
    return f"{time:,.0f} us" if time >= 100 else f"{time:.3g} us"


def percent(ratio: float, sign: str = "+") -> str:
    """A ratio as a change with two significant digits: +2.4%, -0.31%, +38%."""
    change = 100 * (ratio - 1)
    digits = 0 if abs(change) >= 9.95 else 1 if abs(change) >= 0.995 else 2
    return f"{change:{sign}.{digits}f}%"


def json_text(content: Mapping[str, Any]) -> str:
    """The content as indented JSON. Floats get six decimals, as a logarithm's last bits differ by library."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 6)
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        if isinstance(value, Mapping):
            return {key: rounded(item) for key, item in value.items()}
        return [rounded(item) for item in value] if isinstance(value, list | tuple) else value

    return json.dumps(rounded(content), indent=1, allow_nan=False) + "\n"


def plain_console(**options: Any) -> Console:
    """A console that takes text as it is: none of it is markup, an emoji or worth a colour."""
    # A width without a height has no effect on a terminal that can do little (TERM=dumb).
    return Console(height=25, highlight=False, markup=False, emoji=False, **options)


def grid(rows: Sequence[Mapping[str, str]], left: Sequence[str], **options: Any) -> Grid:
    """Rows by column as a table; columns but those in `left` are aligned right."""
    found = Grid(**options)
    for name in rows[0]:
        found.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        found.add_row(*row.values())
    return found

"""How a study reads: figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Config, KernelSpec, Regime
from treegen.core.table import Cells, Table
from treegen.crossval.heldout import Quality
from treegen.review.report.study import Study

NOTHING = "-"
_TIMES = "\N{MULTIPLICATION SIGN}"
WINNERS_ONLY = (
    "The table behind this tree keeps only the fastest config of each scenario: what another config would "
    "have taken is not known, so this section tells how often the tree launches the winner, and no slowdown."
)
_PROVENANCE = {"driver": "driver", "torch": "torch", "triton": "Triton", "source_hash": "kernel source"}
_ORIGIN = {"published_by": "published by", "licence": "licence", "tool": "tool"}


def ratio(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}{_TIMES}"


def percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def microseconds(time: float) -> str:
    """Three significant digits, thousands set apart."""
    return f"{time:,.0f}" if time >= 1000 else f"{time:.3g}" if time >= 1 else f"{time:.3f}"


def config_words(config: Config, kernel: KernelSpec) -> str:
    """`qblock: 64 rows, 32 keys a step, 4 warps`."""
    parts = [f"{value} {kernel.words.get(name, name)}" for name, value in kernel.non_defaults(config)]
    return f"{config.variant}: {', '.join(parts)}" if parts else config.variant


def scenario_words(problem: Problem, row: int) -> str:
    """The regimes that a scenario is in, then those raw features that are not the same everywhere."""
    kernel, values = problem.kernel, dict(zip(problem.names, problem.features[row].tolist(), strict=True))
    parts = [name for name, regime in kernel.regimes.items() if _holds(regime, values)]
    for name in kernel.features:
        if name in values and int(problem.column(name).min()) != int(problem.column(name).max()):
            parts.append(f"{kernel.words.get(name, name)} {values[name]:,}")
    return ", ".join(parts)


def _holds(regime: Regime, values: Mapping[str, int]) -> bool:
    value = values.get(regime.feature)
    return (
        value is not None
        and (regime.least is None or value >= regime.least)
        and (regime.greatest is None or value <= regime.greatest)
    )


def headline(study: Study) -> str:
    found = study.ours.quality
    if found.slowdown is None:
        return (
            f"Launches the measured winner in {percent(found.agreement, 1)} of {found.choices:,} scenarios."
        )
    if found.worst is None:
        return f"None of its choices in {found.choices:,} scenarios was timed."
    return (
        f"Takes {ratio(found.slowdown)} the best measured time on average over {found.choices:,} scenarios; "
        f"95% of them stay within {ratio(found.percentile95, 2)}, the worst takes {ratio(found.worst, 2)}."
    )


def without_time(found: Quality) -> str:
    """What the figures do not hold; empty where they hold everything."""
    parts = []
    if found.unmeasured:
        parts.append(f"{found.unmeasured:,} not timed there")
    if found.failed:
        parts.append(f"{found.failed:,} failed or against a constraint")
    return ", ".join(parts)


def noise_sentence(study: Study) -> str:
    """How well the table knows what it says."""
    if study.noise.cell == 0 and study.floor is None:
        return "No cell was timed twice, so nothing is known of its noise."
    deviation = percent(study.noise.cell / UNIT, 2)
    cell = f"One measurement of a cell is uncertain by {deviation} (standard deviation)"
    if study.floor is None:
        return f"{cell}."
    return (
        f"{cell}. Whoever chooses by one repeat and is judged by the others loses "
        f"{percent(study.floor.slowdown - 1, 2)}, the noise floor: what is closer than that is equal."
    )


def tree_sentence(study: Study, launched: int) -> str:
    """How large the tree is."""
    leaves, depth = study.tree.leaves, study.tree.depth
    size = f"{_counted(leaves, 'leaf', 'leaves')} and a depth of {depth}, guards included"
    return f"The tree has {size}; it launches {_counted(launched, 'config')}."


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def table_sentence(study: Study) -> str:
    """What was measured, and where this table stands in for another GPU."""
    source, problem = study.source, study.problem
    configs = f"{source.configs:,} configs"
    tried = _mapping(problem.table.provenance, "origin").get("evaluated_configs")
    if isinstance(tried, int):
        configs = f"{source.configs:,} configs that won somewhere, of {tried:,} tried"
    left = (
        f" ({source.left_out:,} more left out, as their best config breaks a constraint)"
        if source.left_out
        else ""
    )
    return (
        f"{source.scenarios:,} scenarios{left} {_TIMES} {configs}, measured on {problem.table.device_name}."
    )


def stands_in(study: Study) -> bool:
    """Whether the table was measured on another GPU than the module is for."""
    name = study.problem.table.device_name
    return not any(
        name == own or name.startswith((f"{own} ", f"{own}-")) for own in study.problem.device.names
    )


def origin(table: Table) -> list[tuple[str, str]]:
    """Where and when a table was made: what it is called, what it says. All of it is the table's own text."""
    told = table.provenance
    rows = [("date", str(told["date"]))] if "date" in told else []
    rows += [(word, str(told[key])) for key, word in _PROVENANCE.items() if key in told]
    rows += [
        (word, str(value)) for key, word in _ORIGIN.items() if (value := _mapping(told, "origin").get(key))
    ]
    return [*rows, ("timing", _text(told["timing"]))] if "timing" in told else rows


def share_timed(study: Study) -> str:
    """How much of the table is known."""
    table = study.problem.table
    cells = study.times.size
    timed = int((study.times < float("inf")).sum())
    failed = int((study.times == float("inf")).sum())
    if table.cells is Cells.WINNERS:
        return f"{timed:,} of {cells:,} cells hold a time: that of each scenario's winner."
    text = f"{timed:,} of {cells:,} cells were timed ({percent(timed / cells, 1)})"
    return f"{text}, {failed:,} failed." if failed else f"{text}."


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _text(value: Any) -> str:
    return ", ".join(_pairs(value)) if isinstance(value, Mapping) else str(value)


def _pairs(value: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key} {inner}" for key, inner in value.items())

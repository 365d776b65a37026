"""The figures and sentences of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Config, KernelSpec, is_model
from treegen.core.table import Table
from treegen.core.tree import within
from treegen.crossval.heldout import Quality
from treegen.review.printing import counted, value_words
from treegen.review.report.study import ModuleStudy

NOTHING = "-"
_TIMES = "\N{MULTIPLICATION SIGN}"
WINNERS_ONLY = (
    "The table behind this tree holds only the fastest config of each scenario. The other configs' times are "
    "not known, so this section says how often the tree launches the winner, and no slowdown."
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
    parts = [
        f"{kernel.values.get(name, {}).get(value, value)} {kernel.words.get(name, name)}"
        for name, value in kernel.non_defaults(config)
    ]
    return f"{config.variant}: {', '.join(parts)}" if parts else config.variant


def scenario_words(problem: Problem, row: int) -> str:
    """The regimes that a scenario is in, then its raw features, without those that never vary."""
    kernel, values = problem.kernel, dict(zip(problem.names, problem.features[row].tolist(), strict=True))
    regimes = ((name, r) for name, r in kernel.regimes.items() if r.feature in values)
    parts = [name for name, r in regimes if within(values[r.feature], r.least, r.greatest)]
    for name in kernel.features:
        if name in values and int(problem.column(name).min()) != int(problem.column(name).max()):
            parts.append(f"{kernel.words.get(name, name)} {value_words(name, values[name], kernel)}")
    return ", ".join(parts)


def headline(study: ModuleStudy) -> str:
    ours = study.ours.quality
    if ours.slowdown is None:
        share = percent(ours.agreement, 1)
        return f"Launches the measured winner in {share} of {ours.choices:,} scenarios."
    if ours.worst is None:
        return f"None of its choices in {ours.choices:,} scenarios was timed."
    return (
        f"Takes {ratio(ours.slowdown)} the best measured time on average over {ours.choices:,} scenarios; "
        f"95% of them stay within {ratio(ours.percentile95, 2)}, the worst takes {ratio(ours.worst, 2)}."
    )


def without_time(quality: Quality) -> str:
    """Return how many choices have no time; empty where all have one."""
    parts = [f"{quality.unmeasured:,} not timed there"] if quality.unmeasured else []
    parts += [f"{quality.failed:,} failed or against a constraint"] if quality.failed else []
    return ", ".join(parts)


def noise_sentence(study: ModuleStudy) -> str:
    """Return how precise the table's times are."""
    if study.noise.cell == 0 and study.floor is None:
        return "No cell was timed twice, so its noise is not known."
    deviation = percent(study.noise.cell / UNIT, 2)
    cell = f"One measurement of a cell is uncertain by {deviation} (standard deviation)."
    if study.floor is None:
        return cell
    loss = percent(study.floor.slowdown - 1, 2)
    return (
        f"{cell} The noise floor is {loss}: the fastest config of one repeat is slower by that in the other "
        "repeats. Configs that differ by less are equal."
    )


def tree_sentence(study: ModuleStudy, launched: int) -> str:
    """Return how large the tree is."""
    leaves = counted(study.tree.leaves, "leaf", "leaves")
    size = f"{leaves} and a depth of {study.tree.depth}, guards included"
    return f"The tree has {size}; it launches {counted(launched, 'config')}."


def table_sentence(study: ModuleStudy) -> str:
    """Return how much was measured, and on which GPU."""
    source, table = study.source, study.problem.table
    configs = f"{source.configs:,} configs"
    tried = _mapping(table.provenance, "origin").get("evaluated_configs")
    if isinstance(tried, int):
        configs = f"{configs} that won somewhere, of {tried:,} tried"
    left = ""
    if source.left_out:
        left = f" ({source.left_out:,} more left out: {source.why_left_out})"
    return f"{source.scenarios:,} scenarios{left} {_TIMES} {configs}, measured on {table.device_name}."


def stands_in(study: ModuleStudy) -> bool:
    """Return whether the table was measured on another GPU than the module is for."""
    measured, names = study.problem.table.device_name, study.problem.device.names
    return not any(is_model(measured, name) for name in names)


def origin(table: Table) -> list[tuple[str, str]]:
    """Where and when a table was made, as names and the table's own texts."""
    run = table.provenance
    rows = [("date", run["date"])] if "date" in run else []
    rows += [(word, run[key]) for key, word in _PROVENANCE.items() if key in run]
    made = _mapping(run, "origin")
    rows += [(word, made[key]) for key, word in _ORIGIN.items() if made.get(key)]
    if "timing" in run:
        timing = run["timing"]
        listed = isinstance(timing, Mapping)
        rows.append(("timing", ", ".join(f"{k} {v}" for k, v in timing.items()) if listed else timing))
    return [(word, str(value)) for word, value in rows]


def share_timed(study: ModuleStudy) -> str:
    """Return how many cells hold a time."""
    cells = study.times.size
    timed = int((study.times < float("inf")).sum())
    failed = int((study.times == float("inf")).sum())
    if not study.knows_times:
        return f"{timed:,} of {cells:,} cells hold a time: that of each scenario's winner."
    text = f"{timed:,} of {cells:,} cells were timed ({percent(timed / cells, 1)})"
    return f"{text}, {failed:,} failed." if failed else f"{text}."


def measured_values(problem: Problem, name: str) -> list[int]:
    """The different values of a feature, ascending."""
    return [int(value) for value in np.unique(problem.column(name))]


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}

"""What `benchmarks.trees.tuned` finds; tuned.json holds just this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.trees.judge import Judged, Summary
from benchmarks.trees.judge_pairs import Crossing, Pair
from benchmarks.trees.judge_search import Optimism, Replayed

CHOICES = {
    "chosen": "chosen",
    "vllm": "vLLM's fixed choice",
    "single": "single best",
    "fallback": "fallback",
}


@dataclass(frozen=True)
class Verdict:
    """One table's judgement. `figures`: by group of scenarios and choice. `single`: the single best config
    of the device's tuned table, which stands for one config for all shapes in every set."""

    device: str
    set: str
    folder: str
    run: Mapping[str, Any]
    single: str
    gap_closed: float | None
    optimism: Optimism | None
    figures: Mapping[str, Mapping[str, Summary]]
    scenarios: Sequence[Judged]


@dataclass(frozen=True)
class Devices:
    """Two devices in scenarios of one set: their best configs, and each one's module on both."""

    first: str
    second: str
    set: str
    best: Pair
    on_first: Crossing
    on_second: Crossing


@dataclass(frozen=True)
class Noise:
    """Two runs on one device."""

    device: str
    timing: tuple[str, str]
    pair: Pair


@dataclass(frozen=True)
class Search:
    """What a device's tuning run timed, and what it missed by the sweep of scenarios that were not tuned.

    `portfolio`: the configs timed everywhere, whose best loses `lost`.
    """

    device: str
    seconds: float
    cells_measured: int
    cells_possible: int
    portfolio: Sequence[str]
    lost: Summary
    replayed: Sequence[Replayed]


@dataclass(frozen=True)
class Results:
    tables: Sequence[Verdict]
    devices: Sequence[Devices]
    noise: Sequence[Noise]
    searches: Sequence[Search]

"""What an evaluation found, as data. Everything that is shown or written comes from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.core.table import Cells
from treegen.review.eval.compare import Row
from treegen.review.eval.curves import Curve
from treegen.review.eval.noise import Noise
from treegen.review.eval.stability import Bootstrap, Refits


@dataclass(frozen=True)
class Source:
    """A table as it was judged. path: as a person in the spec's folder would write it. sha256: of its files.
    scenarios: those in which there is something to choose; left_out: the others."""

    path: str
    sha256: Mapping[str, str]
    cells: Cells
    scenarios: int
    left_out: int
    configs: int


@dataclass(frozen=True)
class Against:
    """The tree of a whole table, judged by another. refits: None where they share no scenario, so that all
    of the other's are held out."""

    source: Source
    rows: tuple[Row, ...]
    refits: Refits | None


@dataclass(frozen=True)
class Assessment:
    """Everything about one kernel on one device. curves: empty where they were not asked for."""

    kernel: str
    device: str
    source: Source
    rows: tuple[Row, ...]
    noise: Noise | None
    curves: tuple[Curve, ...]
    bootstrap: Bootstrap
    against: tuple[Against, ...]

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.device}"


@dataclass(frozen=True)
class Report:
    """command: what made it, ready for a shell. versions: of what figures depend on; helion only where it is
    installed."""

    command: str
    versions: Mapping[str, str]
    folds: int
    repeats: int
    assessments: tuple[Assessment, ...]

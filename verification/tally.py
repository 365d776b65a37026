"""What a run of `verify` found, as a table."""

from collections import Counter
from dataclasses import dataclass, field

from attn_kernels import Config
from attn_kernels.measure.checking import Check
from verification.cases import Case

SHOWN = 20


@dataclass
class Group:
    """The worst of several checks."""

    name: str
    launches: int = 0
    failures: int = 0
    worst: Check | None = None
    worst_case: str = ""
    worst_head: float = 0.0

    def add(self, found: Check, where: str) -> None:
        self.launches += 1
        self.failures += not found.ok
        if not found.worst_head <= self.worst_head:
            self.worst_head = found.worst_head
        if self.worst is None or not found.error <= self.worst.error:
            self.worst, self.worst_case = found, where

    def line(self) -> str:
        error, limit = (self.worst.error, self.worst.tolerance) if self.worst else (float("nan"),) * 2
        verdict = f"{self.failures} WRONG" if self.failures else "ok"
        figures = f"{self.launches:>6} {error:>8.1e} {limit:>6.0e} {self.worst_head:>10.1e}"
        return f"{self.name:32} {figures}  {verdict:8} {self.worst_case}"


def kind_of(case: Case) -> str:
    """`bf16` or `fp16`, and whether the cache is fp8."""
    short = {"bfloat16": "bf16", "float16": "fp16"}[case.batch.dtype_name]
    return f"{short}, fp8 cache" if case.features.fp8 else short


@dataclass
class Tally:
    """Rows by variant and type, by feature and by part; every launch counts in one row of each at least."""

    rows: dict[str, Group] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    chosen: Counter[str] = field(default_factory=Counter)

    def names(self, case: Case, config: Config | None) -> list[str]:
        variant = config.variant if config else "heuristic"
        if config and config.descriptors:
            variant += " by descriptors"
        features = [f"with {name}" for name in case.features.names if name != "none"]
        return [f"{variant}, {kind_of(case)}", *features, f"part {case.part}"]

    def row(self, name: str) -> Group:
        return self.rows.setdefault(name, Group(name))

    def add(self, case: Case, config: Config, found: Check) -> None:
        for name in self.names(case, config):
            self.row(name).add(found, f"{case.part} {case.seed} {config}")
        if not found.ok:
            self.failures.append(f"{case} {config}: {found}")

    def fail(self, case: Case, config: Config | None, message: str) -> None:
        """A launch that raised."""
        self.failures.append(f"{case} {config or 'by the heuristic'}: {message}")
        for name in self.names(case, config):
            self.row(name).launches += 1
            self.row(name).failures += 1

    @property
    def launches(self) -> int:
        return sum(group.launches for name, group in self.rows.items() if name.startswith("part "))

    def lines(self) -> list[str]:
        titles = f"{'runs':>6} {'error':>8} {'limit':>6} {'worst head':>10}"
        lines = [f"{'':32} {titles}  {'verdict':8} worst batch"]
        order = ("part ", "with ")
        by_table = sorted(self.rows.values(), key=lambda group: group.name)
        tables = [[group for group in by_table if not group.name.startswith(order)]]
        tables += [[group for group in by_table if group.name.startswith(start)] for start in reversed(order)]
        for groups in tables:
            lines += [*(group.line() for group in groups), ""]
        if self.left_out:
            lines.append("left out: " + ", ".join(f"{name} ({n})" for name, n in self.left_out.items()))
        if self.chosen:
            lines.append(
                "chosen by the heuristic: "
                + ", ".join(f"{name} ({n})" for name, n in self.chosen.most_common())
            )
        lines += [f"FAILED {failure}" for failure in self.failures[:SHOWN]]
        if len(self.failures) > SHOWN:
            lines.append(f"... and {len(self.failures) - SHOWN} more failures")
        return lines

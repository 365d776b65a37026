"""The table of a `verify` run: launches, failures and largest errors by variant, feature and part."""

from collections import Counter
from dataclasses import dataclass, field

from attn_kernels import Config
from attn_kernels.measure.checking import Check
from verification.cases import PartConfigs, VerifyCase

SHOWN = 20  # failures that are printed


@dataclass
class TallyRow:
    """The launches of one row and the largest error among them."""

    launches: int = 0
    failures: int = 0
    worst: Check | None = None
    worst_launch: str = ""
    worst_head: float = 0.0

    def add(self, verdict: Check, launch: str) -> None:
        """Count a checked launch; NaN is the largest error."""
        self.launches += 1
        self.failures += not verdict.ok
        if not verdict.worst_head <= self.worst_head:
            self.worst_head = verdict.worst_head
        if self.worst is None or not verdict.error <= self.worst.error:
            self.worst, self.worst_launch = verdict, launch

    def __str__(self) -> str:
        error, limit = (self.worst.error, self.worst.tolerance) if self.worst else (float("nan"),) * 2
        verdict = f"{self.failures} WRONG" if self.failures else "ok"
        figures = f"{self.launches:>6} {error:>8.1e} {limit:>6.0e} {self.worst_head:>10.1e}"
        return f"{figures}  {verdict:8} {self.worst_launch}"


@dataclass
class Tally:
    """The results of a run. Each launch counts in one row of its variant, its part and each feature."""

    rows: dict[str, TallyRow] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    chosen: Counter[str] = field(default_factory=Counter)  # configs by the generated module

    def rows_of(self, case: VerifyCase, config: Config | PartConfigs | None) -> list[TallyRow]:
        """Return the rows in which a launch counts; `config` is None if choosing or planning failed."""
        if isinstance(config, PartConfigs):
            variant = "two variants, in parts"
        else:
            variant = config.variant if config else "heuristic"
            if config and config.descriptors:
                variant += " by descriptors"
        types = {"bfloat16": "bf16", "float16": "fp16"}[case.batch.dtype_name]
        types += ", fp8 cache" * case.features.fp8
        features = [f"with {name}" for name in case.features.names if name != "none"]
        names = (f"{variant}, {types}", *features, f"part {case.part}")
        return [self.rows.setdefault(name, TallyRow()) for name in names]

    def add(self, case: VerifyCase, config: Config | PartConfigs, verdict: Check) -> None:
        """Count a checked launch."""
        for row in self.rows_of(case, config):
            row.add(verdict, f"{case.part} {case.seed} {config}")
        if not verdict.ok:
            self.failures.append(f"{case} {config}: {verdict}")

    def fail(self, case: VerifyCase, config: Config | PartConfigs | None, message: str) -> None:
        """Count a launch that raised."""
        self.failures.append(f"{case} {config or 'chosen config'}: {message}")
        for row in self.rows_of(case, config):
            row.launches += 1
            row.failures += 1

    @property
    def launches(self) -> int:
        return sum(row.launches for name, row in self.rows.items() if name.startswith("part "))

    def lines(self) -> list[str]:
        """Return three tables, of variants, features and parts; then what was left out, chosen and failed."""
        titles = f"{'runs':>6} {'error':>8} {'limit':>6} {'worst head':>10}"
        lines = [f"{'':32} {titles}  {'verdict':8} worst batch"]
        tables: dict[str, list[str]] = {"": [], "with": [], "part": []}
        for name, row in sorted(self.rows.items()):
            first_word = name.split()[0]
            tables[first_word if first_word in tables else ""].append(f"{name:32} {row}")
        for table in tables.values():
            lines += [*table, ""]
        if self.left_out:
            lines.append("left out: " + ", ".join(f"{name} ({n})" for name, n in self.left_out.items()))
        if self.chosen:
            counts = ", ".join(f"{name} ({n})" for name, n in self.chosen.most_common())
            lines.append(f"chosen by the generated module: {counts}")
        lines += [f"FAILED {failure}" for failure in self.failures[:SHOWN]]
        if len(self.failures) > SHOWN:
            lines.append(f"... and {len(self.failures) - SHOWN} more failures")
        return lines

"""What a check found, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treegen.core.errors import one_line
from treegen.review.printing import counted


@dataclass(frozen=True)
class CheckReport:
    seen: str = ""  # what the check looked at, in words
    problems: tuple[str, ...] = ()  # a line each
    not_run: tuple[str, ...] = ()  # why the check, or a part of it, could not run
    notes: tuple[str, ...] = ()  # what a reader should know and no build can mend, a line each


def lines(name: str, report: CheckReport) -> Iterator[str]:
    """A check's line, then its problems and notes, indented."""
    parts = [report.seen] if report.seen else []
    if report.problems:
        parts.append(counted(len(report.problems), "problem"))
    parts += [f"not run: {why}" for why in report.not_run]
    yield one_line(f"{name:<12} {'; '.join(parts)}")
    yield from (one_line(f"    {problem}") for problem in report.problems)
    yield from (one_line(f"    note: {note}") for note in report.notes)


def verdict(reports: Mapping[str, CheckReport], skipped: Sequence[str]) -> str:
    """The last line. skipped: the checks that the user left out."""
    problems = sum(len(report.problems) for report in reports.values())
    incomplete = [name for name, report in reports.items() if report.not_run]
    parts = [counted(problems, "problem") if problems else "no problem"]
    parts += [f"not all was run of {', '.join(incomplete)}"] if incomplete else []
    parts += [f"skipped {', '.join(dict.fromkeys(skipped))}"] if skipped else []
    return "; ".join(parts)

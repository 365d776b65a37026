"""What a check has to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treegen.core.errors import one_line


@dataclass(frozen=True)
class Report:
    """looked_at: what the check saw, in words. problems: a line each. left_out: why it did not look, at all
    if it saw nothing."""

    looked_at: str = ""
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 leaf`, `1,080 scenarios`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def joined(reports: Sequence[Report]) -> Report:
    """Several reports as one."""
    return Report(
        "; ".join(report.looked_at for report in reports if report.looked_at),
        tuple(problem for report in reports for problem in report.problems),
        tuple(why for report in reports for why in report.left_out),
    )


def lines(name: str, report: Report) -> Iterator[str]:
    """A check's line, with its problems indented below."""
    told = [report.looked_at] if report.looked_at else []
    if report.problems:
        told.append(count(len(report.problems), "problem"))
    told += [f"not run: {why}" for why in report.left_out]
    yield one_line(f"{name:<12} {'; '.join(told)}")
    yield from (one_line(f"    {problem}") for problem in report.problems)


def verdict(reports: Mapping[str, Report], skipped: Sequence[str]) -> str:
    """The last line. skipped: checks that the user did not want."""
    problems = sum(len(report.problems) for report in reports.values())
    incomplete = [name for name, report in reports.items() if report.left_out]
    told = [count(problems, "problem") if problems else "no problem"]
    told += [f"not all was run of {', '.join(incomplete)}"] if incomplete else []
    told += [f"skipped {', '.join(dict.fromkeys(skipped))}"] if skipped else []
    return "; ".join(told)

"""The lines that a comparison prints, one a batch."""

from collections import Counter
from collections.abc import Sequence

from benchmarks.common.report import SKIPPED, Result, ratio

SDPA = "sdpa"


def figure(value: float | None, spec: str, missing: str = "-") -> str:
    return missing if value is None else format(value, spec)


def time_text(result: Result | None) -> str:
    """Four significant digits at most: 22.8, 466.1, 7346; `!` marks a wrong result."""
    if result is None or result.time_us is None:
        return "-"
    text = f"{result.time_us:.1f}" if result.time_us < 1000 else f"{result.time_us:.0f}"
    return text if result.ok else text + "!"


def rate_text(result: Result) -> str:
    """What bounds the kind: bytes a second in decode, operations a second in prefill."""
    if result.kind in ("prefill", "chunk"):
        return f"{figure(result.tflops, '.0f')} TF/s"
    return f"{figure(result.gbps, '.0f')} GB/s"


def header(rivals: Sequence[str], sweep: bool) -> str:
    """The table's head; `R/x` is rival R's time over that of x, above 1 where we are faster."""
    text = f"{'batch':23} {'heads':8} {'ours us':>8}"
    text += f" {'best us':>8} {'config of best':31}" if sweep else f" {'config':31}"
    text += f" {'rate':>9} {'roof':>5}" + "".join(f" {rival + ' us':>8}" for rival in rivals)
    for mine in ("best", "ours") if sweep else ("ours",):
        text += " |" + "".join(f" {f'{rival}/{mine[0]}':>6}" for rival in rivals)
    return text


def line(results: dict[str, Result], rivals: Sequence[str], sweep: bool) -> str:
    """One batch's line; rate, share of the roofline and config are those of the fastest of ours."""
    ours = results["ours"]
    best = results.get("best", ours)
    text = f"{ours.batch:23} {ours.layout:8} {time_text(ours):>8}"
    text += (f" {time_text(best):>8}" if sweep else "") + f" {best.config:31}"
    text += f" {rate_text(best):>9} {figure(best.roofline_share, '.0%'):>5}"
    text += "".join(f" {time_text(results.get(rival)):>8}" for rival in rivals)
    for mine in ("best", "ours") if sweep else ("ours",):
        text += " |" + "".join(f" {figure(ratio(results, rival, mine), '.2f'):>6}" for rival in rivals)
    return text + "".join(f"\n    {note}" for note in notes(results))


def notes(results: dict[str, Result]) -> list[str]:
    """What the figures do not say: a page size, one KV set only, what failed."""
    ours = results["ours"]
    found = [] if ours.block_size == 16 else [f"pages of {ours.block_size}"]
    if ours.kv_sets < 2:
        found.append("one KV set: cache not cold")
    for name, result in results.items():
        quiet = name == SDPA and result.time_us is None  # it does not do most batches
        if result.note and not quiet and not result.note.startswith(SKIPPED):
            found.append(f"{name}: {result.note}")
        if result.rejected:
            found.append(f"{name} REJECTED {result.rejected}")
    return found


def skipped(batches: Sequence[dict[str, Result]]) -> list[str]:
    """Which variants were not tried, why, and on how many batches."""
    counts = Counter(
        f"{name} {result.note}"
        for results in batches
        for name, result in results.items()
        if result.note.startswith(SKIPPED)
    )
    return [f"{reason}: {count} batches" for reason, count in counts.items()]

"""Tables of a comparison: a line for each batch, then geometric means over batches."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks.attention.records import FASTEST_RIVAL, RIVALS, SKIPPED, ComparisonRecord, Records, time_ratio
from benchmarks.common.table import figure, geomean

PARTS_COLUMNS = ("fa3", "one call", "decodes", "prompts", "series", "parts")  # of a mixed batch
PARTS_RATIOS = ("FA3/ours", "ours/longer", "ours/series", "ours/one")


def time_text(record: ComparisonRecord | None) -> str:
    """Return the time, such as 22.8, 466.1 or 7346; `!` marks a wrong result."""
    if record is None or record.time_us is None:
        return "-"
    text = f"{record.time_us:.1f}" if record.time_us < 1000 else f"{record.time_us:.0f}"
    return text if record.ok else text + "!"


def rate_text(record: ComparisonRecord) -> str:
    """Return operations a second for prefill, else bytes a second."""
    if record.kind in ("prefill", "chunk"):
        return f"{figure(record.tflops, '.0f')} TF/s"
    return f"{figure(record.gbps, '.0f')} GB/s"


def header(rivals: Sequence[str], sweep: bool) -> str:
    """Return the titles of `batch_line`; `R/b` and `R/o` are rival R's time over that of best and of ours.

    The line of a batch ends with the name of the fastest rival, if FASTEST_RIVAL is among the `rivals`.
    """
    text = f"{'batch':23} {'heads':8} {'ours us':>8}"
    text += f" {'best us':>8} {'config of best':31}" if sweep else f" {'config':31}"
    text += f" {'rate':>9} {'roof':>5}" + "".join(f" {rival + ' us':>8}" for rival in rivals)
    for mine in ("best", "ours") if sweep else ("ours",):
        text += " |" + "".join(f" {f'{rival}/{mine[0]}':>6}" for rival in rivals)
    return text


def batch_line(records: Records, rivals: Sequence[str], sweep: bool) -> str:
    """Return the line of a batch and its notes; rate, roofline share and config are those of best."""
    ours = records["ours"]
    best = records.get("best", ours)
    text = f"{ours.batch:23} {ours.layout:8} {time_text(ours):>8}"
    text += (f" {time_text(best):>8}" if sweep else "") + f" {best.config:31}"
    text += f" {rate_text(best):>9} {figure(best.roofline_share, '.0%'):>5}"
    text += "".join(f" {time_text(records.get(rival)):>8}" for rival in rivals)
    for mine in ("best", "ours") if sweep else ("ours",):
        text += " |" + "".join(f" {figure(time_ratio(records, rival, mine), '.2f'):>6}" for rival in rivals)
    if FASTEST_RIVAL in rivals and FASTEST_RIVAL in records:
        text += f" {records[FASTEST_RIVAL].config}"
    return text + "".join(f"\n    {note}" for note in notes(records))


def notes(records: Records) -> list[str]:
    """Return what the figures do not show: an unusual page size, a warm cache, failures."""
    ours = records["ours"]
    lines = [] if ours.block_size == 16 else [f"pages of {ours.block_size}"]
    if ours.kv_sets < 2:
        lines.append("one KV set: cache not cold")
    for name, record in records.items():
        unsuited = name in RIVALS and not record.note.startswith(("WRONG", "FAILED"))  # so are most batches
        if record.note and not unsuited and not record.note.startswith(SKIPPED):
            lines.append(f"{name}: {record.note}")
        if record.rejected:
            lines.append(f"{name} REJECTED {record.rejected}")
    return lines


def skipped_variants(batches: Sequence[Records]) -> list[str]:
    """Return a line for each variant that was not tried: the reason and the number of batches."""
    counts = Counter(
        f"{name} {record.note}"
        for records in batches
        for name, record in records.items()
        if record.note.startswith(SKIPPED)
    )
    return [f"{reason}: {count} batches" for reason, count in counts.items()]


def mean_table(title: str, groups: dict[str, list[Records]], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each group: the geometric mean time ratio of each pair, and of how many batches."""
    titles = [f"{above}/{below}" for above, below in pairs]
    rows = {"": titles}
    for group, members in groups.items():
        rows[group] = cells = []
        for above, below in pairs:
            ratios = [ratio for records in members if (ratio := time_ratio(records, above, below))]
            mean = geomean(ratios)
            cells.append(f"{mean:.3f} ({len(ratios)})" if mean else "-")
    widths = [max(12, len(text)) for text in titles]
    lines = [
        f"{group:18}" + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for group, cells in rows.items()
    ]
    return ["", title, *lines]


def parts_header() -> str:
    """Return the titles of `parts_line`."""
    names = "".join(f" {name:>8}" for name in PARTS_COLUMNS)
    return f"{'batch':23} {'heads':8}{names} {'limit':>7} |" + "".join(
        f" {name:>11}" for name in PARTS_RATIOS
    )


def parts_line(records: Records, limit_us: float) -> str:
    """Return the times of a mixed batch in microseconds, and the ratios of `parts_ratios`."""
    batch = records["one call"]
    text = f"{batch.batch:23} {batch.layout:8}"
    text += "".join(f" {time_text(records.get(name)):>8}" for name in PARTS_COLUMNS) + f" {limit_us:7.1f} |"
    text += "".join(f" {figure(ratio, '.2f'):>11}" for ratio in parts_ratios(records).values())
    failed = [name for name, record in records.items() if record.note.startswith(("WRONG", "FAILED"))]
    failures = [f"\n    {name}: {records[name].note}" for name in failed]
    return text + "".join(failures)


def parts_ratios(records: Records) -> dict[str, float | None]:
    """Return each of PARTS_RATIOS; None unless both times are known and their results right.

    Ours is the plan with `parts`, or one call where the package has no such plans.
    """
    ours = "parts" if time_ratio(records, "parts", "parts") else "one call"
    alone = ("decodes", "prompts")
    longer = max(alone, key=lambda name: records[name].time_us or 0.0)
    both_known = all(time_ratio(records, name, name) for name in alone)
    return dict(
        zip(
            PARTS_RATIOS,
            (
                time_ratio(records, "fa3", ours),
                time_ratio(records, ours, longer) if both_known else None,
                time_ratio(records, ours, "series"),
                time_ratio(records, ours, "one call"),
            ),
            strict=True,
        )
    )


def parts_means(batches: Sequence[Records]) -> list[str]:
    """Return the geometric mean and the worst of each ratio; FA3 / ours is worst where it is least."""
    columns = {name: [parts_ratios(records)[name] for records in batches] for name in PARTS_RATIOS}
    lines = [f"{'ratio':12} {'batches':>7} {'geomean':>8} {'worst':>6}  batch"]
    for name, values in columns.items():
        known = [
            (ratio, records["one call"])
            for ratio, records in zip(values, batches, strict=True)
            if ratio is not None
        ]
        if not known:
            lines.append(f"{name:12} {0:7}")
            continue
        mean = geomean(ratio for ratio, _ in known)
        pick = min if name == PARTS_RATIOS[0] else max
        worst, record = pick(known, key=lambda pair: pair[0])
        lines.append(f"{name:12} {len(known):7} {mean:8.3f} {worst:6.2f}  {record.batch} {record.layout}")
    return lines


def mean_tables(batches: Sequence[Records], rivals: Sequence[str], variants: Sequence[str]) -> list[str]:
    """Return all geometric means of a run; those of `best` and of the variants only after a sweep."""
    by_kind: dict[str, list[Records]] = defaultdict(list)
    by_heads: dict[str, list[Records]] = defaultdict(list)
    for records in batches:
        by_kind[f"kind {records['ours'].kind}"].append(records)
        by_heads[f"heads {records['ours'].layout}"].append(records)
    every = {"all": list(batches)}
    pairs = [(rival, mine) for mine in (("best", "ours") if variants else ("ours",)) for rival in rivals]
    lines = mean_table("rival's time / ours, geometric mean (batches)", by_kind | by_heads | every, pairs)
    if variants:
        title = "our variants' time / best, geometric mean (batches)"
        lines += mean_table(title, by_kind | every, [(name, "best") for name in ("ours", *variants)])
    return lines

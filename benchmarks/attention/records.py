"""Records of a comparison: one implementation on one batch, as JSON and CSV."""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attn_kernels.measure.batches import Batch
from attn_kernels.measure.roofline import Ceilings, work
from attn_kernels.measure.timing import Timing
from benchmarks.common.environment import write_atomically
from benchmarks.common.more_rivals import MORE_RIVALS

RIVALS = ("vllm", "vllm33", "fa3", "sdpa", *MORE_RIVALS)
FASTEST_RIVAL = "rival"  # the implementation of a batch's fastest right rival, whose `config` names it
SKIPPED = "skipped: "  # begins the note of a variant that was not tried


@dataclass(frozen=True)
class ComparisonRecord:
    """One implementation on one batch; figures are None where `note` gives the reason."""

    batch: str
    kind: str
    layout: str
    block_size: int
    dtype: str
    num_seqs: int
    num_query_tokens: int
    num_kv_tokens: int
    kv_sets: int
    # A rival, `ours` (the generated module's choice), a variant (at its best config), `best` of all ours, or
    # FASTEST_RIVAL.
    implementation: str
    config: str = ""
    time_us: float | None = None  # a launch, the median of all replays; so are the rates
    noise_us: float | None = None
    min_us: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    roofline_share: float | None = None
    error: float | None = None
    worst_head: float | None = None
    rows_checked: int = 0
    ok: bool = False
    note: str = ""
    tried: int = 0  # configs of a variant that were timed
    rejected: str = ""  # configs that failed or were wrong, which is a bug

    @classmethod
    def of(cls, batch: Batch, kv_sets: int, implementation: str, note: str = "") -> "ComparisonRecord":
        """Return a record without figures."""
        return cls(
            batch=batch.name,
            kind=batch.kind,
            layout=str(batch.layout),
            block_size=batch.block_size,
            dtype=batch.dtype_name,
            num_seqs=batch.num_seqs,
            num_query_tokens=batch.num_query_tokens,
            num_kv_tokens=batch.num_kv_tokens,
            kv_sets=kv_sets,
            implementation=implementation,
            note=note,
        )

    def timed(self, batch: Batch, timing: Timing, ceilings: Ceilings) -> "ComparisonRecord":
        """Return the record with times, rates and the share of the roofline."""
        least = work(batch)
        return dataclasses.replace(
            self,
            time_us=timing.median_us,
            noise_us=timing.noise_us,
            min_us=timing.min_us,
            tflops=least.tflops(timing.median_us),
            gbps=least.gbps(timing.median_us),
            roofline_share=least.floor_us(ceilings) / timing.median_us,
        )


Records = dict[str, ComparisonRecord]  # of one batch, by implementation


def time_ratio(records: Records, numerator: str, denominator: str = "ours") -> float | None:
    """Return one implementation's time over another's; None unless both were timed and right."""
    above, below = records.get(numerator), records.get(denominator)
    if not (above and below and above.ok and below.ok and above.time_us and below.time_us):
        return None
    return above.time_us / below.time_us


def with_fastest_rival(records: Records) -> Records:
    """Add FASTEST_RIVAL, if any rival was timed and right."""
    right = [record for name, record in records.items() if name in RIVALS and record.ok and record.time_us]
    if not right:
        return records
    fastest = min(right, key=lambda record: record.time_us or 0.0)
    named = dataclasses.replace(fastest, implementation=FASTEST_RIVAL, config=fastest.implementation)
    return {**records, FASTEST_RIVAL: named}


def summary(records: Records) -> dict[str, object]:
    """Return a batch's fastest rival and its time over ours; None where no rival was timed."""
    ours, rival = records["ours"], records.get(FASTEST_RIVAL)
    return {
        "batch": ours.batch,
        "layout": ours.layout,
        "ours_us": ours.time_us,
        "rival": rival and rival.config,
        "rival_us": rival and rival.time_us,
        "rival_over_ours": time_ratio(records, FASTEST_RIVAL),
    }


def ours_failed(records: Records, ours_name: str = "ours") -> bool:
    """Tell whether any launch of ours was wrong or failed; skipping a variant is no failure."""
    ours = [record for name, record in records.items() if name not in (*RIVALS, FASTEST_RIVAL)]
    any_failed = any(record.rejected or record.note.startswith(("WRONG", "FAILED")) for record in ours)
    return any_failed or not records[ours_name].ok


def write_records(folder: Path, head: dict[str, object], batches: Sequence[Records]) -> None:
    """Write compare.json (head, a summary of each batch, records) and compare.csv (records)."""
    rows = [dataclasses.asdict(record) for records in batches for record in records.values()]
    document = {**head, "summary": list(map(summary, batches)), "results": rows}
    write_atomically(folder / "compare.json", json.dumps(document, indent=1) + "\n")
    text = io.StringIO()
    names = [field.name for field in dataclasses.fields(ComparisonRecord)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "compare.csv", text.getvalue())

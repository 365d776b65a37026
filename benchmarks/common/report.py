"""Results of a comparison: the record of one implementation on one batch, JSON and CSV."""

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

RIVALS = ("vllm", "fa3", "sdpa")
SKIPPED = "skipped: "  # how the note of a variant begins that was not tried


@dataclass(frozen=True)
class Result:
    """One implementation on one batch; times in microseconds a launch, None where `note` says why.

    `implementation`: a rival, `ours` (what the heuristic chose), a variant (its best config of those tried)
    or `best` (the fastest of all ours). `tried`: configs of a variant that were timed. `rejected`: those that
    failed or were wrong, which is a bug.
    """

    batch: str
    kind: str
    layout: str
    block_size: int
    dtype: str
    num_seqs: int
    num_query_tokens: int
    num_kv_tokens: int
    kv_sets: int
    implementation: str
    config: str = ""
    time_us: float | None = None
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
    tried: int = 0
    rejected: str = ""

    @classmethod
    def of(cls, batch: Batch, kv_sets: int, implementation: str, note: str = "") -> "Result":
        """A record without figures yet."""
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

    def timed(self, batch: Batch, timing: Timing, ceilings: Ceilings) -> "Result":
        """The record with its times, rates and share of the roofline."""
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


def ratio(results: dict[str, Result], rival: str, ours: str = "ours") -> float | None:
    """How many times faster we are than the rival; None unless both ran and were right."""
    mine, theirs = results.get(ours), results.get(rival)
    if not (mine and theirs and mine.ok and theirs.ok and mine.time_us and theirs.time_us):
        return None
    return theirs.time_us / mine.time_us


def ours_failed(results: dict[str, Result]) -> bool:
    """Whether any launch of ours was wrong or failed; a skipped variant did not."""
    own = [result for name, result in results.items() if name not in RIVALS]
    ran_wrong = any(result.rejected or result.note.startswith(("WRONG", "FAILED")) for result in own)
    return ran_wrong or not results["ours"].ok


def write(folder: Path, head: dict[str, object], batches: Sequence[dict[str, Result]]) -> None:
    """Write compare.json (head and records) and compare.csv (records)."""
    records = [dataclasses.asdict(result) for results in batches for result in results.values()]
    write_atomically(folder / "compare.json", json.dumps({**head, "results": records}, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in dataclasses.fields(Result)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_atomically(folder / "compare.csv", text.getvalue())

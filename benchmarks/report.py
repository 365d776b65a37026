"""Results of a comparison: records, a table line a batch, geometric means, JSON and CSV."""

import csv
import dataclasses
import io
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.batches import Batch
from benchmarks.environment import write_atomically
from benchmarks.roofline import Ceilings, work
from benchmarks.timing import Timing

RIVALS = ("vllm", "fa3", "sdpa")


@dataclass(frozen=True)
class Result:
    """One implementation on one batch; times in microseconds a launch, None where `note` says why."""

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


def figure(value: float | None, spec: str, missing: str = "-") -> str:
    return missing if value is None else format(value, spec)


def time_text(value: float | None) -> str:
    """Four significant digits at most: 22.8, 466.1, 7346."""
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def header(rivals: Sequence[str], sweep: bool) -> str:
    """The table's head; `x` columns are the rival's time over ours, above 1 where we are faster."""
    columns = f"{'batch':25} {'heads':10} {'page':>4} {'ours us':>8} {'+-':>5}"
    columns += f" {'TFLOP/s':>7} {'GB/s':>6} {'roof':>5} {'error':>7}"
    for rival in rivals:
        columns += f" {rival + ' us':>8}"
    columns += "".join(f" {'x ' + rival:>7}" for rival in rivals)
    return columns + (f" {'best us':>8} {'loss':>6}" if sweep else "") + "  config"


def line(results: dict[str, Result], rivals: Sequence[str], sweep: bool) -> str:
    """One batch's line; `!` marks a wrong result."""
    mine = results["ours"]

    def time(name: str, width: int = 8) -> str:
        result = results.get(name)
        wrong = "!" if result and result.time_us and not result.ok else ""
        return f" {time_text(result.time_us if result else None) + wrong:>{width}}"

    text = f"{mine.batch:25} {mine.layout:10} {mine.block_size:>4}{time('ours')}"
    text += f" {figure(mine.noise_us, '.1f'):>5} {figure(mine.tflops, '.1f'):>7}"
    text += f" {figure(mine.gbps, '.0f'):>6} {figure(mine.roofline_share, '.0%'):>5}"
    text += f" {figure(mine.error, '.1e'):>7}" + "".join(time(rival) for rival in rivals)
    text += "".join(f" {figure(ratio(results, rival), '.2f'):>7}" for rival in rivals)
    if sweep:
        loss = ratio(results, "ours", "best")
        text += f"{time('best')} {figure(loss and loss - 1, '+.1%'):>6}"
    config = mine.config
    best = results.get("best")
    if best and best.config != config:
        config += f" (best {best.config})"
    one_set = " [one KV set: cache not cold]" if mine.kv_sets < 2 else ""
    notes = [
        f"{result.implementation}: {result.note}"
        for result in results.values()
        if result.note and not quiet(result)
    ]
    return f"{text}  {config}{one_set}" + "".join(f"\n    {note}" for note in notes)


def quiet(result: Result) -> bool:
    """SDPA does not do most batches; its empty column says enough."""
    return result.implementation == "sdpa" and result.time_us is None


def geomeans(batches: Sequence[dict[str, Result]], rivals: Sequence[str], sweep: bool) -> list[str]:
    """Geometric mean of each ratio by kind, by head layout and over all, with how many batches it covers."""
    groups: dict[str, list[dict[str, Result]]] = defaultdict(list)
    for results in batches:
        groups[f"kind {results['ours'].kind}"].append(results)
    for results in batches:
        groups[f"heads {results['ours'].layout}"].append(results)
    groups["all"] = list(batches)
    pairs = [("ours", rival) for rival in rivals]
    if sweep:
        pairs += [("best", rival) for rival in rivals] + [("best", "ours")]
    lines = ["", "geometric mean of rival's time / our time (batches)"]
    lines.append(f"{'':20}" + "".join(f" {f'{rival}/{mine}':>16}" for mine, rival in pairs))
    for group, members in groups.items():
        cells = ""
        for mine, rival in pairs:
            values = [value for results in members if (value := ratio(results, rival, mine))]
            mean = math.exp(sum(map(math.log, values)) / len(values)) if values else None
            cells += f" {f'{mean:.3f} ({len(values)})' if mean else '-':>16}"
        lines.append(f"{group:20}{cells}")
    return lines


def write(folder: Path, head: dict[str, object], batches: Sequence[dict[str, Result]]) -> None:
    """Write compare.json (head and records) and compare.csv (records)."""
    records = [dataclasses.asdict(result) for results in batches for result in results.values()]
    write_atomically(folder / "compare.json", json.dumps({**head, "results": records}, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in dataclasses.fields(Result)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_atomically(folder / "compare.csv", text.getvalue())

"""Check implementations on one batch against float64, time them together, and keep a record of each."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from triton.runtime.errors import OutOfResources

from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, check, expect
from attn_kernels.measure.roofline import Ceilings, work
from attn_kernels.measure.tensors import BatchTensors, materialise, rotation
from attn_kernels.measure.timing import Timed, Timing, prepare, time_together
from benchmarks.common.environment import raise_if_lost
from benchmarks.common.implementations import Implementation, NotApplicable, PreparedLaunches
from triton_tune.bench.timing import Launch

RIVALS = ("vllm", "vllm33", "fa3", "sdpa")
ONE_SPLIT = "fa3 one split"  # as vLLM launches FlashAttention-3 if VLLM_BATCH_INVARIANT is 1


@dataclass(frozen=True)
class Record:
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
    implementation: str  # a rival, `ours` (the generated module's choice), or a config of ours
    config: str = ""
    time_us: float | None = None  # a launch, the median of all replays; so are the rates
    noise_us: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    roofline_share: float | None = None
    error: float | None = None
    worst_head: float | None = None
    rows_checked: int = 0
    ok: bool = False
    note: str = ""

    @classmethod
    def of(cls, batch: Batch, kv_sets: int, implementation: str) -> "Record":
        """A record without figures."""
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
        )

    def timed(self, batch: Batch, timing: Timing, ceilings: Ceilings) -> "Record":
        """The record with times, rates and the share of the roofline."""
        least = work(batch)
        return dataclasses.replace(
            self,
            time_us=timing.median_us,
            noise_us=timing.noise_us,
            tflops=least.tflops(timing.median_us),
            gbps=least.gbps(timing.median_us),
            roofline_share=least.floor_us(ceilings) / timing.median_us,
        )

    @property
    def failed(self) -> bool:
        return self.note.startswith(("WRONG", "FAILED"))


Records = dict[str, Record]  # of one batch, by implementation


def time_ratio(records: Records, name: str, other: str) -> float | None:
    """The time of one implementation over another's; None unless both were timed and right."""
    above, below = records.get(name), records.get(other)
    if not (above and below and above.ok and below.ok and above.time_us and below.time_us):
        return None
    return above.time_us / below.time_us


def ours_failed(records: Records) -> bool:
    """Whether any launch of ours was wrong or failed."""
    ours = [record for name, record in records.items() if name not in (*RIVALS, ONE_SPLIT)]
    return any(record.failed for record in ours) or not records["ours"].ok


@dataclass(frozen=True)
class Settings:
    """The settings that all batches of a run share."""

    device: torch.device
    implementations: Sequence[Implementation]
    ceilings: Ceilings
    repeats: int  # graph replays that time an implementation


def launch_and_capture(
    implementation: Implementation, tensors: BatchTensors, expected: Expected
) -> tuple[Record, tuple[PreparedLaunches, Timed] | None]:
    """Check one launch onto an output of NaN and capture the launches; the record says what failed."""
    record = Record.of(tensors.batch, len(tensors.sets), implementation.name)
    try:
        prepared = implementation.prepare(tensors)
        record = dataclasses.replace(record, config=prepared.config)
        tensors.sets[0].out.fill_(torch.nan)
        prepared.launches[0]()
        record = with_check(record, prepared, expected)
        return record, (prepared, prepare(prepared.launches, tensors.device))
    except NotApplicable as error:
        return dataclasses.replace(record, note=str(error)), None
    except Exception as error:
        if isinstance(error, OutOfResources):
            return dataclasses.replace(record, note=f"too large for this device: {brief(error)}"), None
        raise_if_lost(tensors.device)
        return dataclasses.replace(record, ok=False, note=f"FAILED: {brief(error)}"), None


def with_check(record: Record, prepared: PreparedLaunches, expected: Expected) -> Record:
    """The record with the error of KV set 0's output."""
    verdict = check(prepared.output(0), expected)
    return dataclasses.replace(
        record,
        error=verdict.error,
        worst_head=verdict.worst_head,
        rows_checked=verdict.rows,
        ok=verdict.ok,
        note="" if verdict.ok else f"WRONG: {verdict}",
    )


def measure_batch(batch: Batch, settings: Settings) -> Records:
    """Check every implementation on a batch, time all together, and check the output of each once more."""
    tensors = materialise(batch, settings.device, num_sets=rotation(batch, settings.device))
    expected = expect(tensors)
    records, captured = Records(), dict[str, tuple[PreparedLaunches, Timed]]()
    for implementation in settings.implementations:
        name = implementation.name
        records[name], launches = launch_and_capture(implementation, tensors, expected)
        if launches is not None:
            captured[name] = launches
    timings = time_together({name: timed for name, (_, timed) in captured.items()}, settings.repeats)
    for name, (prepared, timed) in captured.items():
        tensors.sets[0].out.fill_(torch.nan)
        timed.sample(1)
        if records[name].ok:
            records[name] = with_check(records[name], prepared, expected)
        records[name] = records[name].timed(batch, timings[name], settings.ceilings)
    return records


def measure_ceilings(device: torch.device) -> Ceilings:
    """Measure an elementwise kernel (1 GiB read and written each) and a bf16 product of 8192 x 8192."""
    on_gpu = device.type == "cuda"

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_()

    def median_us(launch: Launch) -> float:
        return Timing.of(prepare([launch], device).sample(10)).median_us

    source = normal(1 << (29 if on_gpu else 16))
    target = torch.empty_like(source)

    def copy() -> None:
        # In a graph copy_ becomes a memcpy node, which is slower than a kernel that reads and writes.
        torch.neg(source, out=target)

    size = 8192 if on_gpu else 64
    a, b, c = (normal(size, size) for _ in range(3))

    def multiply() -> None:
        torch.matmul(a, b, out=c)

    return Ceilings(
        bytes_per_s=2 * source.nbytes / median_us(copy) * 1e6,
        flops_per_s=2 * size**3 / median_us(multiply) * 1e6,
    )

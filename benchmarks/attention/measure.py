"""Check implementations on one batch against float64, time them together, and keep a record of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from triton.runtime.errors import OutOfResources

from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, check, expect
from attn_kernels.measure.roofline import Ceilings, work
from attn_kernels.measure.tensors import materialise, rotation
from attn_kernels.measure.timing import Timed, Timing, prepare, time_together
from benchmarks.common.environment import raise_if_lost
from benchmarks.common.implementations import Implementation, NotApplicable, PreparedLaunches
from triton_tune.bench.timing import Launch

RIVALS = ("vllm", "vllm33", "fa3", "fa4", "sdpa")
ONE_SPLIT = "fa3 one split"  # as vLLM launches FlashAttention-3 if VLLM_BATCH_INVARIANT is 1


@dataclass
class Record:
    """One implementation on one batch; figures are None where `note` gives the reason."""

    batch: Batch
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

    @property
    def failed(self) -> bool:
        return self.note.startswith(("WRONG", "FAILED"))

    def check(self, prepared: PreparedLaunches, expected: Expected) -> None:
        """Note the error of KV set 0's output."""
        found = check(prepared.output(0), expected)
        self.error, self.worst_head, self.rows_checked = found.error, found.worst_head, found.rows
        self.ok, self.note = found.ok, "" if found.ok else f"WRONG: {found}"

    def time(self, timing: Timing, ceilings: Ceilings) -> None:
        """Note times, rates and the share of the roofline."""
        least, us = work(self.batch), timing.median_us
        self.time_us, self.noise_us = us, timing.noise_us
        self.tflops, self.gbps = least.tflops(us), least.gbps(us)
        self.roofline_share = least.floor_us(ceilings) / us

    def entry(self) -> dict[str, object]:
        """The record in compare.json."""
        batch = self.batch
        return vars(self) | {
            "batch": batch.name,
            "kind": batch.kind,
            "layout": str(batch.layout),
            "block_size": batch.block_size,
            "dtype": batch.dtype_name,
            **batch.lengths._asdict(),
        }


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


def measure_batch(
    batch: Batch,
    device: torch.device,
    implementations: Sequence[Implementation],
    ceilings: Ceilings,
    repeats: int,
) -> Records:
    """Check every implementation on a batch, time all together, and check the output of each once more.

    repeats: graph replays that time an implementation.
    """
    tensors = materialise(batch, device, num_sets=rotation(batch, device))
    expected, out = expect(tensors), tensors.sets[0].out
    records, captured = Records(), dict[str, tuple[PreparedLaunches, Timed]]()
    for implementation in implementations:
        name = implementation.name
        record = records[name] = Record(batch, len(tensors.sets), name)
        try:
            prepared = implementation.prepare(tensors)
            record.config = prepared.config
            out.fill_(torch.nan)
            prepared.launches[0]()
            record.check(prepared, expected)
            captured[name] = prepared, prepare(prepared.launches, device)
        except NotApplicable as error:
            record.note = str(error)
        except Exception as error:
            if isinstance(error, OutOfResources):
                record.note = f"too large for this device: {brief(error)}"
            else:
                raise_if_lost(device)
                record.ok, record.note = False, f"FAILED: {brief(error)}"
    timings = time_together({name: timed for name, (_, timed) in captured.items()}, repeats)
    for name, (prepared, timed) in captured.items():
        out.fill_(torch.nan)
        timed.sample(1)
        if records[name].ok:
            records[name].check(prepared, expected)
        records[name].time(timings[name], ceilings)
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

"""Compare an output with a float64 reference: as many rows as a limit allows, and every element for NaN.

The rows come in windows of consecutive queries. A window of a causal sequence is itself a causal sequence
with a shorter context (else with the same), so the plain reference computes it exactly.
"""

import random
from dataclasses import dataclass

import torch

from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import BatchTensors
from attn_kernels.testing.reference import paged_attention_reference

WINDOW = 64
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}
FP8_TOLERANCE = 5e-2  # of fp8 caches: some kernels round queries and weights to fp8 as well
HEAD_SLACK = 5  # the tolerance of one head of one query over that of the whole output


@dataclass(frozen=True)
class Limits:
    cache_elements: int = 1 << 30  # keys x KV heads x head size; K and V each take 8 bytes an element
    scores: int = 1 << 31  # queries x keys x query heads
    windows_per_seq: int = 8


@dataclass(frozen=True)
class Window:
    """Queries `start` .. `stop` (exclusive) of sequence `seq`."""

    seq: int
    start: int
    stop: int


@dataclass(frozen=True)
class Expected:
    """Float64 outputs [rows, num_query_heads, head_size] of the query tokens `rows`."""

    rows: torch.Tensor
    values: torch.Tensor
    tolerance: float


@dataclass(frozen=True)
class Check:
    """The result of a comparison. Errors are ||out - ref|| / ||ref||."""

    error: float  # over all checked rows
    worst_head: float  # the greatest error of one head of one row
    rows: int  # checked
    bad_elements: int  # not finite
    tolerance: float

    @property
    def ok(self) -> bool:
        close = self.error <= self.tolerance and self.worst_head <= HEAD_SLACK * self.tolerance
        return self.bad_elements == 0 and close

    def __str__(self) -> str:
        limits = f"limits {self.tolerance:.0e}, {HEAD_SLACK * self.tolerance:.0e}"
        bad = f", {self.bad_elements} elements unwritten or not finite" if self.bad_elements else ""
        return f"error {self.error:.1e}, worst head {self.worst_head:.1e} ({limits}){bad}"


def choose_windows(batch: Batch, limits: Limits = Limits()) -> list[Window]:
    """The first, the last and some random windows of each sequence, up to the limits."""
    rng = random.Random(0)
    candidates = []
    for seq, query_len in enumerate(batch.query_lens):
        count = -(-query_len // WINDOW)
        inner = range(1, count - 1)
        chosen = {0, count - 1, *rng.sample(inner, min(len(inner), limits.windows_per_seq - 2))}
        if query_len:  # otherwise it is padding
            candidates += [Window(seq, i * WINDOW, min((i + 1) * WINDOW, query_len)) for i in sorted(chosen)]
    rng.shuffle(candidates)
    elements = scores = 0
    windows: list[Window] = []
    for window in candidates:
        keys = _keys_of(batch, window)
        elements += keys * batch.layout.num_kv_heads * batch.layout.head_size
        scores += keys * batch.layout.num_query_heads * (window.stop - window.start)
        if windows and (elements > limits.cache_elements or scores > limits.scores):
            break
        windows.append(window)
    return sorted(windows, key=lambda window: (window.seq, window.start))


def _keys_of(batch: Batch, window: Window) -> int:
    behind = batch.query_lens[window.seq] - window.stop if batch.scores.causal else 0
    return batch.context_lens[window.seq] - behind


def expect(tensors: BatchTensors, limits: Limits = Limits()) -> Expected:
    """Compute the reference for chosen rows of the first KV set, on the tensors' device."""
    batch, kv, device = tensors.batch, tensors.sets[0], tensors.device
    windows = choose_windows(batch, limits)
    first_row = tensors.cu_seqlens_q.tolist()
    rows = torch.cat([torch.arange(w.start, w.stop) + first_row[w.seq] for w in windows]).to(device)
    lengths = torch.tensor([0] + [w.stop - w.start for w in windows])
    values = paged_attention_reference(
        kv.q[rows],
        kv.k_cache,
        kv.v_cache,
        lengths.cumsum(0).to(torch.int32).to(device),
        torch.tensor([_keys_of(batch, w) for w in windows], dtype=torch.int32, device=device),
        tensors.block_table[torch.tensor([w.seq for w in windows], device=device)],
        softmax_scale=tensors.softmax_scale,
        **tensors.options,
    )
    tolerance = TOLERANCE[batch.dtype] if batch.kv_element_size > 1 else FP8_TOLERANCE
    return Expected(rows, values, tolerance)


def check(out: torch.Tensor, expected: Expected) -> Check:
    """Check a whole output [num_query_tokens, num_query_heads, head_size]; NaN anywhere fails.

    The error of one head of one row is relative to its norm. A norm below that of the output type's smallest
    normal numbers counts as the latter: an attention sink can leave a head so little weight that fp16 holds
    no digit of it.
    """
    difference = (out[expected.rows].double() - expected.values).norm(dim=-1)
    size = expected.values.norm(dim=-1)
    least = torch.finfo(out.dtype).smallest_normal * out.shape[-1] ** 0.5
    return Check(
        error=(difference.norm() / size.norm().clamp(min=least)).item(),
        worst_head=(difference / size.clamp(min=least)).max().item(),
        rows=len(expected.rows),
        bad_elements=int(out.numel() - torch.isfinite(out).sum().item()),
        tolerance=expected.tolerance,
    )

"""Multiprocessors that another stream keeps busy while kernels are launched."""

import threading
from types import TracebackType
from typing import Self

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

SPIN_MS = 20
# A program has 1,024 threads, and each holds 64 of VALUES, as many as it may have registers. So a program
# takes all registers of a multiprocessor, and no other program runs beside it.
NUM_WARPS = 32
VALUES = 64 * 32 * NUM_WARPS


@triton.jit(do_not_specialize=["nanoseconds"])
def busy_kernel(out_ptr, nanoseconds, VALUES: tl.constexpr):
    """Spin for so many nanoseconds; out is float32 [programs, VALUES], which keeps the values alive."""
    start = globaltimer()
    places = tl.program_id(0) * VALUES + tl.arange(0, VALUES)
    values = tl.load(out_ptr + places)
    while globaltimer() - start < nanoseconds:
        values = values * 0.5 + 1.0
    tl.store(out_ptr + places, values)


class BusyMultiprocessors:
    """A context in which a spinning kernel takes all of some multiprocessors, again and again.

    Each launch spins SPIN_MS, so the multiprocessors are free again soon after the context ends.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        self.spins = 0
        self._device, self._count = device, count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def __enter__(self) -> Self:
        if self._count:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._count and error is None:  # after a hang the thread may hang too
            self._thread.join()

    def _spin(self) -> None:
        # Its programs go first to multiprocessors that become free; else many small kernels keep them out.
        stream = torch.cuda.Stream(self._device, priority=-1)  # type: ignore[no-untyped-call]
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            values = torch.zeros(self._count, VALUES, device=self._device)
            while not self._ended.is_set():
                busy_kernel[(self._count,)](values, SPIN_MS * 1_000_000, VALUES=VALUES, num_warps=NUM_WARPS)
                stream.synchronize()
                self.spins += 1

"""Multiprocessors that another stream keeps busy while kernels are launched."""

import threading
from types import TracebackType
from typing import Self

import torch

SPIN_MS = 20


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
        from verification.busy_kernel import NUM_WARPS, VALUES, busy_kernel  # reads NVIDIA's timer

        # Its programs go first to multiprocessors that become free; else many small kernels keep them out.
        stream = torch.cuda.Stream(self._device, priority=-1)  # type: ignore[no-untyped-call]
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            values = torch.zeros(self._count, VALUES, device=self._device)
            while not self._ended.is_set():
                busy_kernel[(self._count,)](values, SPIN_MS * 1_000_000, VALUES=VALUES, num_warps=NUM_WARPS)
                stream.synchronize()
                self.spins += 1

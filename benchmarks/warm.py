"""Compile Triton kernels ahead in parallel processes that share Triton's cache on disk.

Kernels compile on their first launch, one after the other, for a second or more each; a run over many shapes
and configs would spend most of its time there. Each job launches a kernel once on the real shape over a
cache of one page.
"""

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.batches import Batch
from benchmarks.implementations import Implementation, Ours, load_peers
from benchmarks.tensors import stand_in

MAX_WORKERS = 14


@dataclass(frozen=True)
class Job:
    """Launch our kernel (`peer` empty) or a peer once on a batch's shape."""

    batch: Batch
    config: Any = None
    peer: str = ""


def _compile(jobs: list[Job], device: str, peers: Path) -> int:
    """Run jobs in a worker; a failure here shows again, with its message, where the result matters."""
    failures = 0
    loaded: dict[str, Implementation] = {}
    if jobs[0].peer:
        loaded = {peer.name: peer for peer in load_peers(peers, ("vllm_triton",))[0]}
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    for job in jobs:
        try:
            implementation = loaded[job.peer] if job.peer else Ours(job.config)
            implementation.prepare(stand_in(job.batch, place)).launches[0]()
            if place.type == "cuda":
                torch.cuda.synchronize()
        except Exception:
            failures += 1
    return failures


def compile_ahead(jobs: Iterable[Job], device: torch.device, peers: Path, workers: int | None = None) -> str:
    """Compile what `jobs` need; returns one line that says how it went. Does nothing without a GPU."""
    if device.type != "cuda" or workers == 0:
        return "compiled nothing ahead"
    start = time.monotonic()
    groups: dict[tuple[Any, ...], list[Job]] = defaultdict(list)
    for job in jobs:
        batch = job.batch
        key = (batch.layout, batch.dtype, batch.block_size, batch.kind, job.peer, job.config)
        groups[key].append(job)
    workers = min(workers or MAX_WORKERS, max(1, (os.cpu_count() or 2) - 1), len(groups))
    failures = broken = 0
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_compile, group, str(device), peers) for group in groups.values()]
        for future in as_completed(futures):
            try:
                failures += future.result()
            except Exception:
                broken += 1
    total = sum(map(len, groups.values()))
    seconds = time.monotonic() - start
    trouble = f", {failures} launches failed, {broken} groups broke off" if failures or broken else ""
    return f"compiled ahead: {total} launches in {workers} processes, {seconds:.0f} s{trouble}"

"""A worker of a fleet: what measures visits on one GPU, in a Ray actor."""

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch
import triton

from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.core.device import driver_version
from triton_tune.core.problem import PlannedVisit
from triton_tune.processes.compile_ahead import default_workers
from tuning_table.table import Visit

FOREVER = 1e12  # seconds; a visit that is under way is finished


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself."""

    name: str  # the host's and the GPU's, such as `node7/GPU-5d1e`
    device: Mapping[str, str | int]  # `device` of run.yaml
    versions: Mapping[str, str]  # keys of run.yaml: driver, torch, triton, source_hash


def versions(source_hash: str) -> dict[str, str]:
    """The versions of this process that all workers of a run must have."""
    return {"torch": str(torch.__version__), "triton": triton.__version__, "source_hash": source_hash}


class GpuWorker:
    """Measures on the one GPU that its process sees, or in Triton's interpreter.

    A launch that ends its process costs one cell, as a process of its own does the launches.
    source_hash: computes the hash of the kernel's source on this host.
    """

    def __init__(
        self,
        subject: Subject,
        source_hash: Callable[[], str],
        compile_workers: int | None,
        interpreter: bool,
    ) -> None:
        device = torch.device("cpu") if interpreter else torch.device("cuda", 0)
        if compile_workers is None:
            compile_workers = default_workers(sharing=_gpus_of_this_host())
        self._bench = GpuBench([device], subject, compile_workers)
        stack = {"driver": driver_version(), **versions(source_hash())}
        self._facts = WorkerFacts(self._bench.first_worker, self._bench.facts, stack)

    def facts(self) -> WorkerFacts:
        return self._facts

    def visit(self, task: PlannedVisit, configs: Mapping[str, Hashable]) -> Visit:
        """Compile and measure a visit. configs: those of the visit, by id."""
        self._bench.configs = configs
        until = time.monotonic() + FOREVER
        self._bench.compile([task], until, lambda done, total: None)
        (visit,) = self._bench.measure([task], until)
        return visit


def _gpus_of_this_host() -> int:
    """How many workers share the processors of this host."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return max(1, int(next(n["Resources"].get("GPU", 1) for n in ray.nodes() if n["NodeID"] == node)))

"""Compile and load, before a server is ready, every kernel that its batches can launch."""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import torch

from attn_kernels.choose.choices import checked, choices_for
from attn_kernels.core.checks import check_int
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.errors import brief
from attn_kernels.core.model import Model, models_of
from attn_kernels.kernels.hopper_limits import launches as hopper_launches
from attn_kernels.warmup.dummy_launch import FEATURES, DummyLaunch
from triton_tune.processes.compile_ahead import (
    CompileAhead,
    CompileCounts,
    Job,
    default_workers,
    minimal,
    run_jobs,
    start_fork_server,
)
from triton_tune.processes.host_lock import compile_lock, lock_path
from triton_tune.processes.needed_kernels import NeededKernel, only_found

logger = logging.getLogger("attn_kernels")

FEW = 2  # kernels that this process compiles sooner than others start
PRELOAD = ("attn_kernels.warmup.compile_ahead", "attn_kernels.kernels.hopper")


@dataclass(frozen=True)
class CompiledAhead:
    """The outcome of ``compile_ahead``."""

    launches: int  # launches that differ in their compiled kernels
    failures: tuple[str, ...]  # a line with the reason for each that fails, as will batches that need it
    compiled: int  # kernels that processes compiled; each launch needs several, and launches share some
    processes: int  # that compiled; 0 if Triton's cache held nearly all
    processes_seconds: float  # from the start of the first of them to the end of the last
    seconds: float

    def __str__(self) -> str:
        ready = self.launches - len(self.failures)
        compiled = f"{self.compiled} kernels compiled in {self.processes} processes "
        compiled += f"for {self.processes_seconds:.1f} s of them"
        summary = f"{ready} of {self.launches} launches ready in {self.seconds:.1f} s, "
        summary += compiled if self.processes else "no process started"
        return "\n".join([summary, *(f"failed: {failure}" for failure in self.failures)])


def compile_ahead(
    device: torch.device | str,
    models: Model | Iterable[Model],
    *,
    features: Iterable[Iterable[str]] = ((),),
    device_key: str | None = None,
    configs: Iterable[LaunchConfig] = (),
    for_capture: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CompiledAhead:
    """Compile and load every kernel that a model's batches can launch on a device.

    Afterwards, ``plan`` and ``run`` of such batches compile and load no kernel in this process. Kernels
    compile in parallel processes that share Triton's cache on disk and use no GPU; then each is launched
    here, on a few tokens. Kernels that the cache holds already are only loaded. Of several processes that
    call this at once with one cache, such as the ranks of a server, one compiles and the others wait.

    Do not call this while a CUDA graph is captured.

    Args:
        device: the GPU. A process that uses several GPUs calls this once for each.
        models: the model, or one for each kind of layer, as ``plan`` is given them.
        features: for each kind of layer, the features of its launches, words of
            ``attn_kernels.warmup.dummy_launch.FEATURES``. Every other layer of Gemma 2 has a window:
            ``[("softcap",), ("softcap", "window")]``.
        device_key: the generated module that chooses, if ``plan`` is given one.
        configs: further configs, if ``plan`` is given any.
        for_capture: add the kernels of plans ``for_capture``.
        workers: processes that compile, 0 for none. None: one less than there are processors.
        progress: called with the numbers of kernels that processes have compiled and will compile.

    Returns:
        The outcome. A launch that fails raises nothing; it is listed there and logged as a warning.

    Raises:
        TypeError, ValueError: as ``plan``; an unknown feature; a wrong environment variable.
    """
    if workers is not None:
        check_int("workers", workers, 0)
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    launches = launches_of(
        device, models, features=features, device_key=device_key, configs=configs, for_capture=for_capture
    )
    return compile_launches(launches, device, workers=workers, progress=progress)


@cache
def expect_compiling() -> None:
    """Let the processes of ``compile_ahead`` import torch while a model loads, if Triton's cache is new."""
    if torch.cuda.is_available() and not lock_path().exists():
        start_fork_server(PRELOAD)


def launches_of(
    device: torch.device,
    models: Model | Iterable[Model],
    *,
    features: Iterable[Iterable[str]] = ((),),
    device_key: str | None = None,
    configs: Iterable[LaunchConfig] = (),
    for_capture: bool = False,
) -> list[DummyLaunch]:
    """List a launch of each config that a model's batches can have; arguments as of ``compile_ahead``."""
    kinds = [_checked_kind(words) for words in features]
    given = [checked(config) for config in configs]
    sizes = (False, True) if torch.version.hip else (False,)
    launches = []
    for model in models_of(models):
        choices = choices_for(model, device, device_key)
        chosen = choices.possible() + given + choices.fused()
        for config, words, large in product(dict.fromkeys(chosen), kinds, sizes):
            launches.append(DummyLaunch(config, model, words, large))
            if for_capture and not hopper_launches(config, device):
                launches.append(DummyLaunch(config, model, words, large, for_capture=True))
    return launches


def _checked_kind(words: Iterable[str]) -> frozenset[str]:
    if isinstance(words, str):
        raise TypeError(f"features holds {words!r}, but a kind of layer is needed, such as ({words!r},)")
    kind = frozenset(words)
    for word in kind - set(FEATURES):
        raise ValueError(f"features holds {word!r}, but the features are: {', '.join(FEATURES)}")
    return kind


def compile_launches(
    launches: Iterable[Job],
    device: torch.device,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CompiledAhead:
    """Compile in processes what Triton's cache lacks of the kernels of launches; then make each launch.

    Arguments are those of ``compile_ahead``, which says what it returns and logs.
    """
    began = time.monotonic()
    launches = minimal(launches)
    on_disk = Filled({}) if device.type == "cpu" else fill_cache(launches, device, workers, progress)
    broken = frozenset[Hashable]().union(*(kernel.needs for kernel in on_disk.counts.broken))
    given_up = [launch for launch, found in on_disk.needed.items() if broken & found.keys()]
    failures = run_jobs((launch for launch in launches if launch not in given_up), device)
    lines = [f"{failure.job}: {brief(failure.error)}" for failure in failures]
    lines += [f"{launch}: compiling it ended its process" for launch in given_up]
    for line in lines:
        logger.warning("compile_ahead: %s", line)
    return CompiledAhead(
        launches=len(launches),
        failures=tuple(lines),
        compiled=on_disk.counts.jobs,
        processes=on_disk.processes,
        processes_seconds=on_disk.seconds,
        seconds=time.monotonic() - began,
    )


@dataclass(frozen=True)
class Filled:
    """The outcome of ``fill_cache``."""

    needed: Mapping[Job, Mapping[str, NeededKernel]]  # kernels of each launch, by key
    counts: CompileCounts = field(default_factory=CompileCounts)
    processes: int = 0
    seconds: float = 0.0  # from the start of the first process to the end of the last


def fill_cache(
    launches: Iterable[Job],
    device: torch.device,
    workers: int | None,
    progress: Callable[[int, int], None],
) -> Filled:
    """Compile in processes what Triton's cache lacks of the kernels of launches, if it is more than FEW."""
    needed = {launch: _needed_of(launch, device) for launch in launches}
    kernels = {key: kernel for found in needed.values() for key, kernel in found.items()}
    workers = default_workers() if workers is None else workers

    def advance(done: int, total: int) -> None:
        logger.info("compile_ahead: %d of %d kernels compiled", done, total)
        progress(done, total)

    if not workers or len(_missing(kernels.values())) <= FEW:
        return Filled(needed)
    with compile_lock():  # of ranks that start together, the first compiles and the others wait
        missing = _missing(kernels.values())
        if not missing:
            return Filled(needed)
        began = time.monotonic()
        with CompileAhead(device, workers, on_gpu=False, preload=PRELOAD) as compiling:
            counts = compiling.compile(missing, progress=advance)
        return Filled(needed, counts, min(workers, counts.jobs), time.monotonic() - began)


def _needed_of(launch: Job, device: torch.device) -> dict[str, NeededKernel]:
    """The kernels of a launch that are not loaded, by key; as far as it goes, where the launch fails."""
    with only_found() as found:
        run_jobs([launch], device)  # its failures come again when it is made
    return {key: replace(kernel, cost=launch.cost) for key, kernel in found.items()}


def _missing(kernels: Iterable[NeededKernel]) -> list[NeededKernel]:
    return [kernel for kernel in kernels if not kernel.is_cached]

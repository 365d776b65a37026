"""Compile and load, before a server is ready, every kernel that its batches can launch."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

import torch

from attn_kernels.choose.choices import checked, choices_for
from attn_kernels.core.checks import check_int
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.errors import brief
from attn_kernels.core.model import Model, models_of
from attn_kernels.kernels.hopper_limits import launches as hopper_launches
from attn_kernels.warmup.dummy_launch import FEATURES, LARGE, DummyLaunch
from triton_tune.processes.compile_ahead import CompileAhead, JobFailure, default_workers, minimal, run_jobs

logger = logging.getLogger("attn_kernels")

CONTEXT_BYTES = 1 << 30  # GPU memory that a process takes at most
QUICK_S = 0.5  # loading a compiled kernel takes less, compiling one takes more
MAX_SLOW = 2  # launches that may take longer before processes start; the first in a process always does


@dataclass(frozen=True)
class CompiledAhead:
    """The outcome of ``compile_ahead``."""

    launches: int  # launches that differ in their compiled kernels
    failures: tuple[str, ...]  # a line with the reason for each that fails, as will batches that need it
    processes: int  # that compiled; 0 if Triton's cache held nearly all, or none could be started
    processes_seconds: float  # from the start of the first of them to the end of the last
    seconds: float

    def __str__(self) -> str:
        ready = self.launches - len(self.failures)
        compiled = f"{self.processes} processes compiled for {self.processes_seconds:.1f} s of them"
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
    compile in parallel processes that share Triton's cache on disk; then each is launched here, on a few
    tokens. Kernels that the cache holds already are only loaded.

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
        workers: processes that compile, 0 for none. None: as many as there are processors and memory for.
        progress: called with the number of launches done and of all.

    Returns:
        The outcome. A launch that fails raises nothing; it is listed there and logged as a warning.

    Raises:
        TypeError, ValueError: as ``plan``; an unknown feature; a wrong environment variable.
    """
    began = time.monotonic()
    if workers is not None:
        check_int("workers", workers, 0)
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    launches = minimal(
        launches_of(
            device, models, features=features, device_key=device_key, configs=configs, for_capture=for_capture
        )
    )

    def advance(done: int) -> None:
        logger.info("compile_ahead: %d of %d launches", done, len(launches))
        progress(done, len(launches))

    failures, processes, processes_s = _compile_and_load(launches, device, workers, advance)
    for failure in failures:
        logger.warning("compile_ahead: %s", failure)
    seconds = time.monotonic() - began
    return CompiledAhead(len(launches), tuple(failures), processes, processes_s, seconds)


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


def _compile_and_load(
    launches: list[DummyLaunch], device: torch.device, workers: int | None, advance: Callable[[int], None]
) -> tuple[list[str], int, float]:
    """Compile and load; return a line for each failure, how many processes compiled, and their seconds."""
    failures: list[JobFailure] = []
    waiting, slow, workers = list(launches), 0, _workers(device, workers)
    while waiting and (slow < MAX_SLOW or not workers):
        began = time.monotonic()
        failures += run_jobs([waiting.pop()], device)  # the last would compile fastest
        slow += time.monotonic() - began > QUICK_S
        advance(len(launches) - len(waiting))
    if not waiting:
        return list(map(_line, failures)), 0, 0.0
    loaded, began = len(launches) - len(waiting), time.monotonic()
    with CompileAhead(device, workers) as processes:
        done = processes.compile(waiting, progress=lambda count, _: advance(loaded + count))
    processes_s = time.monotonic() - began
    failures += run_jobs([launch for launch in waiting if launch not in done.broken], device)
    lines = [*map(_line, failures), *(f"{launch}: compiling it ended its process" for launch in done.broken)]
    return lines, min(workers, done.jobs), processes_s


def _line(failure: JobFailure) -> str:
    return f"{failure.job}: {brief(failure.error)}"


def _workers(device: torch.device, wished: int | None) -> int:
    if device.type == "cpu":
        return 0
    if wished is not None:
        return wished
    free, _ = torch.cuda.mem_get_info(device)
    return min(default_workers(), free // (CONTEXT_BYTES + (LARGE if torch.version.hip else 0)))

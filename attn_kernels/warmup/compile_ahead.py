"""Compile and load, before a server is ready, every kernel that its batches can launch."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import torch

from attn_kernels.choose.choices import checked, choices_for
from attn_kernels.core.checks import check_int
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.errors import brief
from attn_kernels.core.model import Model, models_of
from attn_kernels.kernels.hopper_launch import launches as hopper_launches
from attn_kernels.warmup.dummy_launch import FEATURES, DummyLaunch
from triton_tune.processes.cache_filler import CacheFiller
from triton_tune.processes.compile_ahead import Job, minimal, run_jobs
from triton_tune.processes.needed_kernels import NeededKernel, collect_needed

logger = logging.getLogger("attn_kernels")


@dataclass(frozen=True)
class CompiledAhead:
    """The outcome of ``compile_ahead``."""

    launches: int  # launches that differ in their compiled kernels
    failures: tuple[str, ...]  # a line with the reason for each that fails; so will batches that need it
    compiled: int  # kernels that processes compiled; each launch needs several, and launches share some
    seconds: float

    def __str__(self) -> str:
        ready = self.launches - len(self.failures)
        summary = f"{ready} of {self.launches} launches ready in {self.seconds:.1f} s, "
        summary += f"{self.compiled} kernels compiled in processes"
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
    return compile_launches(launches, device, workers=workers)


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
    launches: Iterable[Job], device: torch.device, *, workers: int | None = None
) -> CompiledAhead:
    """Compile in processes what Triton's cache lacks of the kernels of launches; then make each launch.

    Arguments are those of ``compile_ahead``, which says what it returns and logs.
    """
    began = time.monotonic()
    launches = minimal(launches)
    ended = {} if device.type == "cpu" else fill_cache(launches, device, workers)
    given_up = [launch for launch, codes in ended.items() if any(codes.values())]
    failures = run_jobs((launch for launch in launches if launch not in given_up), device)
    lines = [f"{launch}: {brief(error)}" for launch, error in failures.items()]
    lines += [f"{launch}: compiling it ended its process" for launch in given_up]
    for line in lines:
        logger.warning("compile_ahead: %s", line)
    return CompiledAhead(
        launches=len(launches),
        failures=tuple(lines),
        compiled=len({key for codes in ended.values() for key in codes}),
        seconds=time.monotonic() - began,
    )


def begin_compiling(launches: Iterable[Job], device: torch.device) -> None:
    """Begin to compile in processes what Triton's cache lacks of the kernels of launches, and return.

    The next ``compile_ahead`` in this process waits for them, and compiles what is still missing.
    """
    if missing := _missing(_needed(minimal(launches), device)):
        _filler(device).add(missing)


def fill_cache(
    launches: Iterable[Job], device: torch.device, workers: int | None
) -> dict[Job, dict[str, int]]:
    """Compile in processes what Triton's cache lacks of the kernels of launches.

    Returns for each launch how the process of each of its kernels exited, by the kernel's key.
    """
    needed, filler = _needed(launches, device), _filler(device)
    filler.finish()  # what was begun
    ended = filler.ended
    while workers != 0 and (missing := [kernel for kernel in _missing(needed) if kernel.key not in ended]):
        filler.add(missing, workers)
        if not filler.finish():  # this process has compiled, and not another rank
            break
    return {
        launch: {key: ended[key] for key in kernels if key in ended} for launch, kernels in needed.items()
    }


@cache
def _filler(device: torch.device) -> CacheFiller:
    return CacheFiller(device)


def _needed(launches: Iterable[Job], device: torch.device) -> dict[Job, dict[str, NeededKernel]]:
    """The kernels of each launch that are not loaded, by key; of a failing launch, those before the error."""
    needed = {}
    for launch in launches:
        with collect_needed() as unloaded:
            run_jobs([launch], device)  # its failures come again when it is made
        needed[launch] = {key: replace(kernel, cost=launch.cost) for key, kernel in unloaded.items()}
    return needed


def _missing(needed: Mapping[Job, Mapping[str, NeededKernel]]) -> list[NeededKernel]:
    """What Triton's cache lacks."""
    kernels = {key: kernel for of_launch in needed.values() for key, kernel in of_launch.items()}
    return [kernel for kernel in kernels.values() if not kernel.is_cached]

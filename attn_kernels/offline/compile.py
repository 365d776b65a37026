"""Compilation of a config's kernels as launches on an absent GPU would compile them, also in processes."""

import contextlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
from triton import knobs
from triton.runtime import driver

from attn_kernels.choose.choices import checked, choices_for
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core import checks
from attn_kernels.core.config import Config
from attn_kernels.core.errors import AttnKernelsWarning, brief
from attn_kernels.core.model import Model
from attn_kernels.kernels import arguments, hopper_launch
from attn_kernels.kernels.compile_params import ReduceParams
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.offline.resources import TARGETS, Resources, measure
from attn_kernels.warmup.dummy_launch import DummyLaunch
from triton_tune.processes.compile_ahead import follow_parent
from triton_tune.processes.needed_kernels import NeededKernel, collect_needed

# Those of ``warmup.dummy_launch.FEATURES`` that differ here, and fp8 caches.
FEATURES = ("window", "noncausal", "softcap", "alibi", "sinks", "fp8", "scales", "lse", "ranges")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
OF_HOPPER = {"schedule_kernel", "hopper_kernel", "join_prompts_kernel"}
ENDED = "the compiler ended its process"


class CompileShape(NamedTuple):
    """The compile-time facts of a launch beside its config."""

    target: str  # a key of ``TARGETS``
    head_size: int
    block_size: int  # tokens per page
    gqa_group_size: int  # query heads that share a KV head
    dtype: torch.dtype
    features: tuple[str, ...]  # of ``FEATURES``

    def model(self) -> Model:
        """A model of one KV head. Raises ValueError or TypeError where none can be compiled for."""
        if self.target not in TARGETS:
            raise ValueError(f"target is {self.target!r}, but the targets are: {', '.join(TARGETS)}")
        for feature in self.features:
            if feature not in FEATURES:
                raise ValueError(f"feature is {feature!r}, but the features are: {', '.join(FEATURES)}")
        sizes = (self.gqa_group_size, 1, self.head_size, self.block_size)
        return Model(*sizes, self.dtype, checks.FP8 if "fp8" in self.features else None)


@contextlib.contextmanager
def absent_gpu(target: str) -> Iterator[torch.device]:
    """Yield a device without memory that plans, layers and Triton's dispatch take for a GPU of this target.

    It stays Triton's device until this process ends.
    """
    gpu = TARGETS[target]
    amd = gpu.backend == "hip"
    major, minor = (9, 0) if amd else divmod(gpu.arch, 10)
    properties = SimpleNamespace(
        name=target, gcnArchName=gpu.arch, major=major, minor=minor, multi_processor_count=132
    )
    of_a_device = (
        choices_for,
        arguments.converts_e4m3,
        arguments.multiprocessors,
        arguments.shared_memory,
        hopper_launch.hopper_for,
    )
    active = SimpleNamespace(
        get_current_target=lambda: gpu,
        get_current_device=lambda: list(TARGETS).index(target),  # Triton keeps what it finds by this number
        get_current_stream=lambda device: 0,
        # Nothing is refused: whether a kernel fits is what compiling shows.
        utils=SimpleNamespace(get_device_properties=lambda index: {"max_shared_mem": 1 << 30}),
    )
    with (
        warnings.catch_warnings(),
        mock.patch.object(torch.cuda, "get_device_properties", lambda device: properties),
        mock.patch.object(torch.cuda, "get_device_capability", lambda device: (major, minor)),
        mock.patch.object(torch.version, "hip", "absent" if amd else None),
        mock.patch.object(checks, "DEVICE_TYPES", (*checks.DEVICE_TYPES, "meta")),
    ):
        warnings.simplefilter("ignore", AttnKernelsWarning)  # that it is not tuned
        driver.set_active(active)
        for cached in of_a_device:
            cached.cache_clear()
        yield torch.device("meta")


def needed_kernels(config: Config, shape: CompileShape) -> dict[str, NeededKernel]:
    """The kernels that a config launches for contiguous tensors, by their names without ``_kernel``.

    Caches are taken to be larger than 2 GiB, and all other tensors smaller. Of a way to compute mixed
    batches, the kernels of the configs that are chosen for the parts are left out.

    Raises as ``CompileCase.check``.
    """
    CompileCase(config, shape).check()
    large = TARGETS[shape.target].backend == "hip"
    launch = DummyLaunch(config, shape.model(), frozenset(shape.features) - {"fp8"}, large)
    with absent_gpu(shape.target) as device, collect_needed() as found:
        for for_capture in (False, True):
            replace(launch, for_capture=for_capture).run(device)
    named = {}
    for kernel in found.values():
        splits = [str(value.splits) for value in kernel.constants.values() if isinstance(value, ReduceParams)]
        named["".join([kernel.name.removesuffix("_kernel"), *splits])] = kernel
    if needs_parts(config):
        own = {"divide_kernel", *OF_HOPPER} if "hopper" in named else {"divide_kernel"}
    else:
        own = {kernel.__name__ for kernel in VARIANTS[config.variant].kernels}
        own = OF_HOPPER if "hopper" in named else own
    return {name: kernel for name, kernel in named.items() if kernel.name in own}


def compile_kernel(kernel: NeededKernel) -> Any:
    """Triton's compiled kernel; its ``asm`` holds every stage (``ttgir``, ``ptx`` or ``amdgcn``)."""
    return triton.compile(kernel.prepare(), target=kernel.target, options=dict(kernel.options))


def compile_config(config: Config, shape: CompileShape) -> dict[str, Resources]:
    """The Resources of each of a config's kernels. Raises as ``needed_kernels``, and any error of Triton."""
    return {name: measure(compile_kernel(kernel)) for name, kernel in needed_kernels(config, shape).items()}


class CompileCase(NamedTuple):
    """All that the kernels of a config depend on."""

    config: Config
    shape: CompileShape

    def check(self) -> None:
        """Raise ValueError or TypeError if it is impossible, RuntimeError if TRITON_INTERPRET is set."""
        checked(self.config)
        self.shape.model()
        if knobs.runtime.interpret:
            raise RuntimeError("TRITON_INTERPRET is set, but compiling needs a process without it")

    @property
    def cost(self) -> int:
        """A number that is larger for what compiles longer."""
        return self.config.block_m * self.config.tile_size * self.shape.head_size


class CompileOutcome(NamedTuple):
    """The resources of each kernel of a case, by name; or why one does not compile."""

    kernels: dict[str, Resources]
    error: str | None = None


def compile_case(case: CompileCase) -> CompileOutcome:
    try:
        return CompileOutcome(compile_config(*case))
    except Exception as error:  # compilers raise any exception
        return CompileOutcome({}, brief(error))


def compile_in_processes(
    compile_one: Callable[[CompileCase], CompileOutcome], cases: Sequence[CompileCase], processes: int
) -> Iterator[CompileOutcome]:
    """Yield the outcome of each case, in order.

    A process that its compiler ends also ends its pool, so each case without a result is tried again, alone.
    """
    if not cases:
        return
    with _pool(min(processes, len(cases))) as pool:
        futures = [pool.submit(compile_one, case) for case in cases]
        for case, future in zip(cases, futures, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool:
                with _pool(1) as alone:
                    try:
                        yield alone.submit(compile_one, case).result()
                    except BrokenProcessPool:
                        yield CompileOutcome({}, ENDED)


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes in which Triton compiles, even if TRITON_INTERPRET is set here."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=follow_parent) as pool:
            yield pool
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret

"""Compilation of a config's kernels as launches on a GPU would compile them, also in several processes."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, TypeVar

import triton

from attn_kernels.core.config import Config
from attn_kernels.core.errors import brief
from attn_kernels.offline.resources import TARGETS, Resources, measure
from attn_kernels.offline.sources import FEATURES, CompileShape, KernelSource, sources
from triton_tune.processes.compile_ahead import follow_parent
from triton_tune.processes.needed_kernels import source_of

Item = TypeVar("Item")
Result = TypeVar("Result")

ENDED = "the compiler ended its process"


def compile_config(config: Config, shape: CompileShape) -> dict[str, Resources]:
    """Compile a config's kernels as a launch would; no GPU is needed.

    Tensors are taken to be contiguous and, except the caches, smaller than 2 GiB.

    Returns:
        The Resources of each kernel, by its name without ``_kernel``, in launch order.

    Raises:
        ValueError: the config or the shape is impossible. TypeError: dtype is not supported.
        RuntimeError: TRITON_INTERPRET is set. Any exception of Triton's compiler.
    """
    return {
        name: measure(compile_source(source, shape.target)) for name, source in sources(config, shape).items()
    }


def compile_source(source: KernelSource, target: str) -> Any:
    """Triton's compiled kernel; its ``asm`` holds every stage (``ttgir``, ``ptx`` or ``amdgcn``)."""
    ast = source_of(source.kernel, source.signature, source.constants, source.attributes)
    return triton.compile(ast, target=TARGETS[target], options=source.options)


class KernelCase(NamedTuple):
    """One kernel of a config at one shape: one line of the table."""

    config: Config
    kernel: str
    shape: CompileShape

    @property
    def name(self) -> str:
        return f"{self.config}/{self.kernel}"

    @property
    def features(self) -> str:
        features = self.shape.features
        return "all" if features == FEATURES else ",".join(features) or "plain"


def attempt(case: KernelCase) -> Resources | str:
    """The Resources of a case's kernel, or why it does not compile."""
    try:
        source = sources(case.config, case.shape)[case.kernel]
        return measure(compile_source(source, case.shape.target))
    except Exception as error:  # compilers raise any exception; the table goes on
        return brief(error)


def compile_in_processes(
    attempt: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[Result | None]:
    """Yield ``attempt(item)`` of each item, in order; None where the compiler ended its process.

    A process that ends also ends its pool, so each item without a result is tried again, alone.
    """
    if not items:
        return
    with _pool(min(processes, len(items))) as pool:
        futures = [pool.submit(attempt, item) for item in items]
        for item, future in zip(items, futures, strict=True):
            result = _result(future)
            if result is None:
                with _pool(1) as alone:
                    result = _result(alone.submit(attempt, item))
            yield result


def _result(future: Future[Result]) -> Result | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


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

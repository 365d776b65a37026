"""The hook through which ``treegen check`` compiles these kernels.

It is the entry point ``attn_kernels`` of the group ``treegen.hooks``; docs/check.md describes the protocol.
"""

import ast
import contextlib
import inspect
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple, Protocol

import torch

from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.offline.compile import compile_config
from attn_kernels.planning import plan
from attn_kernels.warmup.processes import follow_parent

LARGEST_HEAD = 256
LARGEST_GROUP = 64  # query heads a KV head: more are shared among programs of the fallback's tiles
PAGE_SIZE = 16
BF16_BYTES = 2


class CheckCase(Protocol):
    """One compilation that ``treegen check`` requests."""

    @property
    def target(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, int]: ...
    @property
    def largest(self) -> Mapping[str, int | None]: ...


class KernelNeeds(NamedTuple):
    """What a compiled kernel needs; None where the compiler does not tell."""

    shared_memory: int  # bytes a block
    registers: int | None  # a thread
    spills: int | None  # registers that a thread keeps in memory


class CompileOutcome(NamedTuple):
    """What each kernel of a case needs, by name; or why one does not compile."""

    kernels: dict[str, KernelNeeds]
    error: str | None = None


class CompileJob(NamedTuple):
    """All that the kernels of a case depend on."""

    target: str
    config: Config
    head_size: int
    queries_per_kv: int
    features: tuple[str, ...]

    @property
    def cost(self) -> int:
        """A number that is larger for what compiles longer."""
        return self.config.block_m * self.config.tile_size * self.head_size


class AttentionHook:
    """The kernels of ``unified_attention``.

    Of a shape, only the head size and the bytes of a cache element change the shared memory that a kernel
    needs. Page sizes and query heads per KV head change address arithmetic only.
    """

    variants = tuple(VARIANTS)
    parameters = {name: Config._field_defaults.get(name) for name in Config._fields[1:]}  # noqa: RUF012
    sizes = ("head_size", "queries_per_kv", "kv_element_size")
    # The oldest GPUs that the kernels support stand for those without a table.
    targets = {"nvidia": ("sm_80",), "amd": ("gfx90a", "gfx942")}  # noqa: RUF012

    @property
    def features(self) -> tuple[str, ...]:
        """The keyword arguments of the one call of ``choose`` in ``planning.plan``."""
        calls = [
            node
            for node in ast.walk(ast.parse(inspect.getsource(plan)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "choose"
        ]
        (call,) = calls
        return tuple(keyword.arg for keyword in call.keywords if keyword.arg is not None)

    def compile(self, cases: Sequence[CheckCase], jobs: int) -> Iterator[CompileOutcome]:
        """Yield the outcome of each case, in order. Equal cases compile once, the longest first."""
        requested = [_job_of(case) for case in cases]
        distinct = dict.fromkeys(job for job in requested if isinstance(job, CompileJob))
        outcomes = _compile_all(sorted(distinct, key=lambda job: -job.cost), jobs)
        for job in requested:
            yield job if isinstance(job, CompileOutcome) else outcomes[job]


HOOK = AttentionHook()


def _job_of(case: CheckCase) -> CompileJob | CompileOutcome:
    """The compilation at the largest sizes that kernels accept; an outcome if there is no such config."""
    try:
        config = Config(case.variant, **case.parameters)
    except TypeError as error:
        return CompileOutcome({}, str(error))
    element = _size(case, "kv_element_size", BF16_BYTES)
    return CompileJob(
        case.target,
        config,
        _size(case, "head_size", LARGEST_HEAD),
        _size(case, "queries_per_kv", LARGEST_GROUP),
        ("fp8",) if element < BF16_BYTES else (),
    )


def _size(case: CheckCase, name: str, most: int) -> int:
    value = case.largest.get(name)
    return most if value is None else max(1, min(value, most))


def _compile_all(work: list[CompileJob], processes: int) -> dict[CompileJob, CompileOutcome]:
    if not work:
        return {}
    with _pool(min(processes, len(work))) as pool:
        futures = {job: pool.submit(attempt, job) for job in work}
        results = {job: _result(future) for job, future in futures.items()}
    outcomes = {}
    for job, outcome in results.items():
        if outcome is None:  # a compiler ended its process, which ends the pool: compile each again, alone
            with _pool(1) as pool:
                outcome = _result(pool.submit(attempt, job))
        outcomes[job] = outcome or CompileOutcome({}, "the compiler ended its process")
    return outcomes


def _result(future: Future[CompileOutcome]) -> CompileOutcome | None:
    """The outcome; None if the process ended before."""
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


def attempt(job: CompileJob) -> CompileOutcome:
    """Compile a job's kernels, and those to which its launches may fall back."""
    try:
        configs = [job.config]
        if job.config.descriptors:  # layers with a window or a soft cap, and other GPUs, use pointers
            configs.append(job.config._replace(descriptors=0))
        kernels = {name: needs for config in configs for name, needs in _needs(job, config)}
    except Exception as error:  # compilers raise any exception
        lines = str(error).strip().splitlines()
        return CompileOutcome({}, f"{type(error).__name__}: {lines[0] if lines else ''}")
    return CompileOutcome(kernels)


def _needs(job: CompileJob, config: Config) -> Iterable[tuple[str, KernelNeeds]]:
    compiled = compile_config(
        config,
        target=job.target,
        head_size=job.head_size,
        block_size=PAGE_SIZE,
        queries_per_kv=job.queries_per_kv,
        dtype=torch.bfloat16,
        features=job.features,
    )
    for name, used in compiled.items():
        yield name, KernelNeeds(used.shared_bytes, used.registers, used.spills)

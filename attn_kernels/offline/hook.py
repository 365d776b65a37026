"""What ``treegen check`` asks of these kernels: the entry point ``attn_kernels`` of the group
``treegen.hooks``. docs/check.md describes the protocol.
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
LARGEST_GROUP = 64  # rows of the fallback's tiles: more query heads a KV head take several programs
PAGE_SIZE = 16
BF16_BYTES = 2


class Case(Protocol):
    """One compilation that is asked for."""

    @property
    def target(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, int]: ...
    @property
    def largest(self) -> Mapping[str, int | None]: ...


class Needs(NamedTuple):
    """Bytes of shared memory a block; registers and spilled registers a thread, None where not told."""

    shared_memory: int
    registers: int | None
    spills: int | None


class Outcome(NamedTuple):
    """What each kernel of a case needs, by name; or why one does not compile."""

    kernels: dict[str, Needs]
    error: str | None = None


class Work(NamedTuple):
    """All that a case's kernels depend on."""

    target: str
    config: Config
    head_size: int
    queries_per_kv: int
    features: tuple[str, ...]

    @property
    def cost(self) -> int:
        """Larger for what compiles longer."""
        return self.config.block_m * self.config.tile_size * self.head_size


class AttentionHook:
    """The kernels of ``unified_attention``.

    Shared memory grows with the head size and the cache elements' bytes, and with nothing else that a shape
    decides; page sizes and query heads per KV head change address arithmetic only.
    """

    variants = tuple(VARIANTS)
    parameters = {name: Config._field_defaults.get(name) for name in Config._fields[1:]}  # noqa: RUF012
    sizes = ("head_size", "queries_per_kv", "kv_element_size")
    # The oldest GPUs that the kernels are for stand in for those that nobody measured.
    targets = {"nvidia": ("sm_80",), "amd": ("gfx90a", "gfx942")}  # noqa: RUF012

    @property
    def features(self) -> tuple[str, ...]:
        """The keyword arguments of the one call of ``choose`` in ``planning``."""
        calls = [
            node
            for node in ast.walk(ast.parse(inspect.getsource(plan)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "choose"
        ]
        (call,) = calls
        return tuple(keyword.arg for keyword in call.keywords if keyword.arg is not None)

    def compile(self, cases: Sequence[Case], jobs: int) -> Iterator[Outcome]:
        """Compile each distinct case once, the longest first."""
        wanted = [_work(case) for case in cases]
        distinct = dict.fromkeys(one for one in wanted if isinstance(one, Work))
        found = _compiled(sorted(distinct, key=lambda work: -work.cost), jobs)
        for one in wanted:
            yield one if isinstance(one, Outcome) else found[one]


HOOK = AttentionHook()


def _work(case: Case) -> Work | Outcome:
    """What to compile, at the largest sizes that kernels accept; an Outcome where there is no such config."""
    try:
        config = Config(case.variant, **case.parameters)
    except TypeError as error:
        return Outcome({}, str(error))
    element = _size(case, "kv_element_size", BF16_BYTES)
    return Work(
        case.target,
        config,
        _size(case, "head_size", LARGEST_HEAD),
        _size(case, "queries_per_kv", LARGEST_GROUP),
        ("fp8",) if element < BF16_BYTES else (),
    )


def _size(case: Case, name: str, most: int) -> int:
    value = case.largest.get(name)
    return most if value is None else max(1, min(value, most))


def _compiled(work: list[Work], jobs: int) -> dict[Work, Outcome]:
    if not work:
        return {}
    with _pool(min(jobs, len(work))) as pool:
        futures = {one: pool.submit(attempt, one) for one in work}
        outcomes = {one: _result(future) for one, future in futures.items()}
    for one, outcome in outcomes.items():
        if outcome is None:  # a compiler ended one of the processes, and so all of them: each again, alone
            with _pool(1) as pool:
                alone = _result(pool.submit(attempt, one))
            outcomes[one] = alone or Outcome({}, "the compiler ended its process")
    return {one: outcome for one, outcome in outcomes.items() if outcome is not None}


def _result(future: Future[Outcome]) -> Outcome | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return None


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes in which Triton compiles, whatever TRITON_INTERPRET is here."""
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=follow_parent) as pool:
            yield pool
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret


def attempt(work: Work) -> Outcome:
    """Compile a case's kernels. Where a launch may fall back to another kernel, that one as well."""
    try:
        configs = [work.config]
        if work.config.descriptors:  # windows, soft caps and other GPUs
            configs.append(work.config._replace(descriptors=0))
        kernels = {name: needs for config in configs for name, needs in _needs(work, config)}
    except Exception as error:  # a compiler may raise anything
        lines = str(error).strip().splitlines()
        return Outcome({}, f"{type(error).__name__}: {lines[0] if lines else ''}")
    return Outcome(kernels)


def _needs(work: Work, config: Config) -> Iterable[tuple[str, Needs]]:
    used = compile_config(
        config,
        target=work.target,
        head_size=work.head_size,
        block_size=PAGE_SIZE,
        queries_per_kv=work.queries_per_kv,
        dtype=torch.bfloat16,
        features=work.features,
    )
    for name, one in used.items():
        yield name, Needs(one.shared_bytes, one.registers, one.spills)

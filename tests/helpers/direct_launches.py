"""Layers of every kind, launched directly and by Triton's dispatch: whether they give the same bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from launch_threads import in_threads
from torch import Tensor

from attn_kernels import Config, run
from attn_kernels.core.structures import Plan
from attn_kernels.testing.poisoned import PoisonedBatch, make_batch
from benchmarks.launch.timing import launching, synchronise

FP8 = torch.float8_e4m3fn
Lens = tuple[tuple[int, ...], tuple[int, ...]]
LENS: tuple[Lens, ...] = (((5, 1, 0, 1, 33), (40, 90, 20, 1, 300)), ((1,) * 6, (40, 90, 20, 1, 300, 700)))
SMOKE_LENS: tuple[Lens, ...] = (((2, 0), (5, 20)),)
Change = Callable[[PoisonedBatch], dict[str, Any]]


def shifted(tensor: Tensor, elements: int) -> Tensor:
    """Copy a tensor into memory where it begins so many elements in."""
    room = torch.empty(tensor.numel() + elements, dtype=tensor.dtype, device=tensor.device)
    return room[elements:].view(tensor.shape).copy_(tensor)


def gapped(tensor: Tensor, gap: int) -> Tensor:
    """Copy a tensor with ``gap`` elements behind each head."""
    *rows, size = tensor.shape
    room = torch.zeros(*rows, size + gap, dtype=tensor.dtype, device=tensor.device)
    room[..., :size] = tensor
    return room[..., :size]


def heads_first(cache: Tensor) -> Tensor:
    """Copy a cache into pages that hold one head's tokens after another's."""
    return cache.transpose(1, 2).contiguous().transpose(1, 2)


def per_head(batch: PoisonedBatch) -> Tensor:
    return torch.linspace(0.1, 1.0, batch.q.shape[1], device=batch.q.device)


CHANGES: dict[str, Change] = {
    "plain": lambda batch: {},
    "q in wider rows": lambda batch: {"q": gapped(batch.q, 8)},
    "q in rows of odd bytes": lambda batch: {"q": gapped(batch.q, 3)},
    "q 2 bytes off": lambda batch: {"q": shifted(batch.q, 1)},
    "q 8 bytes off": lambda batch: {"q": shifted(batch.q, 4)},
    "out 2 bytes off": lambda batch: {"out": shifted(batch.q, 1)},
    "out in wider rows": lambda batch: {"out": gapped(batch.q, 16)},
    "keys 8 bytes off": lambda batch: {"k_cache": shifted(batch.k_cache, 4)},
    "values 16 bytes off": lambda batch: {"v_cache": shifted(batch.v_cache, 16 // batch.v_cache.itemsize)},
    "caches in wider rows": lambda batch: {
        "k_cache": gapped(batch.k_cache, 16),
        "v_cache": gapped(batch.v_cache, 16),
    },
    "heads first": lambda batch: {
        "k_cache": heads_first(batch.k_cache),
        "v_cache": heads_first(batch.v_cache),
    },
    "other caches": lambda batch: {"k_cache": batch.v_cache, "v_cache": batch.k_cache},
    "window": lambda batch: {"sliding_window": 30},
    "soft cap": lambda batch: {"softcap": 20.0},
    "sinks": lambda batch: {"sinks": per_head(batch)},
    "alibi": lambda batch: {"alibi_slopes": per_head(batch)},
    "lse": lambda batch: {"lse": torch.empty(batch.q.shape[1], batch.q.shape[0], device=batch.q.device)},
    "other scale": lambda batch: {"softmax_scale": 0.3},
    "scales": lambda batch: {"k_scale": 0.5, "v_scale": 2.0},
    "scale tensors": lambda batch: {
        "k_scale": torch.tensor([0.5], device=batch.q.device),
        "v_scale": torch.tensor(2.0, device=batch.q.device),
    },
}
DTYPES = {"bf16": (torch.bfloat16, None), "fp16": (torch.float16, None), "fp8": (torch.bfloat16, FP8)}
FEW = ("plain", "q 2 bytes off", "caches in wider rows", "other caches", "sinks")
TENSORS = ("q", "k_cache", "v_cache")


@dataclass(frozen=True)
class LaunchCase:
    """A config, a batch, and the arguments of ``run`` that replace or join its tensors."""

    config: Config
    name: str
    batch: PoisonedBatch
    options: dict[str, Any]

    def plan(self) -> Plan:
        return self.batch.plan(config=self.config, check=False)

    def run(self, plan: Plan) -> Tensor:
        """Call ``run`` with an output of NaN, strided as the case has it."""
        options = {name: getattr(self.batch, name) for name in TENSORS} | self.options
        like = options.pop("out", self.batch.q)
        room = torch.full(
            (like.storage_offset() + like.numel() * 2,), torch.nan, dtype=like.dtype, device=like.device
        )
        out = room.as_strided(like.shape, like.stride(), like.storage_offset())
        return run(plan, out=out, **options)

    def __str__(self) -> str:
        return f"{self.config}, {self.name}, {self.batch.q.device}"


def cases(
    config: Config, device: torch.device, names: Iterable[str], *, small: bool = False
) -> list[LaunchCase]:
    """List every change in bf16 and the plain layer in all dtypes, for two batches."""
    launch_cases = []
    every_lens, head_size = (SMOKE_LENS, 16) if small else (LENS, 128)
    for name, lens, kind in product(names, every_lens, DTYPES):
        if kind != "bf16" and name != "plain":
            continue
        dtype, cache_dtype = DTYPES[kind]
        batch = make_batch(
            *lens,
            num_query_heads=8,
            num_kv_heads=2,
            head_size=head_size,
            block_size=16,
            dtype=dtype,
            cache_dtype=cache_dtype,
            device=device,
        )
        launch_cases.append(LaunchCase(config, f"{name}, {kind}", batch, CHANGES[name](batch)))
    return launch_cases


def compare(every: list[LaunchCase]) -> tuple[int, list[str]]:
    """Return how many outputs were compared, and a line for each that differs from Triton's dispatch.

    Each plan serves three rounds over all cases. The first round launches new signatures through Triton; the
    others launch directly where that is possible. New plans then launch kernels that earlier plans compiled.
    """
    with launching("public"):
        expected = [case.run(case.plan()) for case in every]
    count, wrong = 0, []
    with launching("direct"):
        for generation in range(2):
            plans = [case.plan() for case in every]
            for number in range(3):
                outputs = [case.run(plan) for case, plan in zip(every, plans, strict=True)]
                for case, one, other in zip(every, outputs, expected, strict=True):
                    count += 1
                    if not torch.equal(one, other):
                        wrong.append(f"plans {generation}, round {number}: {case}")
    return count, wrong


def stress(
    every: list[LaunchCase], device: torch.device, seconds: float, threads: int, at_a_time: int = 8
) -> tuple[int, list[str]]:
    """Launch from many threads on two streams; return the number of launches and a line a difference."""
    with launching("public"):
        expected = [case.run(case.plan()) for case in every]
    synchronise(device)
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.Stream(device) for _ in range(2)] if on_gpu else []  # type: ignore[no-untyped-call]

    def launch_some(_: int, turn: int) -> tuple[int, list[str]]:
        """Run four layers of some cases, each case with a plan of its own; then compare."""
        indices = [(turn * 7 + step) % len(every) for step in range(at_a_time)]
        outputs = []
        with torch.cuda.stream(streams[turn % 2]) if on_gpu else contextlib.nullcontext():
            for index in indices:
                plan = every[index].plan()
                outputs += [(index, every[index].run(plan), plan) for _ in range(4)]
            wrong = [str(every[index]) for index, out, _ in outputs if not torch.equal(out, expected[index])]
        return len(outputs), wrong

    with launching("direct"):
        launches, problems = in_threads(launch_some, threads, seconds)
    synchronise(device)
    return launches, problems


@dataclass(frozen=True)
class DirectLaunches:
    """A config, and the changes that its layers have; the parameter of a test."""

    name: str
    config: Config
    changes: tuple[str, ...]

    def jobs(self) -> Iterator[ChangeJob]:
        return (ChangeJob(self.config, change) for change in self.changes)

    def cases(self, device: torch.device) -> list[LaunchCase]:
        return cases(self.config, device, self.changes)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ChangeJob:
    """Compiles what a config launches for layers with one change."""

    config: Config
    change: str
    cost: int = 1

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({(self.config, self.change)})

    def run(self, device: torch.device) -> None:
        with launching("public"):
            for case in cases(self.config, device, (self.change,)):
                case.run(case.plan())

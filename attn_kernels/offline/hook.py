"""The hooks through which ``treegen check`` compiles these kernels.

They are the entry points ``attn_kernels`` and ``attn_kernels_mixed`` of the group ``treegen.hooks``;
docs/check.md describes the protocol, and what a case is.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch

from attn_kernels.choose.mixed import WITHOUT_KERNEL, mixed_features, needs_parts
from attn_kernels.core.checks import MAX_HEAD_SIZE
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.kernels.arguments import without_tma
from attn_kernels.kernels.hopper_limits import HEAD_SIZES, asked_by, unsupported_shape
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.offline.compile import (
    CompileCase,
    CompileOutcome,
    CompileShape,
    compile_case,
    compile_in_processes,
)
from attn_kernels.offline.resources import Resources

UNBOUND_HEAD = 256  # for configs without a constraint on it; plans refuse wider heads that do not fit
LARGEST_GROUP = 64  # query heads per KV head: more are shared among programs of the fallback's tiles
PAGE_SIZE = 16
BF16_BYTES = 2
# Shapes on both sides of every limit of the Hopper kernel, as ``unsupported_shape`` takes them.
SHAPES = {
    "head_size": (32, 48, 63, 64, 65, 72, 80, 96, 104, 112, 128, 144, 160, 176, 192, 208, 256, 257, 512),
    "block_size": (16, 24),
    "gqa_group_size": (1, 7, 128, 129),
    "kv_element_size": (1, 2),
    "num_kv_heads": (8, 28),
}
ANY_MODEL = Model(1, 1, 16, PAGE_SIZE, torch.bfloat16)
WAYS = tuple(way.variant for way in WITHOUT_KERNEL)


class RefusedLaunch(NamedTuple):
    """A launch that the code refuses, so that the spec's constraints must exclude it."""

    target: str
    variant: str
    parameters: dict[str, int]
    features: dict[str, int]


class AttentionHook:
    """The kernels of ``unified_attention``.

    Of a shape, only the head size and the bytes of a cache element change the shared memory that a kernel
    needs. Page sizes and query heads per KV head change address arithmetic only.
    """

    variants = tuple(name for name, variant in VARIANTS.items() if not variant.mixed)
    parameters = {name: Config._field_defaults.get(name) for name in Config._fields[1:]}  # noqa: RUF012
    sizes = ("head_size", "gqa_group_size", "kv_element_size")
    # The oldest GPUs that the kernels support stand for those without a table.
    targets = {"nvidia": ("sm_80",), "amd": ("gfx90a", "gfx942")}  # noqa: RUF012

    features = (*Lengths._fields, *ANY_MODEL.features)  # what ``Choices.config`` passes

    @property
    def refused(self) -> Iterator[RefusedLaunch]:
        """What the Hopper kernel refuses of ``SHAPES``, for each tuned config that asks for it."""
        variants = [VARIANTS[name] for name in self.variants if name in VARIANTS]
        asking = [config for variant in variants for config in variant.configs() if asked_by(config)]
        for config, shape in product(asking, product(*SHAPES.values())):
            if unsupported_shape(config, *shape):
                head_size, block_size, group, element, kv_heads = shape
                features = {"head_size": head_size, "block_size": block_size, "kv_element_size": element}
                features |= {"num_kv_heads": kv_heads, "num_query_heads": group * kv_heads}
                variant, parameters = config.variant, dict(zip(config._fields[1:], config[1:], strict=True))
                yield RefusedLaunch("sm_90", variant, parameters, features)

    def compile(self, cases: Sequence[Any], jobs: int) -> Iterator[CompileOutcome]:
        """Yield the outcome of each case, in order. Equal cases compile once, the longest first."""
        requested = [_job_of(case) for case in cases]
        distinct = dict.fromkeys(job for job in requested if isinstance(job, CompileCase))
        ordered = sorted(distinct, key=lambda job: -job.cost)
        outcomes = dict(zip(ordered, compile_in_processes(attempt, ordered, jobs), strict=True))
        for job in requested:
            yield job if isinstance(job, CompileOutcome) else outcomes[job]


class MixedHook(AttentionHook):
    """The kernels of ``mixed_attention``."""

    variants = (*WAYS, *(name for name, variant in VARIANTS.items() if variant.mixed))
    features = tuple(mixed_features(Parts.of((), ()), ANY_MODEL))


HOOK = AttentionHook()
MIXED_HOOK = MixedHook()


def _job_of(case: Any) -> CompileCase | CompileOutcome:
    """The compilation at the largest sizes that kernels accept; an outcome if there is no such config."""
    try:
        config = Config(case.variant, **case.parameters)
    except TypeError as error:
        return CompileOutcome({}, str(error))
    element = _size(case, "kv_element_size", BF16_BYTES)
    head_size = _size(case, "head_size", MAX_HEAD_SIZE, UNBOUND_HEAD)
    group = _size(case, "gqa_group_size", LARGEST_GROUP)
    features = ("fp8",) if element < BF16_BYTES else ()
    return CompileCase(
        config, CompileShape(case.target, head_size, PAGE_SIZE, group, torch.bfloat16, features)
    )


def _size(case: Any, name: str, most: int, unbound: int | None = None) -> int:
    value = case.largest.get(name)
    return unbound or most if value is None else max(1, min(value, most))


def shape_of_hopper(config: Config, shape: CompileShape) -> CompileShape | None:
    """The shape, reduced to the largest sizes that the Hopper kernel accepts; None if it accepts none."""
    if shape.target != "sm_90" or not asked_by(config):
        return None
    heads = [head_size for head_size in HEAD_SIZES[::-1] if head_size <= shape.head_size]
    groups = [min(group, shape.gqa_group_size) for group in (shape.gqa_group_size, 32, 16, 8, 4, 2, 1)]
    element = 1 if "fp8" in shape.features else BF16_BYTES
    for head_size, group in product(heads, groups):
        if unsupported_shape(config, head_size, PAGE_SIZE, group, element) is None:
            return shape._replace(head_size=head_size, gqa_group_size=group)
    return None


def attempt(job: CompileCase) -> CompileOutcome:
    """Compile a job's kernels, and those to which its launches may fall back.

    What the Hopper kernel cannot compute falls back to pointers, or to the parts of a mixed batch. The
    configs of the parts, and of whole batches, are cases of ``unified_attention``.
    """
    config, shape = job
    of_hopper = shape_of_hopper(config, shape)
    cases = [] if of_hopper is None else [CompileCase(config, of_hopper)]
    if of_hopper is None or not needs_parts(config):
        cases.append(CompileCase(without_tma(config, shape.head_size), shape))
    kernels: dict[str, Resources] = {}
    for case in cases:
        outcome = compile_case(case)
        if outcome.error is not None:
            return outcome
        kernels |= outcome.kernels
    return CompileOutcome(kernels)

"""Launches on a few tokens, which compile and load the kernels that a model's layers need.

Triton compiles a kernel once for each combination of these: config, query heads per KV head, head size, page
size, type of the queries, type of the caches, and set of score options. On AMD, it also compiles one kernel
for caches of up to 2 GiB and another for larger ones. Other lengths, numbers and numbers of heads compile
nothing new. Strides and addresses compile nothing new either, if

- tensors begin at multiples of 16 bytes, and rows and heads are multiples of 16 bytes apart if a head is,
- keys are strided as values are, and both scales are tensors or both are numbers,
- on AMD, no tensor beside the caches is larger than 2 GiB.
"""

import dataclasses
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.arguments import ONE_PROGRAM_OPTIONS
from attn_kernels.kernels.schedule import divide_kernel
from attn_kernels.kernels.splits import JOINED_AT_ONCE
from attn_kernels.launch import direct
from attn_kernels.launch.merge import merge_attention_states
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan

# Keyword arguments of ``run`` that a kind of layer has. "sinks": of the queries' dtype;
# "float32_sinks": of that; "scales": as tensors, not numbers.
FEATURES = ("window", "noncausal", "softcap", "alibi", "sinks", "float32_sinks", "scales", "lse", "ranges")

LENGTHS = (1, 2)  # a decode and a prompt
# Of a context. No kernel depends on the lengths, but contexts have to be long to be split.
LONG_CONTEXT = 32768
PARTS = Parts(Lengths(1, 1, 1, 1, 1), Lengths(1, 2, 2, 2, 2))
ALIGNMENT = 256  # bytes, of each cache
LARGE = 2**31  # bytes; AMD kernels address less with 32-bit offsets


@dataclass(frozen=True)
class DummyLaunch:
    """A launch on dummy tensors of a model's layout; a ``Job``."""

    config: Config
    model: Model
    features: frozenset[str] = frozenset()
    large: bool = False  # whether caches take more than 2 GiB
    for_capture: bool = False  # whether the GPU finds the keys of each split

    @property
    def needs(self) -> frozenset[Hashable]:
        group = self.model.gqa_group_size
        model = dataclasses.replace(self.model, num_query_heads=group, num_kv_heads=1, sliding_window=None)
        return frozenset({dataclasses.replace(self, model=model)})

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.model.head_size

    def __str__(self) -> str:
        """``qblock_M64_T64_W4_S3 heads 32/8/128 page 16 bfloat16 window``."""
        model = self.model
        dtypes = [str(dtype).removeprefix("torch.") for dtype in (model.dtype, model.cache_dtype) if dtype]
        words = [*sorted(self.features), *["large caches"] * self.large, *["graph"] * self.for_capture]
        heads = f"{model.num_query_heads}/{model.num_kv_heads}/{model.head_size}"
        return " ".join([f"{self.config} heads {heads} page {model.block_size}", "/".join(dtypes), *words])

    def run(self, device: torch.device) -> None:
        """Compile and load the kernels. Raises as ``plan`` and ``run``, and Triton's own errors."""
        model, step, caches = self.model, _plan(self, device), _caches(self.model, self.large, device)
        rows = (sum(LENGTHS), model.num_query_heads, model.head_size)
        q = torch.zeros(rows, dtype=model.dtype, device=device)
        # The real sequences are too short to be split, whatever the plan's number of splits.
        for splits in JOINED_AT_ONCE if step.num_splits > 1 else (1,):
            step = dataclasses.replace(step, num_splits=splits, launches={})
            for options in _options(self, device):
                out = run(step, q, *caches, **options)
                if "lse" in options:
                    merge_attention_states(out, options["lse"], out, options["lse"])
        _divide(device)


def _caches(model: Model, large: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Make caches of one page each, side by side; only large caches take memory."""
    shape = (1, model.block_size, model.num_kv_heads, model.head_size)
    size = torch.Size(shape).numel() * model.kv_element_size
    apart = -(-size // ALIGNMENT) * ALIGNMENT
    size_in_memory = max(2 * apart, LARGE if large else 0)
    memory = torch.empty(size_in_memory, dtype=torch.uint8, device=device)
    memory[: 2 * apart].zero_()
    k_cache, v_cache = (
        memory[start : start + size].view(model.cache_dtype or model.dtype).view(shape)
        for start in (0, apart)
    )
    return k_cache, v_cache


def _plan(launch: DummyLaunch, device: torch.device) -> Plan:
    """Plan sequences that all share the one page."""

    def indices(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    longest = max(LENGTHS) if needs_parts(launch.config) else LONG_CONTEXT
    pages = -(-longest // launch.model.block_size)
    return plan(
        indices([0, LENGTHS[0], sum(LENGTHS)]),
        indices(LENGTHS),
        indices([[0] * pages] * len(LENGTHS)),
        # With a window, or where queries see keys that the plan does not count, contexts are split less.
        dataclasses.replace(launch.model, sliding_window=None, causal="noncausal" not in launch.features),
        num_query_tokens=sum(LENGTHS),
        num_kv_tokens=sum(LENGTHS),
        max_query_len=max(LENGTHS),
        max_seq_len=longest,
        config=launch.config,
        check=False,
        for_capture=launch.for_capture,
        parts=PARTS if needs_parts(launch.config) else None,
    )


def _divide(device: torch.device) -> None:
    """Launch the kernel that divides mixed batches: one for all configs and models."""
    starts = torch.zeros(2, dtype=torch.int32, device=device)
    arguments = [starts, starts, starts, 1, 0, 0, 0]
    direct.launch_kernel(divide_kernel, (1,), arguments, ONE_PROGRAM_OPTIONS)


def _options(launch: DummyLaunch, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments of ``run``, for each set of kernels that the features need."""
    model, features = launch.model, launch.features
    options: dict[str, Any] = {}
    if "window" in features:
        options["sliding_window"] = 1
    if "noncausal" in features:
        options["causal"] = False
    if "softcap" in features:
        options["softcap"] = 1.0
    if "alibi" in features:
        options["alibi_slopes"] = torch.zeros(model.num_query_heads, dtype=torch.float32, device=device)
    if "scales" in features:
        options["k_scale"] = options["v_scale"] = torch.ones(1, dtype=torch.float32, device=device)
    if "lse" in features:
        options["lse"] = torch.empty(model.num_query_heads, sum(LENGTHS), dtype=torch.float32, device=device)
    if "ranges" in features:
        options["bidirectional_ranges"] = torch.zeros(len(LENGTHS), 1, 2, dtype=torch.int32, device=device)
    if "sinks" in features:
        options["sinks"] = torch.zeros(model.num_query_heads, dtype=model.dtype, device=device)
    if "float32_sinks" in features:
        options["sinks"] = torch.zeros(model.num_query_heads, dtype=torch.float32, device=device)
    yield options
    if launch.config.tma and model.kv_element_size == 1 and "scales" not in features:
        yield options | {"v_scale": 2.0}  # an argument of the Hopper kernel where it is not 1

"""Arguments and options of launches: those with which every kernel begins, ``const``, Triton's options."""

import math
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime import driver

from attn_kernels.core.config import Config
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.compile_params import CompileParams
from triton_tune.core.device import describe_device

LOG2_E = 1.4426950408889634
VECTOR_BYTES = 16  # the widest access of one thread
E4M3_CAPABILITY = (8, 9)  # Triton converts fp8 e4m3 on NVIDIA GPUs from this compute capability on
LEAST_PAIRED = 32  # elements of a padded head, so that half of them fill a matrix instruction
WIDEST_AS_GIVEN = 128  # columns of a head for which the tiles of the Hopper kernel fit without it
WIDE_HEAD = 512  # columns of a head that large query tiles compute in halves
LEAST_HALVED = 64  # rows of these: a thread of a usual config has no registers for all columns

# Integers that never specialise a kernel, so that no step and no other model compiles it again. Strides are
# in units of query_unit or cache_unit elements, which is all that a wide load must know of them.
RUNTIME_INTS = (
    *("window", "ahead", "causal", "num_seqs", "num_decodes", "num_decode_tokens", "max_decode_len"),
    *("max_query_len", "max_draft", "heads_per_group", "num_kv_heads", "split_keys", "num_splits"),
    *("max_q_blocks", "tiles_at", "multiprocessors", "block_q", "tile_size", "max_ranges"),
    *("stride_q_token", "stride_q_head", "stride_out_token", "stride_out_head", "stride_lse"),
    *("stride_a_token", "stride_a_head", "stride_b_token", "stride_b_head", "stride_lse_a", "stride_lse_b"),
    *("stride_table", "stride_k_page", "stride_k_slot", "stride_k_head", "stride_v_page", "stride_v_slot"),
    *("stride_v_head", "k_page_rows", "k_head_rows", "k_head_columns", "v_page_rows", "v_head_rows"),
    "v_head_columns",
)
INDEX_POINTERS = (
    *("block_table_ptr", "cu_seqlens_q_ptr", "cu_decodes_ptr", "cu_prompts_ptr", "seqused_k_ptr"),
    *("counters_ptr", "split_keys_ptr", "schedule_ptr", "ranges_ptr"),
)
LSE_POINTERS = ("lse_ptr", "lse_a_ptr", "lse_b_ptr")
UNALIGNED_POINTERS = (*INDEX_POINTERS, "slopes_ptr", "sinks_ptr", "k_scale_ptr", "v_scale_ptr", *LSE_POINTERS)
JIT_OPTIONS: dict[str, Any] = {
    "do_not_specialize": RUNTIME_INTS,
    "do_not_specialize_on_alignment": UNALIGNED_POINTERS,
}

# Triton's options of kernels that run once per plan, in one program.
ONE_PROGRAM_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

CU_SEQLENS_Q = OfPlan(attrgetter("cu_seqlens_q"))
SEQUSED_K = OfPlan(attrgetter("batch.seqused_k"))
BLOCK_TABLE = OfPlan(attrgetter("batch.block_table"))
STRIDE_TABLE = OfPlan(lambda plan: plan.batch.block_table.stride(0))
NUM_SEQS = OfPlan(attrgetter("lengths.num_seqs"))
NUM_SPLITS = OfPlan(attrgetter("num_splits"))
MAX_QUERY_LEN = OfPlan(attrgetter("lengths.max_query_len"))
LSE_STRIDE = OfPlan(attrgetter("batch.lengths.num_query_tokens"))


def one_program_grid(plan: Plan) -> tuple[int]:
    return (1,)


def of_workspace(index: int) -> OfPlan:
    return OfPlan(lambda plan: plan.workspace[index])


def head_padded(head_size: int) -> int:
    """Columns of a tile that holds a head: a power of two that matrix instructions accept."""
    return max(16, 1 << (head_size - 1).bit_length())


def without_tma(config: Config, head_size: int) -> Config:
    """The config to launch where the Hopper kernel cannot run it, with tiles that fit shared memory."""
    if config.tma and head_padded(head_size) > WIDEST_AS_GIVEN:
        wide = head_padded(head_size) >= WIDE_HEAD
        config = config._replace(tile_size=32 if wide else 64, num_stages=2)
    return config._replace(tma=0)


def output_columns(block_m: int, head_size: int) -> int:
    """Columns of the output that one program computes; each program multiplies whole queries and keys."""
    columns = head_padded(head_size)
    return columns // 2 if columns >= WIDE_HEAD and block_m >= LEAST_HALVED else columns


def compile_options(config: Config, vendor: str) -> dict[str, int | bool]:
    """Triton's own options of a config; ``vendor`` is "nvidia" or "amd"."""
    options: dict[str, int | bool] = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        # Named, because Triton's default is to change. Without it, all loops of a kernel round alike.
        "enable_fp_fusion": config.variant != "invariant",
    }
    if vendor == "nvidia" and config.max_registers:
        options["maxnreg"] = config.max_registers
    if vendor == "amd":
        options |= {"waves_per_eu": config.waves_per_eu, "matrix_instr_nonkdim": config.matrix_size}
    return options


@lru_cache(maxsize=4096)
def launch_constants(
    config: Config,
    vendor: str,
    query_strides: tuple[int, ...],
    cache_strides: tuple[int, ...],
    cache_bytes: int,
    *,
    head_size: int,
    block_size: int,
    gqa_group_size: int,
    windowed: bool = False,
    softcapped: bool = False,
    alibi: bool = False,
    aligned: bool = True,
    converts: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...], CompileParams, dict[str, int | bool]]:
    """Query strides and cache strides in their units, ``const`` and Triton's options, which most steps share.

    Args:
        vendor: "nvidia" or "amd".
        query_strides, cache_strides: in elements; three of K come before three of V.
        cache_bytes: of a cache element. block_size: tokens per page.
        aligned: caches begin at multiples of 16 bytes.
        converts: caches are fp8, on an NVIDIA GPU whose instructions convert that.
    """
    config = without_tma(config, head_size)
    query_unit = math.gcd(VECTOR_BYTES // 2, *query_strides)
    cache_unit = math.gcd(VECTOR_BYTES // cache_bytes, *cache_strides)
    const = CompileParams(
        head_size=head_size,
        head_padded=head_padded(head_size),
        columns=output_columns(config.block_m, head_size),
        page_size=block_size,
        gqa_group_size=gqa_group_size,
        heads=min(gqa_group_size, config.block_m),
        block_m=config.block_m,
        tile_size=config.tile_size,
        num_stages=config.num_stages,
        query_unit=query_unit,
        cache_unit=cache_unit,
        same_kv_strides=cache_strides[:3] == cache_strides[3:],
        windowed=windowed,
        softcapped=softcapped,
        alibi=alibi,
        bypass_l1=bool(config.bypass_l1),
        paired=(
            (vendor, cache_bytes, aligned, cache_unit % 2, head_size % 2) == ("nvidia", 1, True, 0, 0)
            and head_padded(head_size) >= LEAST_PAIRED
        ),
        converts_e4m3=converts,
        invariant=config.variant == "invariant",
    )
    in_query_units = tuple(n // query_unit for n in query_strides)
    in_cache_units = tuple(n // cache_unit for n in cache_strides)
    return in_query_units, in_cache_units, const, compile_options(config, vendor)


@cache
def converts_e4m3(device: torch.device) -> bool:
    if device.type == "cpu" or torch.version.hip:
        return True
    return torch.cuda.get_device_capability(device) >= E4M3_CAPABILITY


def _scale(name: str, scale: float | Tensor) -> tuple[float, OfLayer | None]:
    """A scale as a number and a pointer; the kernel multiplies both."""
    return (1.0, OfLayer(name)) if isinstance(scale, Tensor) else (float(scale), None)


def lse_arguments(layer: Layer) -> tuple[OfLayer | None, OfPlan | None]:
    """The arguments ``lse_ptr`` and ``stride_lse``; None of a layer without ``lse``."""
    return (None, None) if layer.lse is None else (OfLayer("lse"), LSE_STRIDE)


def _score_numbers(softmax_scale: float, softcap: float) -> tuple[float, float]:
    """``factor`` and ``cap`` of ``Scoring``."""
    factor = softmax_scale * LOG2_E
    return (2.0 * factor / softcap, softcap * LOG2_E) if softcap else (factor, 0.0)


def common_arguments(
    plan: Plan, layer: Layer
) -> tuple[tuple[Any, ...], CompileParams, dict[str, int | bool]]:
    """The arguments with which every kernel begins, ``const``, and Triton's options, for like plans."""
    config, q, out, k_cache, v_cache = plan.config, layer.q, layer.out, layer.k_cache, layer.v_cache
    one_byte = k_cache.element_size() == 1
    as_bytes = one_byte and not converts_e4m3(plan.device)
    in_query_units, in_cache_units, const, options = launch_constants(
        config,
        "amd" if torch.version.hip else "nvidia",
        q.stride()[:2] + out.stride()[:2],
        k_cache.stride()[:3] + v_cache.stride()[:3],
        k_cache.element_size(),
        head_size=plan.model.head_size,
        block_size=plan.model.block_size,
        gqa_group_size=plan.model.gqa_group_size,
        windowed=layer.sliding_window is not None,
        softcapped=layer.softcap != 0.0,
        alibi=layer.alibi_slopes is not None,
        aligned=k_cache.data_ptr() % VECTOR_BYTES == v_cache.data_ptr() % VECTOR_BYTES == 0,
        converts=one_byte and not as_bytes and not torch.version.hip and not knobs.runtime.interpret,
    )
    cache_view = torch.uint8 if as_bytes else None
    k_scale, k_scale_tensor = _scale("k_scale", layer.k_scale)
    v_scale, v_scale_tensor = _scale("v_scale", layer.v_scale)
    lse, lse_stride = lse_arguments(layer)
    arguments = (
        OfLayer("out"),
        OfLayer("q"),
        OfLayer("k_cache", cache_view),
        OfLayer("v_cache", cache_view),
        BLOCK_TABLE,
        CU_SEQLENS_Q,
        SEQUSED_K,
        None if layer.alibi_slopes is None else OfLayer("alibi_slopes"),
        None if layer.sinks is None else OfLayer("sinks"),
        k_scale_tensor,
        v_scale_tensor,
        lse,
        *_score_numbers(layer.softmax_scale, layer.softcap),
        k_scale,
        v_scale,
        layer.sliding_window or 0,
        layer.ahead,
        NUM_SEQS,
        *in_query_units,
        lse_stride,
        STRIDE_TABLE,
        *in_cache_units,
    )
    return arguments, const, options


def ranges_of(layer: Layer) -> tuple[OfLayer | None, int | None]:
    """The arguments ``ranges_ptr`` and ``max_ranges``."""
    ranges = layer.bidirectional_ranges
    return (None, None) if ranges is None else (OfLayer("bidirectional_ranges"), ranges.shape[1])


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have on a GPU."""
    return int(driver.active.utils.get_device_properties(device.index or 0)["max_shared_mem"])


def check_shared_memory(config: Config, model: Model, device: torch.device) -> None:
    """Raise ValueError where the Q-Block kernel of a wide head needs more shared memory than a GPU has."""
    head = head_padded(model.head_size)
    if head < WIDE_HEAD or device.type == "cpu":
        return
    plain = without_tma(config, model.head_size)
    columns = head + output_columns(plain.block_m, model.head_size)  # of a key and a value
    needed = plain.tile_size * columns * model.kv_element_size * (plain.num_stages - 1)
    if not torch.version.hip:
        needed += plain.block_m * head * model.dtype.itemsize  # queries
    if needed > shared_memory(device):
        raise ValueError(
            f"head_size is {model.head_size}, but a program may have {shared_memory(device)} bytes of shared "
            f"memory on {describe_device(device)[0]}, and {config} needs at least {needed}"
        )


INTERPRETED_PROCESSORS = 3  # in Triton's interpreter


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors (NVIDIA) or compute units (AMD) of a device."""
    if device.type == "cpu":
        return INTERPRETED_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count

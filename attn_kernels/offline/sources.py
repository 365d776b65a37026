"""The sources that Triton compiles for a launch: types, constants and alignments of the arguments."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from attn_kernels.core import checks
from attn_kernels.core.config import Config
from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.arguments import (
    E4M3_CAPABILITY,
    INDEX_POINTERS,
    ONE_PROGRAM_OPTIONS,
    RUNTIME_INTS,
    UNALIGNED_POINTERS,
    VECTOR_BYTES,
    Specialisation,
    launch_constants,
)
from attn_kernels.kernels.hopper_joins import specialise_joins
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.kernels.schedule import CHUNK, SPLIT_COST, schedule_kernel
from attn_kernels.kernels.splits import Wave
from attn_kernels.offline.resources import TARGETS

# The options of a launch beside q and the caches. "scales" stands for scales in tensors on the device instead
# of numbers.
FEATURES = ("window", "noncausal", "softcap", "alibi", "sinks", "fp8", "scales", "lse", "ranges")
# Arguments that are there with a feature only; the second, of the Hopper kernel.
ARGUMENTS_OF_FEATURES = {
    "ahead": "noncausal",
    "slopes_ptr": "alibi",
    "sinks_ptr": "sinks",
    "k_scale_ptr": "scales",
    "v_scale_ptr": "scales",
    "lse_ptr": "lse",
    "stride_lse": "lse",
    "ranges_ptr": "ranges",
    "max_ranges": "ranges",
}
HOPPER_FEATURES = {
    name: feature for name, feature in ARGUMENTS_OF_FEATURES.items() if feature != "ranges"
} | {"window": "window", "cap": "softcap"}
FLOATS = ("factor", "cap", "k_scale", "v_scale", "row_cost", "least_splits", "least_even", *Wave._fields)
SCALAR_POINTERS = ("slopes_ptr", "sinks_ptr", "k_scale_ptr", "v_scale_ptr", "lse_ptr")
PARTIAL_POINTERS = ("partial_ptr", "max_ptr", "sum_ptr")
CACHE_POINTERS = ("k_ptr", "v_ptr")
DTYPE_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class CompileShape(NamedTuple):
    """The compile-time facts of a launch beside its config."""

    target: str  # a key of ``TARGETS``
    head_size: int
    block_size: int  # tokens per page
    gqa_group_size: int  # query heads that share a KV head
    dtype: torch.dtype
    features: tuple[str, ...]  # of ``FEATURES``

    @property
    def gpu(self) -> GPUTarget:
        return TARGETS[self.target]

    def check(self) -> None:
        """Raise ValueError or TypeError where kernels cannot be compiled for this."""
        checks.check_heads(self.gqa_group_size, 1, self.head_size)
        checks.check_int("block_size", self.block_size, 1)
        checks.check_dtype(self.dtype)
        if self.target not in TARGETS:
            raise ValueError(f"target is {self.target!r}, but the targets are: {', '.join(TARGETS)}")
        for feature in self.features:
            if feature not in FEATURES:
                raise ValueError(f"feature is {feature!r}, but the features are: {', '.join(FEATURES)}")


class KernelSource(NamedTuple):
    """A kernel and what Triton compiles it for."""

    kernel: Any
    signature: dict[str, str]  # argument types by name
    constants: dict[str, Any]  # compile-time arguments by name
    attributes: dict[tuple[int, ...], list[list[Any]]]  # of pointers, by their position
    options: dict[str, int | bool]  # Triton's own


def sources(config: Config, shape: CompileShape) -> dict[str, KernelSource]:
    """The kernels that a config launches for contiguous tensors, by their names without ``_kernel``.

    Raises ValueError or TypeError on an impossible config or shape, RuntimeError if TRITON_INTERPRET is set.
    """
    check_config(config)
    shape.check()
    if not isinstance(schedule_kernel, JITFunction):
        raise RuntimeError("TRITON_INTERPRET is set, but compiling needs a process without it")
    if hopper_limits.asked_by(config) and shape.target == "sm_90":
        from attn_kernels.kernels import hopper  # not at import: Gluon is experimental

        tile = (shape.head_size, shape.block_size, shape.gqa_group_size, _cache_bytes(shape))
        computed = hopper_limits.OPTIONS[config.variant].issuperset(shape.features)
        if computed and hopper_limits.unsupported_shape(config, *tile) is None:
            prompts = config.variant == "qblock"
            joins = [specialise_joins(config, shape.head_size, shape.gqa_group_size)] if prompts else []
            return {
                "schedule": _schedule_source(hopper, config, shape),
                "hopper": _hopper_source(hopper, config, shape),
                **_specialised(config, joins, shape),
            }
    return _specialised(config, VARIANTS[config.variant].specialisations, shape)


def _specialised(
    config: Config, specialisations: Iterable[Specialisation], shape: CompileShape
) -> dict[str, KernelSource]:
    return {
        special.kernel.__name__.removesuffix("_kernel") + special.suffix: _source(config, special, shape)
        for special in specialisations
    }


def _source(config: Config, special: Specialisation, shape: CompileShape) -> KernelSource:
    stride = shape.head_size  # it divides all strides of a contiguous tensor
    *_, const, options = launch_constants(
        config,
        "amd" if shape.gpu.backend == "hip" else "nvidia",
        (stride,),
        (stride,) * 6,
        _cache_bytes(shape),
        head_size=shape.head_size,
        block_size=shape.block_size,
        gqa_group_size=shape.gqa_group_size,
        windowed="window" in shape.features,
        softcapped="softcap" in shape.features,
        alibi="alibi" in shape.features,
        converts="fp8" in shape.features and shape.gpu.backend == "cuda" and _converts_e4m3(shape),
    )
    names = special.kernel.arg_names
    absent = {name for name, feature in ARGUMENTS_OF_FEATURES.items() if feature not in shape.features}
    constants = {**special.constants, **dict.fromkeys(absent.intersection(names))}
    if "const" in names:
        constants["const"] = const if special.const_of is None else special.const_of(const)
    signature = {name: "constexpr" if name in constants else _argument_type(name, shape) for name in names}
    if special.options is not None:
        options = dict(special.options)
    return KernelSource(special.kernel, signature, constants, _attributes(signature, shape.gpu), options)


def _schedule_source(hopper: Any, config: Config, shape: CompileShape) -> KernelSource:
    """The kernel that computes the schedule of the Hopper kernel once per plan."""
    values = (*hopper_limits.roles_of(config, shape.gqa_group_size), CHUNK, SPLIT_COST)
    names = schedule_kernel.arg_names[-len(values) :]
    return index_source(schedule_kernel, dict(zip(names, values, strict=True)), shape.target)


def index_source(kernel: Any, constants: dict[str, Any], target: str) -> KernelSource:
    """A kernel that runs once per plan and takes index tensors and integers."""
    types = {name: "*i32" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}
    signature = types | dict.fromkeys(constants, "constexpr")
    attributes = _attributes(signature, TARGETS[target])
    return KernelSource(kernel, signature, constants, attributes, dict(ONE_PROGRAM_OPTIONS))


def _hopper_source(hopper: Any, config: Config, shape: CompileShape) -> KernelSource:
    """The kernel that configs with ``tma`` and of ``pod`` launch on Hopper GPUs."""
    kernel = hopper.hopper_kernel
    cache_bytes = _cache_bytes(shape)
    const = hopper_limits.constants(
        config, shape.head_size, shape.block_size, shape.gqa_group_size, cache_bytes
    )
    wide, tail = hopper.box_columns(shape.head_size, cache_bytes)
    absent = [name for name, feature in HOPPER_FEATURES.items() if feature not in shape.features]
    absent += [] if "fp8" in shape.features and "scales" not in shape.features else ["v_scale"]
    absent += [] if tail else ["k_tail_desc", "v_tail_desc"]
    # There are either fragments of decodes or splits of prompts.
    absent.append("num_splits" if const.decode_tile else "counters_ptr")
    constants = {"const": const, **dict.fromkeys(absent)}
    cache_dtype = "fp8e4nv" if "fp8" in shape.features else DTYPE_NAMES[shape.dtype]

    def argument_type(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name.endswith("_desc"):
            columns = tail if name.endswith("_tail_desc") else wide
            layout = hopper.box_layout(columns, cache_bytes)
            return f"tensordesc<{cache_dtype}[{const.box}, {columns}],{layout!r}>"
        return _argument_type(name, shape)

    signature = {name: argument_type(name) for name in kernel.arg_names}
    return KernelSource(
        kernel, signature, constants, _attributes(signature, shape.gpu), hopper.LAUNCH_OPTIONS
    )


def _argument_type(name: str, shape: CompileShape) -> str:
    if name in RUNTIME_INTS:
        return "i32"
    if name in FLOATS:
        return "fp32"
    if name in INDEX_POINTERS:
        return "*i32"
    if name in SCALAR_POINTERS or name in PARTIAL_POINTERS:
        return "*fp32"
    if name in CACHE_POINTERS and "fp8" in shape.features:
        return "*fp8e4nv" if _converts_e4m3(shape) else "*u8"
    return "*" + DTYPE_NAMES[shape.dtype]


def _cache_bytes(shape: CompileShape) -> int:
    return 1 if "fp8" in shape.features else shape.dtype.itemsize


def _converts_e4m3(shape: CompileShape) -> bool:
    return bool(shape.gpu.backend == "hip" or divmod(shape.gpu.arch, 10) >= E4M3_CAPABILITY)


def _attributes(signature: dict[str, str], gpu: GPUTarget) -> dict[tuple[int, ...], list[list[Any]]]:
    """Return what Triton notes of each pointer: alignment; on AMD also that the tensor has up to 2 GiB.

    All tensors but caches are taken to be so small.
    """
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, (name, kind) in enumerate(signature.items()):
        if kind.startswith("*"):
            aligned = [] if name in UNALIGNED_POINTERS else [["tt.divisibility", VECTOR_BYTES]]
            small = gpu.backend == "hip" and name not in CACHE_POINTERS
            attributes[index,] = [*aligned, ["tt.pointer_range", 32]] if small else aligned
    return attributes

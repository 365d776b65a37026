"""Helpers of kernel tests: configs of every variant, score options, strided copies and spies."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from attn_kernels import Config, Lengths
from attn_kernels.choose import packages, recording
from attn_kernels.choose.choices import Choices, choices_for
from attn_kernels.choose.mixed import SEPARATE
from attn_kernels.choose.overrides import overrides
from attn_kernels.kernels.merge import merge_kernel
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import divide_kernel, schedule_kernel
from attn_kernels.launch import direct
from attn_kernels.testing.poisoned import PoisonedBatch, make_batch, relative_error, run_poisoned

NAMES = tuple(name for name, variant in VARIANTS.items() if not variant.mixed)
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
FP8 = torch.float8_e4m3fn


def make_config(variant: str = "qblock", block_m: int = 16, tile_size: int = 16, **parameters: Any) -> Config:
    """A small config of any variant."""
    return Config(variant, block_m, tile_size, **parameters)


def forget_choices() -> None:
    """Forget all choices of this process."""
    overrides.cache_clear()
    packages.heuristics_package.cache_clear()
    choices_for.cache_clear()
    recording.recorder_of_process.cache_clear()


def set_choices(monkeypatch: Any, choose: Callable[[Lengths], Config], way: Config = SEPARATE) -> None:
    """Put a function of lengths, and a way for mixed batches, in place of every generated module."""
    monkeypatch.setattr(Choices, "config", lambda self, lengths: choose(lengths))
    monkeypatch.setattr(Choices, "way", lambda self, parts: way)


def words_of(names: str) -> dict[str, str]:
    """The words of an option list by name, with their values; "" without one."""
    return {name: value for name, _, value in (word.partition("=") for word in names.split())}


def scores(
    heads: int, names: str, dtype: torch.dtype = torch.float16, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Options of ``run`` from words such as ``"window=5 noncausal after=3 sinks=half scales=tensor"``.

    Sinks may also be ``extreme``: some infinite, some that outweigh every key. Words that name no option of
    ``run`` are those of ``launch_cases``.
    """
    words, options = words_of(names), dict[str, Any]()
    for name, option in (("window", "sliding_window"), ("after", "keys_after")):
        if name in words:
            options[option] = int(words[name])
    if "noncausal" in words:
        options["causal"] = False
    if "softcap" in words:
        options["softcap"] = float(words["softcap"] or 1.5)
    if "alibi" in words:
        exponents = torch.arange(1, heads + 1, dtype=torch.float32, device=device)
        options["alibi_slopes"] = 2.0 ** (-8.0 * exponents / heads)
    if "sinks" in words:
        sinks = torch.linspace(-1.0, 3.0, heads, device=device)
        if words["sinks"] == "extreme":
            sinks = sinks.new_tensor([-200.0, -torch.inf, 0.0, 200.0]).repeat(heads)[:heads]
        options["sinks"] = sinks.to(dtype if words["sinks"] == "half" else torch.float32)
    if "scales" in words:
        options |= {"k_scale": 0.4, "v_scale": 3.0}
        if words["scales"] == "tensor":
            options["k_scale"] = torch.tensor([0.4], device=device)
            options["v_scale"] = torch.tensor(3.0, device=device)
    return options


def random_batch(
    lens: Any, ratio: int = 4, kv_heads: int = 1, head_size: int = 32, **options: Any
) -> PoisonedBatch:
    options = {"block_size": 16, "dtype": torch.float16} | options
    return make_batch(
        *lens, num_query_heads=ratio * kv_heads, num_kv_heads=kv_heads, head_size=head_size, **options
    )


def ranges_of(*sequences: Any) -> Tensor:
    """The tensor of each sequence's bidirectional ranges, padded with (0, 0)."""
    most = max(map(len, sequences))
    padded = [[*ranges, *[(0, 0)] * (most - len(ranges))] for ranges in sequences]
    return torch.tensor(padded, dtype=torch.int32).view(len(sequences), most, 2)


def assert_close(out: Tensor, expected: Tensor) -> None:
    assert relative_error(out, expected) < TOLERANCE[out.dtype]


def check(batch: PoisonedBatch, config: Config, **options: Any) -> None:
    """The kernel's result, nothing but its inputs unpoisoned, is the reference's."""
    out = run_poisoned(batch, batch.plan(config=config), **options)
    assert_close(out, batch.reference(**options))


def checking_overflows() -> Any:
    """A context in which a sum or product of int32 that overflows in a kernel is an error."""
    from triton.runtime import interpreter  # of no use on a GPU

    builder = interpreter.interpreter_builder
    options = dataclasses.replace(builder.options, sanitize_overflow=True, debug=True)
    return patch.object(builder, "options", options)


def strided(tensor: Tensor, dimension: int, padding: int, fill: float = torch.nan) -> Tensor:
    """The same values with ``padding`` elements of ``fill`` between the entries of a dimension."""
    shape = list(tensor.shape)
    shape[dimension] += padding
    wide = torch.full(shape, fill, dtype=tensor.dtype, device=tensor.device)
    return wide.narrow(dimension, 0, tensor.shape[dimension]).copy_(tensor)


def shifted(tensor: Tensor) -> Tensor:
    """The same values one element behind the beginning of their memory."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return room[1:].view(tensor.shape).copy_(tensor)


def number(value: Any) -> int:
    """The number that a scalar of Triton's interpreter holds."""
    return int(value.handle.data.item()) if hasattr(value, "handle") else int(value)


def kernels() -> dict[str, Any]:
    """Every kernel of every variant, those that schedule, divide and merge, by their names."""
    of_variants = [kernel for variant in VARIANTS.values() for kernel in variant.kernels]
    others = (schedule_kernel, divide_kernel, merge_kernel)
    return {kernel.fn.__name__: kernel for kernel in (*of_variants, *others)}


ONCE_A_PLAN = ("split_keys_kernel", "divide_kernel")


def record_launches(
    monkeypatch: Any, execute: bool = True, once_a_plan: bool = False
) -> list[SimpleNamespace]:
    """Return a list in which every launch of a layer's kernels is recorded.

    Launches for a plan are recorded on request.
    """
    recorded: list[SimpleNamespace] = []
    launch_kernel = direct.launch_kernel

    def launch(kernel: Any, grid: tuple[int, ...], arguments: list[Any], options: Any) -> None:
        name = kernel.fn.__name__
        if once_a_plan or name not in ONCE_A_PLAN:
            named = dict(zip(kernel.arg_names, arguments, strict=True))
            recorded.append(SimpleNamespace(kernel=name, grid=grid, arguments=named, options=dict(options)))
        if execute:
            launch_kernel(kernel, grid, arguments, options)

    monkeypatch.setattr(direct, "launch_kernel", launch)
    return recorded

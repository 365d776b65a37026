"""From the lengths of a mixed batch's parts to the way of computing them: in series, or by one kernel."""

from functools import cache
from types import ModuleType

import torch

from attn_kernels.choose.heuristic import (
    Choose,
    Heuristic,
    choose_of,
    configs_of,
    key_of,
)
from attn_kernels.choose.overrides import CONFIG, overrides
from attn_kernels.choose.packages import kernel_package
from attn_kernels.core.config import Config, LaunchConfig
from attn_kernels.core.lengths import Parts
from attn_kernels.core.model import Model
from attn_kernels.kernels.registry import VARIANTS
from triton_tune.core.device import describe_device

KERNEL = "mixed_attention"

# Two ways without a kernel of their own. In series, the parts are launched one after the other, each with the
# choice for its own lengths. As a whole, the batch is launched with the choice for all its lengths. They are
# configs like any other, so tables, trees and log lines need no second kind of choice.
SERIES = Config("series", block_m=0, tile_size=0, num_warps=0, num_stages=0)
WHOLE = SERIES._replace(variant="whole")
WITHOUT_KERNEL = (SERIES, WHOLE)


def needs_parts(config: LaunchConfig) -> bool:
    """Return whether a config computes mixed batches only, from the lengths of both parts."""
    without = any(config.variant == way.variant for way in WITHOUT_KERNEL)
    return without or (config.variant in VARIANTS and VARIANTS[config.variant].mixed)


def mixed_features(parts: Parts, model: Model) -> dict[str, int]:
    """The features of a mixed batch: the arguments of the generated ``choose`` of ``mixed_attention``."""
    decodes, prompts = parts
    if model.sliding_window is not None:
        decodes, prompts = (part.in_window(model.sliding_window) for part in parts)
    return {
        "num_decodes": decodes.num_seqs,
        "num_decode_tokens": decodes.num_query_tokens,
        "num_decode_kv_tokens": decodes.num_kv_tokens,
        "max_decode_len": decodes.max_query_len,
        "max_decode_seq_len": decodes.max_seq_len,
        "num_prompts": prompts.num_seqs,
        "num_prompt_tokens": prompts.num_query_tokens,
        "num_prompt_kv_tokens": prompts.num_kv_tokens,
        "max_prompt_len": prompts.max_query_len,
        "max_prompt_seq_len": prompts.max_seq_len,
        "num_query_heads": model.num_query_heads,
        "num_kv_heads": model.num_kv_heads,
        "head_size": model.head_size,
        "block_size": model.block_size,
        "kv_element_size": model.kv_element_size,
    }


@cache
def choose_mixed(device: torch.device, device_key: str | None = None) -> Choose:
    """Return what chooses from ``mixed_features``: ``SERIES``, ``WHOLE`` or a config of a mixed variant.

    A captured graph has one choice, for the maxima of both parts. The choice is ``SERIES`` where no generated
    module of this kernel serves the device, or where ``device_key`` names none. So it is where
    ``ATTN_KERNELS_CONFIG`` is no config for mixed batches. Raises ValueError about an environment variable.
    """
    heuristic = _heuristic(device, device_key)
    if heuristic is None:
        return _in_series
    return choose_of(heuristic)


def configs_for_mixed(device: torch.device | str, device_key: str | None = None) -> list[Config]:
    """List the configs with a kernel of their own that ``choose_mixed`` can choose on a device.

    Raises ValueError as ``choose_mixed``.
    """
    forced = overrides().config
    if device_key is None and forced is not None:
        return [forced] if needs_parts(forced) and forced not in WITHOUT_KERNEL else []
    module = _module(torch.device(device), device_key)
    return [] if module is None else [way for way in configs_of(module[1]) if way not in WITHOUT_KERNEL]


def _in_series(**features: int) -> Config:
    return SERIES


def _heuristic(device: torch.device, device_key: str | None) -> Heuristic | None:
    """Return what environment variables force, else the device's module; None where there is none."""
    config = overrides().config
    if device_key is None and config is not None:
        return Heuristic(CONFIG, lambda **features: config) if needs_parts(config) else None
    module = _module(device, device_key)
    return None if module is None else Heuristic(f"{module[0]} of {KERNEL}", module[1].choose)


def _module(device: torch.device, device_key: str | None) -> tuple[str, ModuleType] | None:
    """Return the generated module that is named or serves the device, with its key; None without one."""
    try:
        package = kernel_package(KERNEL)
    except ImportError:  # no table of this kernel was compiled
        return None
    modules: dict[str, ModuleType] = package.MODULES
    key = overrides().device_key if device_key is None else device_key
    if key is None:
        key = key_of(package, package.for_device(*describe_device(device)))
    # A key that is named can be one of unified_attention, which has modules for more devices.
    return (key, modules[key]) if key in modules else None

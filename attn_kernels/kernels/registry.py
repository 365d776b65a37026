"""The registry of variants, and the check that a variant accepts a config."""

from attn_kernels.core.config import Config
from attn_kernels.kernels import invariant, pod, qblock, stream_k
from attn_kernels.kernels.hopper_limits import LEAST_STAGES, PARAMETERS, asked_by
from attn_kernels.kernels.variant import Variant

MODULES = (qblock, stream_k, pod, invariant)
VARIANTS: dict[str, Variant] = {module.VARIANT.name: module.VARIANT for module in MODULES}


MIN_BLOCK = 16  # rows and columns of the smallest matrix instruction that Triton uses
MAX_BLOCK = 1024  # more would exceed the registers of any GPU
# The launch parameters that every variant has.
COMMON = {"block_m", "tile_size", "num_warps", "num_stages", "bypass_l1"}
COMMON |= {"max_registers", "waves_per_eu", "matrix_size"}


def check_config(config: Config) -> None:
    """Raise ValueError about the first impossible parameter, or TypeError about one that is not an int."""
    for name in Config._fields[1:]:
        value = getattr(config, name)
        if type(value) is not int:  # 32.0 would equal 32 as a key of remembered launches
            raise TypeError(f"config.{name} is {value!r}, but a plain int is needed")
    if config.variant not in VARIANTS:
        known = ", ".join(sorted(VARIANTS))
        raise ValueError(f"config.variant is {config.variant!r}, but the variants are: {known}")
    variant = VARIANTS[config.variant]
    _check_power("block_m", config, MIN_BLOCK, MAX_BLOCK)
    _check_power("tile_size", config, MIN_BLOCK, MAX_BLOCK)
    _check_power("num_warps", config, 1, 32)
    _check(config, "num_stages", config.num_stages >= 1, "at least 1 is needed")
    _check(config, "bypass_l1", config.bypass_l1 in (0, 1), "0 or 1 is needed")
    _check(config, "tma", config.tma in (0, 1), "0 or 1 is needed")
    _check(config, "max_registers", 0 <= config.max_registers <= 255, "0 to 255 is needed")
    _check(config, "waves_per_eu", 0 <= config.waves_per_eu <= 8, "0 to 8 is needed")
    _check(config, "matrix_size", config.matrix_size in (0, 16, 32), "0, 16 or 32 is needed")
    for name, default in Config._field_defaults.items():
        if name not in COMMON and name not in variant.parameters and getattr(config, name) != default:
            value = getattr(config, name)
            raise ValueError(f"config.{name} is {value}, but {config.variant} has no such parameter")
    if asked_by(config):
        by = f"by {config.variant} on Hopper"
        for name, values in PARAMETERS[config.variant].items():
            needed = " or ".join(map(str, values))
            _check(config, name, getattr(config, name) in values, f"{needed} is needed {by}")
        fine = config.num_stages >= LEAST_STAGES
        _check(config, "num_stages", fine, f"at least {LEAST_STAGES} is needed {by}")


def _check(config: Config, name: str, fine: bool, needed: str) -> None:
    if not fine:
        raise ValueError(f"config.{name} is {getattr(config, name)}, but {needed}")


def _check_power(name: str, config: Config, least: int, most: int) -> None:
    value = getattr(config, name)
    fine = least <= value <= most and not value & (value - 1)
    _check(config, name, fine, f"a power of two from {least} to {most} is needed")

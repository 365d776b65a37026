"""The configs that the generated modules can choose."""

import re
from types import ModuleType
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from generated import unified_attention


def config_text(config: Any) -> str:
    """Config("qblock", 64, 64, 4, 2) -> qblock_m64_t64_w4_s2."""
    letters = {"block_m": "m", "tile_size": "t", "num_segments": "n", "num_warps": "w", "num_stages": "s"}
    parts = [
        f"{letters.get(name, name)}{value}" for name, value in config._asdict().items() if name != "variant"
    ]
    return "_".join([config.variant, *parts])


def vendor() -> str:
    """`amd` or `nvidia`, as PyTorch was built."""
    return "amd" if torch.version.hip else "nvidia"


def in_module(module: ModuleType) -> list[Any]:
    """The named configs of one generated module."""
    values = [value for name, value in vars(module).items() if name.isupper()]
    return [value for value in values if isinstance(value, tuple) and hasattr(value, "_asdict")]


def distinct() -> list[Any]:
    """Every config that a generated module of this vendor or the default one can choose, sorted."""
    modules = {
        key: module
        for key, module in unified_attention.MODULES.items()
        if key.startswith((vendor(), "default"))
    }
    return sorted(
        {tuple(config): config for module in modules.values() for config in in_module(module)}.values(),
        key=str,
    )


def parse(text: str) -> Any:
    """`qblock:64:64:4:2` -> Config, its fields in order; raises ValueError."""
    kind = unified_attention.Config
    variant, *numbers = re.split(r"[:,]", text)
    if len(numbers) + 1 != len(kind._fields):
        raise ValueError(f"config {text!r}: expected {':'.join(kind._fields)}")
    return kind(variant, *(int(number) for number in numbers))


def exceeds_device(error: BaseException) -> bool:
    """Whether a launch failed because the device lacks shared memory or registers for the config."""
    return isinstance(error, OutOfResources)

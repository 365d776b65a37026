"""Launch configs: a variant's name and its launch parameters."""

import re
from typing import NamedTuple, Protocol, Self

LETTERS = {
    "block_m": "M",
    "tile_size": "T",
    "num_warps": "W",
    "num_stages": "S",
    "tma": "D",
    "bypass_l1": "B",
    "max_registers": "R",
    "waves_per_eu": "E",
    "matrix_size": "I",
}


class LaunchConfig(Protocol):
    """Any hashable object with these attributes, such as the configs of a generated module.

    It may have any other field of ``Config`` as well; missing ones get Config's default.
    """

    def __hash__(self) -> int: ...
    @property
    def variant(self) -> str: ...
    @property
    def block_m(self) -> int: ...
    @property
    def tile_size(self) -> int: ...
    @property
    def num_warps(self) -> int: ...
    @property
    def num_stages(self) -> int: ...


class Config(NamedTuple):
    """A variant and all launch parameters."""

    variant: str  # which kernel, a key of ``attn_kernels.kernels.registry.VARIANTS``
    block_m: int  # rows of a query tile
    tile_size: int  # keys of one step of the inner loop, independent of the page size
    num_warps: int = 4  # as Triton means it
    num_stages: int = 2  # of the loop over full tiles
    # 1 lets ``qblock`` and ``stream_k`` load keys and values through tensor descriptors (TMA) where the GPU
    # is a Hopper and the layer allows it (``hopper_limits.unsupported_reason``). Otherwise it counts as 0.
    tma: int = 0
    bypass_l1: int = 0  # 1 loads keys and values past the L1 cache
    max_registers: int = 0  # of a thread; NVIDIA only, ignored elsewhere. 0 leaves it to the compiler
    waves_per_eu: int = 0  # occupancy hint; AMD only, ignored elsewhere. 0 leaves it to the compiler
    matrix_size: int = 0  # 16 or 32, the matrix instruction; AMD only, likewise

    def __str__(self) -> str:
        """``qblock_M64_T32_W4_S2``: letters of the fields that are not at their defaults, and M, T, W, S."""
        always = ("block_m", "tile_size", "num_warps", "num_stages")
        defaults = self._field_defaults
        values = self._asdict()
        parts = [
            f"{letter}{values[name]}"
            for name, letter in LETTERS.items()
            if name in always or values[name] != defaults[name]
        ]
        return "_".join([self.variant, *parts])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes, such as ``stream_k_M16_T64_W4_S2_D1``. Raises ValueError."""
        names = {letter: name for name, letter in LETTERS.items()}
        match = re.fullmatch(r"([a-z_]+?)((?:_[A-Z][0-9]{1,6})+)", text)
        parts = match[2][1:].split("_") if match else []
        numbers = {names.get(part[0], part): int(part[1:]) for part in parts}
        if (
            not match
            or len(numbers) < len(parts)
            or not {"block_m", "tile_size"} <= numbers.keys() <= LETTERS.keys()
        ):
            letters = ", ".join(f"{letter} {name}" for name, letter in LETTERS.items())
            raise ValueError(
                f"config {text!r}: expected such as qblock_M64_T32_W4_S2, of the letters {letters}"
            )
        return cls(match[1], **numbers)


def complete(config: LaunchConfig) -> Config:
    """The same launch parameters as a ``Config``. Raises TypeError where a needed attribute is missing."""
    if isinstance(config, Config):
        return config
    given = {name: getattr(config, name) for name in Config._fields if hasattr(config, name)}
    try:
        return Config(**given)
    except TypeError:
        raise TypeError(
            f"config is {config!r}, but an object with variant, block_m and tile_size is needed, such as "
            "Config.parse gives"
        ) from None

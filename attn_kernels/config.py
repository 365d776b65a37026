"""What a kernel is launched with: a variant's name and its launch parameters."""

from typing import NamedTuple, Protocol


class LaunchConfig(Protocol):
    """Any hashable object with these attributes: ``Config`` below, or what a generated module returns."""

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
    """A config chosen by hand, for benchmarks, tuning runs and tests."""

    variant: str
    block_m: int
    tile_size: int
    num_warps: int
    num_stages: int

"""What `treegen.yaml` says, as frozen dataclasses. `specfile` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from treegen.expr import Expression

FALLBACK_DEVICE = "default"


@dataclass(frozen=True, order=True)
class Config:
    """A kernel variant and its launch parameters, in the order the spec declares them."""

    variant: str
    parameters: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Constraint:
    """`left OP right` over config parameters, features and device limits; text and line are the spec's."""

    text: str
    left: Expression
    operator: str
    right: Expression
    line: int = 1


@dataclass(frozen=True)
class Translation:
    """How the words of a table measured on somebody else's kernel read in this spec."""

    variant: str
    rename: Mapping[str, str]


@dataclass(frozen=True)
class Budget:
    max_depth: int
    max_leaves: int


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU model (`names` are how its driver reports it), or a family that stands in for unknown models."""

    key: str
    names: tuple[str, ...]
    arch: str | None
    vendor: str
    limits: Mapping[str, int]


@dataclass(frozen=True)
class KernelSpec:
    name: str
    features: tuple[str, ...]
    derived: Mapping[str, Expression]
    split_on: tuple[str, ...]
    variants: tuple[str, ...]
    parameters: Mapping[str, str]
    constraints: tuple[Constraint, ...]
    trusted_as_measured: tuple[str, ...]
    fallback: Config
    budget: Budget
    translations: Mapping[str, Translation]
    tables: Mapping[str, Path]

    def constant_name(self, config: Config) -> str:
        """The name of a config's constant: QBLOCK_M64_T32_W4_S2."""
        letters = (f"{self.parameters[name]}{value}" for name, value in config.parameters)
        return "_".join([config.variant.upper(), *letters])


@dataclass(frozen=True)
class Spec:
    path: Path
    output: Path
    devices: Mapping[str, DeviceSpec]
    kernels: Mapping[str, KernelSpec]

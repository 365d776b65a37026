"""What `treegen.yaml` says, as frozen dataclasses. `specfile` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from treegen.core.expr import Expression, Number

FALLBACK_DEVICE = "default"
_ONE = Number(1)


@dataclass(frozen=True, order=True)
class Config:
    """A kernel variant and its launch parameters, in the order the spec declares them."""

    variant: str
    parameters: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Parameter:
    """A launch parameter: the letters it has in constants' names, and the value it has where nobody says."""

    letters: str
    default: int | None = None


@dataclass(frozen=True)
class Constraint:
    """`left OP right` over config parameters, features and device limits; text and line are the spec's.

    variants: the only ones whose configs it binds; None binds all.
    """

    text: str
    left: Expression
    operator: str
    right: Expression
    line: int = 1
    variants: tuple[str, ...] | None = None

    def binds(self, config: Config) -> bool:
        return self.variants is None or config.variant in self.variants


@dataclass(frozen=True)
class Translation:
    """How the words of a table measured on somebody else's kernel read in this spec.

    constants: features that the table leaves out because all its scenarios share their value.
    """

    variant: str
    rename: Mapping[str, str]
    constants: Mapping[str, int]


@dataclass(frozen=True)
class Budget:
    """How large a tree may be. leaf_price, config_price: by how much of the geometric mean slowdown one more
    leaf and one more distinct config must pay at least; 0.0005 is 0.05% of the time."""

    max_depth: int
    max_leaves: int
    leaf_price: float = 0.0
    config_price: float = 0.0


@dataclass(frozen=True)
class Objective:
    """What fitting minimises; `fit.objective` computes it.

    weight: how much a scenario counts, over features and limits. worst_case: a slowdown of 2 counts
    (1 + worst_case) times its logarithm, a greater one more than that. untimed: the slowdown, above 1, that
    is charged where a config was not timed.
    """

    weight: Expression = _ONE
    worst_case: float = 0.0
    untimed: float = 2.0


@dataclass(frozen=True)
class Regime:
    """What people call the shapes with least <= feature <= greatest (None: no bound)."""

    feature: str
    least: int | None
    greatest: int | None


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
    """words: what reviews call features and parameters. regimes: shapes by what people call them. hook: the
    entry point through which `treegen check` asks the kernel's code. in_kernel: the parameters that Triton
    kernels choose themselves."""

    name: str
    features: tuple[str, ...]
    derived: Mapping[str, Expression]
    split_on: tuple[str, ...]
    variants: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...]
    trusted_as_measured: tuple[str, ...]
    fallback: Config
    budget: Budget
    translations: Mapping[str, Translation]
    tables: Mapping[str, Path]
    objective: Objective = Objective()
    words: Mapping[str, str] = field(default_factory=dict)
    regimes: Mapping[str, Regime] = field(default_factory=dict)
    hook: str | None = None
    in_kernel: tuple[str, ...] = ()

    def told(self, config: Config) -> tuple[tuple[str, int], ...]:
        """The config's parameters without those at their default, in the spec's order."""
        return tuple(
            (name, value) for name, value in config.parameters if value != self.parameters[name].default
        )

    def constant_name(self, config: Config) -> str:
        """The name of a config's constant, without parameters at their default: QBLOCK_M64_T32_W4_S2."""
        letters = (f"{self.parameters[name].letters}{value}" for name, value in self.told(config))
        return "_".join([config.variant.upper(), *letters])

    def fields(self) -> tuple[tuple[str, int | None], ...]:
        """The parameters with their defaults as Python wants them declared: those without a default first."""
        declared = [(name, parameter.default) for name, parameter in self.parameters.items()]
        return tuple(sorted(declared, key=lambda field: field[1] is not None))


@dataclass(frozen=True)
class Spec:
    path: Path
    output: Path
    devices: Mapping[str, DeviceSpec]
    kernels: Mapping[str, KernelSpec]

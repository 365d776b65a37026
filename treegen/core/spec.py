"""The spec, `treegen.yaml`, as frozen dataclasses; docs/spec.md explains every section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from treegen.core.errors import InputError, shown
from treegen.core.expr import Expression, Number, evaluate, names, with_parts

FALLBACK_DEVICE = "default"
_ONE = Number(1)


@dataclass(frozen=True, order=True)
class Config:
    """A variant and a value for each launch parameter."""

    variant: str
    parameters: tuple[tuple[str, int], ...]  # (name, value) in the order in which the spec declares them


@dataclass(frozen=True)
class Parameter:
    letters: str  # stand for the parameter in constants' names
    default: int | None = None  # its value in tables and in a fallback that lack it


@dataclass(frozen=True)
class Constraint:
    """`left OP right` over config parameters, features and limits of the device."""

    text: str  # as the spec spells it
    left: Expression
    operator: str
    right: Expression
    line: int = 1  # in the spec
    variants: tuple[str, ...] | None = None  # binds only configs of these variants; None binds all

    @property
    def names(self) -> frozenset[str]:
        return names(self.left) | names(self.right)

    def binds(self, config: Config) -> bool:
        return self.variants is None or config.variant in self.variants


@dataclass(frozen=True)
class Translation:
    """The meaning in this spec of the words of a table that measured another kernel."""

    variant: str
    rename: Mapping[str, str]  # the table's word -> feature or parameter
    constants: Mapping[str, int]  # features that the table lacks because all its scenarios share their value


@dataclass(frozen=True)
class Budget:
    """The limits on a fitted tree's size.

    A price is a part of the geometric mean slowdown: 0.0005 is 0.05% of the time.
    """

    max_depth: int
    max_leaves: int
    leaf_price: float = 0.0  # one more leaf must gain at least this
    config_price: float = 0.0  # one more distinct config must gain at least this


@dataclass(frozen=True)
class Objective:
    """The loss that fitting minimises; `fit.objective` computes it."""

    weight: Expression = _ONE  # how much a scenario counts, over features and limits
    worst_case: float = 0.0  # a log slowdown of c counts c * (1 + worst_case * c / ln 2)
    untimed: float = 2.0  # an untimed choice scores as this many times slower than the best; above 1


@dataclass(frozen=True)
class Regime:
    """The shapes that a name stands for: least <= feature <= greatest, where None is unbounded."""

    feature: str
    least: int | None
    greatest: int | None


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU model, or a family that stands in for models that the spec does not name."""

    key: str
    names: tuple[str, ...]  # how the driver reports the model; empty for a family
    arch: str | None
    vendor: str
    limits: Mapping[str, int]


def is_model(name: str, model: str) -> bool:
    """Return whether a GPU, by its driver's name, is of a model: `NVIDIA H100 PCIe` is of `NVIDIA H100`."""
    return name == model or name.startswith((f"{model} ", f"{model}-"))


@dataclass(frozen=True)
class KernelSpec:
    name: str
    features: tuple[str, ...]
    derived: Mapping[str, Expression]
    split_on: tuple[str, ...]  # the features of splits, most preferred first
    variants: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...]
    trusted_as_measured: tuple[str, ...]  # outside these features' measured range the fallback is launched
    fallback: Config
    budget: Budget
    translations: Mapping[str, Translation]  # by the name of the other kernel
    tables: Mapping[str, Path]  # folders, by device
    objective: Objective = Objective()
    words: Mapping[str, str] = field(default_factory=dict)  # what reviews call features and parameters
    # What integers of features and parameters stand for, such as data types.
    values: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    regimes: Mapping[str, Regime] = field(default_factory=dict)  # by what reviews call them
    invariants: tuple[Constraint, ...] = ()  # hold for every shape; no parameter occurs in them
    hook: str | None = None  # the entry point through which `treegen check` calls the kernel's code
    in_kernel: tuple[str, ...] = ()  # the parameters that Triton kernels choose themselves
    measured_on: Mapping[str, str] = field(default_factory=dict)  # other GPUs' tables: their GPU, by device

    def raw_parts(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """The raw features among the wanted names and their parts, in the spec's order."""
        parts = with_parts(wanted, self.derived)
        return tuple(name for name in self.features if name in parts)

    def only(self, wanted: Iterable[str]) -> KernelSpec:
        """The kernel with only those derived features that are among the wanted names and their parts."""
        parts = with_parts(wanted, self.derived)
        return replace(self, derived={name: known for name, known in self.derived.items() if name in parts})

    def with_derived(self, known: Mapping[str, int]) -> dict[str, int]:
        """The known values, and those of derived features that follow from them."""
        values = dict(known)
        for name, expression in self.derived.items():
            if name not in values and names(expression) <= values.keys():
                values[name] = evaluate(expression, values)
        return values

    def non_defaults(self, config: Config) -> tuple[tuple[str, int], ...]:
        """The config's parameters without those at their default, in the spec's order."""
        return tuple(
            (name, value) for name, value in config.parameters if value != self.parameters[name].default
        )

    def constant_name(self, config: Config) -> str:
        """The name of a config's constant, such as QBLOCK_M64_T32_W4_S2."""
        letters = (f"{self.parameters[name].letters}{value}" for name, value in self.non_defaults(config))
        return "_".join([config.variant.upper(), *letters])

    def fields(self) -> tuple[tuple[str, int | None], ...]:
        """(parameter, default) in the order in which Python declares them: those without a default first."""
        declared = [(name, parameter.default) for name, parameter in self.parameters.items()]
        return tuple(sorted(declared, key=lambda field: field[1] is not None))


@dataclass(frozen=True)
class Spec:
    path: Path
    output: Path  # the folder of the generated packages
    devices: Mapping[str, DeviceSpec]
    kernels: Mapping[str, KernelSpec]

    def selected(self, kernel: str | None) -> list[KernelSpec]:
        """The kernel of this name, or all. Raises InputError for an unknown name."""
        if kernel is not None and kernel not in self.kernels:
            raise InputError(self.path, f"has no kernel {shown(kernel)}; it has {', '.join(self.kernels)}")
        return [known for name, known in self.kernels.items() if kernel in (None, name)]


class Serving(NamedTuple):
    """The keys of the devices whose modules serve GPUs: by name, else by architecture, else by vendor."""

    by_name: list[tuple[str, str]]  # the longest name first, which wins
    by_arch: dict[str, str]
    by_vendor: dict[str, str]


def serving(kernel: KernelSpec, devices: Mapping[str, DeviceSpec]) -> Serving:
    """The devices with a table of the kernel. Of an architecture, the first device serves its other GPUs."""
    served = Serving([], {}, {})
    for device in devices.values():
        if device.key not in kernel.tables:
            continue
        served.by_name.extend((name, device.key) for name in device.names)
        if device.arch is not None:
            served.by_arch.setdefault(device.arch, device.key)
        elif not device.names:
            served.by_vendor.setdefault(device.vendor, device.key)
    served.by_name.sort(key=lambda pair: -len(pair[0]))
    return served

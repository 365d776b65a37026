"""The spec, `treegen.yaml`, as frozen dataclasses; docs/spec.md explains every section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.expr import Call, Expression, Number, evaluate, names, with_parts

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
    """A condition over config parameters, features and limits of the device."""

    text: str  # as the spec spells it
    test: Call
    line: int = field(default=1, compare=False)  # in the spec
    variants: tuple[str, ...] | None = None  # binds only configs of these variants; None binds all

    @cached_property  # a fit asks once for every config and model
    def names(self) -> frozenset[str]:
        return names(self.test)

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
    """The limits on a fitted table of rows.

    A price is a part of the geometric mean slowdown: 0.0005 is 0.05% of the time.
    """

    max_depth: int = 4  # splits on the way to a row
    max_rows: int = 10  # of one regime
    max_configs: int = 24  # of one module
    row_price: float = 0.0005  # one more row must gain at least this
    cell_price: float = 0.0005  # a class with a config of its own in a row must gain at least this


@dataclass(frozen=True)
class Regime:
    """A kind of step with a tree of its own."""

    name: str
    when: Call | None  # over step features; None for all steps of no earlier regime
    split_on: tuple[str, ...]  # the features of its tree, most preferred first
    max_rows: int | None = None  # None: as the budget says


@dataclass(frozen=True)
class ModelClass:
    """A kind of model with a config of its own in each row."""

    name: str
    when: Call | None  # over constants; None for all models of no earlier class


@dataclass(frozen=True)
class DeviceSpec:
    """A GPU model, or a family that stands in for models that the spec does not name."""

    key: str
    names: tuple[str, ...]  # how the driver reports the model; empty for a family
    arch: str | None
    vendor: str
    limits: Mapping[str, int]


NO_DEVICE = DeviceSpec(FALLBACK_DEVICE, (), None, "", {})
"""The device of the `default` module, which serves GPUs that the spec does not name."""


def is_model(name: str, model: str) -> bool:
    """Return whether a GPU, by its driver's name, is of a model: `NVIDIA H100 PCIe` is of `NVIDIA H100`."""
    return name == model or name.startswith((f"{model} ", f"{model}-"))


def fixed_features(
    features: Iterable[str], constants: Iterable[str], derived: Mapping[str, Expression]
) -> tuple[str, ...]:
    """The constants and the derived features that depend on nothing else but limits."""
    fixed = list(constants)
    steps = set(features) - set(fixed)
    for name, expression in derived.items():
        if names(expression) & steps:
            steps.add(name)
        else:
            fixed.append(name)
    return tuple(fixed)


@dataclass(frozen=True)
class KernelSpec:
    name: str
    features: tuple[str, ...]
    derived: Mapping[str, Expression]
    constants: tuple[str, ...]  # the raw features that are fixed for a running program
    regimes: tuple[Regime, ...]
    classes: tuple[ModelClass, ...]
    hold_out_by: tuple[str, ...]  # the features whose equal values make a group to hold out together
    variants: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...]
    fallback: Config
    budget: Budget
    translations: Mapping[str, Translation]  # by the name of the other kernel
    tables: Mapping[str, Path]  # folders, by device
    weight: Expression = _ONE  # how much a scenario counts, over features and limits
    # What integers of features and parameters stand for, such as data types.
    values: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    invariants: tuple[Constraint, ...] = ()  # hold for every shape; no parameter occurs in them
    hook: str | None = None  # the entry point through which `treegen check` calls the kernel's code
    function: str | None = None  # `module:function` of the kernel, by which `triton_tune.install` finds it
    in_kernel: bool = False  # whether Triton kernels find the row of a step themselves
    measured_on: Mapping[str, str] = field(default_factory=dict)  # other GPUs' tables: their GPU, by device
    invariant_to: tuple[str, ...] = ()  # raw features of steps that decide nothing

    def renamed(self, kernel: str) -> Mapping[str, str]:
        """The spec's names of features and parameters that a table of a kernel calls otherwise."""
        translation = self.translations.get(kernel)
        return translation.rename if translation else {}

    def raw_parts(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """The raw features among the wanted names and their parts, in the spec's order."""
        parts = with_parts(wanted, self.derived)
        return tuple(name for name in self.features if name in parts)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The constants and the derived features that depend on nothing else but limits."""
        return fixed_features(self.features, self.constants, self.derived)

    @property
    def steps(self) -> tuple[str, ...]:
        """The raw features that change from step to step."""
        return tuple(name for name in self.features if name not in self.constants)

    @property
    def asks_steps(self) -> bool:
        """Whether a constraint is about steps, so that a row lists what it may launch."""
        steps = {*self.features, *self.derived} - set(self.fixed)
        return any(rule.names & steps for rule in self.constraints)

    @property
    def conditions(self) -> list[Call]:
        """Those of regimes and of classes."""
        whens = [regime.when for regime in self.regimes] + [entry.when for entry in self.classes]
        return [when for when in whens if when is not None]

    @property
    def split_on(self) -> tuple[str, ...]:
        """The features that some tree may split on, in the spec's order."""
        return tuple(dict.fromkeys(name for regime in self.regimes for name in regime.split_on))

    def only(self, wanted: Iterable[str]) -> KernelSpec:
        """The kernel with only those derived features that are among the wanted names and their parts."""
        parts = with_parts(wanted, self.derived)
        derived = {name: formula for name, formula in self.derived.items() if name in parts}
        return replace(self, derived=derived)

    def with_derived(self, given: Mapping[str, int]) -> dict[str, int]:
        """The given values, and those of derived features that follow from them."""
        values = dict(given)
        for name, asked in self._asked.items():
            if name not in values and asked <= values.keys():
                values[name] = evaluate(self.derived[name], values)
        return values

    @cached_property
    def _asked(self) -> Mapping[str, frozenset[str]]:
        """The names in the expression of each derived feature."""
        return {name: names(expression) for name, expression in self.derived.items()}

    def own(self, config: Config) -> Config:
        """A config of another version of the spec with these parameters; new ones at their default."""
        stated = dict(config.parameters)
        values = {name: stated.get(name, parameter.default) for name, parameter in self.parameters.items()}
        return replace(config, parameters=tuple((n, v) for n, v in values.items() if v is not None))

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
        return [own for name, own in self.kernels.items() if kernel in (None, name)]


def serving(
    kernel: KernelSpec, devices: Mapping[str, DeviceSpec]
) -> tuple[list[tuple[str, str]], dict[str, str], dict[str, str]]:
    """The keys of the devices with a table of the kernel by GPUs' names, architectures and vendors.

    They serve in this order. The longest name comes first, and of an architecture the first device counts.
    """
    by_name: list[tuple[str, str]] = []
    by_arch: dict[str, str] = {}
    by_vendor: dict[str, str] = {}
    for device in (device for device in devices.values() if device.key in kernel.tables):
        by_name += [(name, device.key) for name in device.names]
        if device.arch is not None:
            by_arch.setdefault(device.arch, device.key)
        elif not device.names:
            by_vendor[device.vendor] = device.key  # the only family of its vendor
    return sorted(by_name, key=lambda pair: -len(pair[0])), by_arch, by_vendor

"""What a kernel's code tells `treegen check`. docs/check.md says how a package offers it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

GROUP = "treegen.hooks"
"""The group of Python entry points among which a spec's `hook` is a name."""

MAX_ERROR = 300
"""Compilers' errors may be pages; no more characters of one are shown."""


@dataclass(frozen=True)
class Case:
    """One compilation that is asked for.

    target: an architecture (`sm_90`, `gfx942`). parameters: all of the spec. largest: the greatest value that
    a launch may have of each of the hook's `sizes`; None where it may be any.
    """

    target: str
    variant: str
    parameters: Mapping[str, int]
    largest: Mapping[str, int | None]


class Needs(Protocol):
    """Of a compiled kernel: bytes of shared memory a block, registers and spilled registers (4 bytes) a
    thread. None where the compiler does not tell."""

    @property
    def shared_memory(self) -> int: ...
    @property
    def registers(self) -> int | None: ...
    @property
    def spills(self) -> int | None: ...


class Outcome(Protocol):
    """Of a case: what each kernel needs that its launches may use, by name; or why it does not compile."""

    @property
    def kernels(self) -> Mapping[str, Needs]: ...
    @property
    def error(self) -> str | None: ...


@runtime_checkable
class Hook(Protocol):
    """The object behind an entry point: one kernel's code."""

    @property
    def features(self) -> Collection[str]:
        """The keyword arguments that the code passes to `choose`."""

    @property
    def variants(self) -> Collection[str]:
        """The variants that it launches."""

    @property
    def parameters(self) -> Mapping[str, int | None]:
        """The launch parameters that it takes, with their defaults; None for one that must be given."""

    @property
    def sizes(self) -> Collection[str]:
        """The features that kernels are compiled for. No launch may need more than a kernel that is compiled
        for the greatest value of each."""

    @property
    def targets(self) -> Mapping[str, Collection[str]]:
        """By vendor, the architectures to compile for where the spec's device states none."""

    def compile(self, cases: Sequence[Case], jobs: int) -> Iterable[Outcome]:
        """The outcome of every case, in their order, by up to `jobs` processes. A compiler that ends its
        process should cost one case, not all."""


@dataclass(frozen=True)
class Description:
    """A hook's words, checked."""

    features: frozenset[str]
    variants: frozenset[str]
    parameters: Mapping[str, int | None]
    sizes: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Used:
    """A kernel's `Needs`, checked."""

    shared_memory: int
    registers: int | None
    spills: int | None


@dataclass(frozen=True)
class Compiled:
    """An `Outcome`, checked."""

    kernels: Mapping[str, Used]
    error: str | None


def description(hook: Hook) -> Description:
    """What a hook says of itself. Raises TypeError where that is not what the protocol asks for."""
    if not isinstance(hook, Hook):
        raise TypeError("the object is no hook; it lacks " + ", ".join(_missing(hook)))
    parameters = {_text(name): _count(value) for name, value in dict(hook.parameters).items()}
    targets = {_text(vendor): _texts(archs) for vendor, archs in dict(hook.targets).items()}
    return Description(
        frozenset(_texts(hook.features)),
        frozenset(_texts(hook.variants)),
        parameters,
        _texts(hook.sizes),
        targets,
    )


def compiled(outcome: Outcome) -> Compiled:
    """A hook's outcome. Raises TypeError where that is not what the protocol asks for."""
    kernels = {
        _text(name): Used(_amount(needs.shared_memory), _count(needs.registers), _count(needs.spills))
        for name, needs in dict(outcome.kernels).items()
    }
    return Compiled(kernels, None if outcome.error is None else _text(outcome.error)[:MAX_ERROR])


def _missing(hook: object) -> list[str]:
    words = ("features", "variants", "parameters", "sizes", "targets", "compile")
    return [word for word in words if not hasattr(hook, word)]


def _texts(values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{type(values).__name__} stands where the hook should give several texts")
    return tuple(_text(value) for value in values)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} stands where the hook should give a text")
    return value


def _count(value: object) -> int | None:
    return None if value is None else _amount(value)


def _amount(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} stands where the hook should give an integer")
    return value

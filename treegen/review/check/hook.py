"""The protocol by which a kernel's code answers `treegen check`; docs/check.md describes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

GROUP = "treegen.hooks"
"""The group of Python entry points in which a spec's `hook` is a name."""

MAX_ERROR = 300
"""The most characters that are shown of a compiler's error, which may take pages."""


@dataclass(frozen=True)
class CompileCase:
    """A config to compile for an architecture."""

    target: str  # an architecture: `sm_90`, `gfx942`
    variant: str
    parameters: Mapping[str, int]  # all of the spec
    largest: Mapping[str, int | None]  # each of the hook's `sizes`, at most; None if any value may occur


@dataclass(frozen=True)
class KernelNeeds:
    """The resources of a compiled kernel; None where the compiler does not report them."""

    shared_memory: int  # bytes a block
    registers: int | None  # a thread
    spills: int | None  # spilled registers of 4 bytes a thread


@dataclass(frozen=True)
class CompileOutcome:
    """The result of compiling a case. A hook may return other objects with these attributes."""

    kernels: Mapping[str, KernelNeeds]  # by name, the kernels that launches of the case may use
    error: str | None  # why the case does not compile


@dataclass(frozen=True)
class RefusedLaunch:
    """A launch that the code refuses. A hook may give other objects with these attributes."""

    target: str  # an architecture
    variant: str
    parameters: Mapping[str, int]
    features: Mapping[str, int]  # those of the spec that the refusal depends on


@runtime_checkable
class Hook(Protocol):
    """One kernel's code: the object behind an entry point.

    It may also have ``refused``, an iterable of launches that the spec's constraints must exclude.
    """

    @property
    def features(self) -> Collection[str]:
        """The keyword arguments that the code passes to `choose`."""

    @property
    def variants(self) -> Collection[str]:
        """The variants that the code launches."""

    @property
    def parameters(self) -> Mapping[str, int | None]:
        """The launch parameters of the code with their defaults; None if there is no default."""

    @property
    def sizes(self) -> Collection[str]:
        """The features that kernels are compiled for.

        No launch may need more than a kernel that is compiled for the greatest value of each.
        """

    @property
    def targets(self) -> Mapping[str, Collection[str]]:
        """The architectures to compile for if the spec's device states none, by vendor."""

    def compile(self, cases: Sequence[CompileCase], jobs: int) -> Iterable[Any]:
        """Compile every case in up to `jobs` processes; give a `CompileOutcome` for each, in their order.

        A compiler that ends its process should fail one case, not all.
        """


@dataclass(frozen=True)
class HookDescription:
    """A hook's attributes, with checked types."""

    features: frozenset[str]
    variants: frozenset[str]
    parameters: Mapping[str, int | None]
    sizes: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    refused: tuple[RefusedLaunch, ...] = ()


def describe(hook: Hook) -> HookDescription:
    """Read a hook's attributes. Raises TypeError if they do not follow the protocol."""
    if not isinstance(hook, Hook):
        names = ("features", "variants", "parameters", "sizes", "targets", "compile")
        missing = ", ".join(name for name in names if not hasattr(hook, name))
        raise TypeError(f"the object is no hook; it lacks {missing}")
    return HookDescription(
        features=frozenset(_texts(hook.features)),
        variants=frozenset(_texts(hook.variants)),
        parameters={_text(name): _optional_integer(value) for name, value in dict(hook.parameters).items()},
        sizes=_texts(hook.sizes),
        targets={_text(vendor): _texts(targets) for vendor, targets in dict(hook.targets).items()},
        refused=tuple(_refused(launch) for launch in getattr(hook, "refused", ())),
    )


def _refused(launch: Any) -> RefusedLaunch:
    parameters, features = (
        {_text(name): _integer(value) for name, value in dict(values).items()}
        for values in (launch.parameters, launch.features)
    )
    return RefusedLaunch(_text(launch.target), _text(launch.variant), parameters, features)


def checked_outcome(outcome: Any) -> CompileOutcome:
    """Copy a hook's outcome. Raises TypeError if an attribute has another type."""
    kernels = {}
    for name, needs in dict(outcome.kernels).items():
        shared_memory = _integer(needs.shared_memory)
        registers, spills = _optional_integer(needs.registers), _optional_integer(needs.spills)
        kernels[_text(name)] = KernelNeeds(shared_memory, registers, spills)
    return CompileOutcome(kernels, None if outcome.error is None else _text(outcome.error)[:MAX_ERROR])


def _texts(values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"the hook must give several texts, not {type(values).__name__}")
    return tuple(map(_text, values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the hook must give a text, not {type(value).__name__}")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"the hook must give an integer, not {type(value).__name__}")
    return value


def _optional_integer(value: object) -> int | None:
    return None if value is None else _integer(value)

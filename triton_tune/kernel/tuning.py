"""What a user says about a kernel to tune."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_tune.core.errors import TuningError

_NAME = re.compile("[a-z][a-z0-9_]*")


@dataclass(frozen=True, eq=False)
class Tuning:
    """A kernel with `@triton.autotune`, the shapes to tune it for, and a reference to check it against.

    Configs, `key`, `prune_configs_by`, `reset_to_zero`, `restore_value` and hooks are the decorator's. Only
    `kernel` is timed, with the arguments that `call` launches it with.
    """

    kernel: Any  # decorated with @triton.autotune, perhaps below @tuned or @triton.heuristics
    call: Callable[..., Any]  # launches the kernel; returns its result, a tensor or several
    shapes: Sequence[Mapping[str, Any]]  # keyword arguments of `arguments`, one mapping a shape
    arguments: Callable[..., Any]  # makes the arguments of `call`: a tuple or a dict; tensors get the device
    reference: Callable[..., Any]  # from the same arguments to what `call` must return
    name: str | None = None  # of the table; None: the function's, without capitals and outer underscores
    # The largest error, as a part of the reference's largest magnitude; None: by the element type.
    tolerance: float | None = None
    # Features beside `key`: from the kernel's arguments by name to an integer, boolean, element type or word.
    # None: those of `@tuned`.
    features: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = field(default=None)

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            what = f"{self.name!r:.60} must be a name that begins with a letter and has no capitals"
            raise TuningError(f"name of a Tuning: {what}")
        for name in ("call", "arguments", "reference"):
            if not callable(getattr(self, name)):
                raise TuningError(f"{name} of a Tuning must be a function")
        if not isinstance(self.shapes, Sequence) or not self.shapes:
            raise TuningError("a Tuning needs a list of at least one shape")
        for shape in self.shapes:
            if not isinstance(shape, Mapping):
                raise TuningError(f"a shape is a mapping such as dict(M=16, N=32), not {shape!r:.60}")
        if self.tolerance is not None and not (
            isinstance(self.tolerance, int | float) and 0 <= self.tolerance < 1
        ):
            raise TuningError(f"tolerance is {self.tolerance!r:.60}, but must be a number from 0 to below 1")
        if self.features is not None and not (
            isinstance(self.features, Mapping) and all(map(callable, self.features.values()))
        ):
            raise TuningError("features of a Tuning must be functions by name")

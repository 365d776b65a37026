"""A compiled Triton kernel called directly, without what Triton does around it at every launch.

A compiled kernel's launcher is a Python object that adds a few arguments of its own and hands everything to
one C function. That is Triton's private business, and differs between versions. So ``observe`` runs the
launcher's Python half once with a recorder in the C function's place: what arrives there is the template of
all later launches, in which only the grid, the stream, the pointers and some integers change. The C function
takes integers for pointers and None for hooks in all versions known (3.6 to 3.9). Where anything is not as
expected there is no template, and ``kernel[grid](...)`` launches, as it does where
``ATTN_KERNELS_LAUNCH=public`` asks for it and while a launch hook (a profiler) is set.
"""

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import torch
from triton import knobs

VARIABLE = "ATTN_KERNELS_LAUNCH"
CHOICES = ("direct", "public")
GRID_AND_STREAM = (object(), object(), object(), object())


def hooked() -> bool:
    """Whether anybody wants to hear of launches."""
    runtime = knobs.runtime
    try:
        return bool(runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a function or None in a chain's place
        return any(
            getattr(hook, "calls", hook) for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook)
        )


def _current_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# This thread's GPU, and the address of its current stream on a GPU. The public functions take five times as
# long, to initialise CUDA or to make an object.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


@dataclass(frozen=True, slots=True, eq=False)
class Direct:
    """A compiled kernel's C function, and what it takes beside the grid and the stream.

    Attributes:
        compiled: Triton's compiled kernel, which owns what the C function launches.
        function: takes three numbers of programs, the stream, ``fixed``, and the kernel's arguments, one by
            one or, if ``nested``, as one sequence.
        arguments: the kernel's arguments in the launch that was observed, but for its tensors.
        places: where each argument of the kernel's Python function is among ``arguments``.
        descriptors: which arguments of the Python function are tensor descriptors.
    """

    compiled: Any
    function: Callable[..., None]
    fixed: tuple[Any, ...]
    arguments: tuple[Any, ...]
    places: tuple[int, ...]
    nested: bool
    descriptors: frozenset[int]

    def tensor_map(self, descriptor: Any, place: int) -> Any:
        """What the C function takes at ``place`` for another tensor's descriptor."""
        others = [descriptor if i in self.descriptors else None for i in range(len(self.places))]
        received = _record(self.compiled, others)
        found = received[-1] if self.nested else received[len(GRID_AND_STREAM) + len(self.fixed) :]
        return found[place]


def observe(compiled: Any, arguments: Sequence[Any]) -> Direct | None:
    """How to launch ``compiled``, which was just launched with ``arguments``, directly; None if unknown.

    Raises ValueError where the environment variable is neither ``direct`` nor ``public``.
    """
    wish = os.environ.get(VARIABLE, CHOICES[0])
    if wish not in CHOICES:
        raise ValueError(f"{VARIABLE} is {wish!r}, but {' or '.join(CHOICES)} is needed")
    if wish == "public" or compiled is None or torch.version.hip:
        return None  # AMD: Triton specialises kernels on the sizes of tensors there, which nobody compares
    try:
        return _observe(compiled, arguments)
    except Exception:  # whatever a private interface of another version may raise
        return None


def _observe(compiled: Any, arguments: Sequence[Any]) -> Direct | None:
    launcher = compiled.run
    if launcher.global_scratch_size or launcher.profile_scratch_size:
        return None  # memory that Triton allocates at each launch
    received = _record(compiled, arguments)
    nested = type(received[-1]) in (list, tuple)
    end = len(received) - 1 if nested else _index(received, arguments[0])
    fixed = received[len(GRID_AND_STREAM) : end]
    found = tuple(received[-1]) if nested else received[end:]
    if received[: len(GRID_AND_STREAM)] != GRID_AND_STREAM:
        return None
    if _index(fixed, compiled.function) < 0:
        return None
    place, places, descriptors = 0, [], set()
    for index, argument in enumerate(arguments):
        places.append(place)
        if hasattr(argument, "block_shape"):
            if type(found[place]).__name__ != "PyCUtensorMap":
                return None
            descriptors.add(index)
            place += 1 + len(argument.shape) + len(argument.strides)
        elif found[place] is argument:
            place += 1
        else:
            return None
    if place != len(found):
        return None
    return Direct(
        compiled=compiled,
        function=_with_recorder(launcher.launch, _ignore)[0],
        fixed=fixed,
        arguments=tuple(None if isinstance(value, torch.Tensor) else value for value in found),
        places=tuple(places),
        nested=nested,
        descriptors=frozenset(descriptors),
    )


def _record(compiled: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What reaches the C function in a launch with ``arguments`` and without hooks."""
    recorded: list[tuple[Any, ...]] = []
    shadow = copy.copy(compiled.run)
    _, shadow.launch = _with_recorder(shadow.launch, lambda *received: recorded.append(received))
    no_hooks = (None, None, None)
    shadow(*GRID_AND_STREAM, compiled.function, compiled.packed_metadata, *no_hooks, *arguments)
    (received,) = recorded
    return received


def _with_recorder(launch: Any, recorder: Callable[..., None]) -> tuple[Any, Any]:
    """The C function in ``launch``, and ``launch`` with the recorder in its place.

    Where a kernel has tensor descriptors, ``launch`` is a Python function that unpacks them for ``launcher``.
    """
    names = launch.__code__.co_freevars if isinstance(launch, FunctionType) else ()
    if "launcher" not in names:
        return launch, recorder
    cells = list(launch.__closure__ or ())
    index = names.index("launcher")
    function, cells[index] = cells[index].cell_contents, CellType(recorder)
    code, scope = launch.__code__, launch.__globals__
    return function, FunctionType(code, scope, launch.__name__, launch.__defaults__, tuple(cells))


def _ignore(*received: Any) -> None:
    pass


def _index(items: Sequence[Any], wanted: Any) -> int:
    """Where an object itself is, not its equal; -1 if nowhere."""
    return next((i for i, item in enumerate(items) if item is wanted), -1)

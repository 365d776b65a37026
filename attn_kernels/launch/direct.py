"""Launches of compiled kernels, made as Triton's own dispatch makes them in its last line.

``kernel[grid](*arguments)`` finds the compiled kernel for its arguments, then calls ``compiled.run``. Finding
it takes ten times as long as the call. The result depends only on the signature of a layer's tensors, so this
module looks it up once per signature and then calls ``compiled.run`` directly. Triton's dispatch still makes
every launch while a launch hook (a profiler) is set, on AMD GPUs, and with ``ATTN_KERNELS_LAUNCH=public``.
"""

import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import knobs
from triton.runtime.jit import JITFunction

from attn_kernels.core.structures import Described, Launch, OfLayer, OfPlan, Plan
from triton_tune.processes import needed_kernels

VARIABLE = "ATTN_KERNELS_LAUNCH"
CHOICES = ("direct", "public")
ALIGNMENT = 16  # bytes; Triton compiles a kernel for pointers that are multiples of it, or not
INT32_LIMIT = 2**31
MAX_SIGNATURES = 4096  # of one config; the cache is emptied when there are more
NO_HOOKS = (None, None, None)  # launch metadata, enter hook, exit hook

Tensors = Mapping[str, Tensor]  # a layer's tensors by their names in ``Layer``


# This thread's GPU, and the address of its current stream on a GPU. The public functions take five times as
# long, to initialise CUDA or to make an object.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)

generation = 0  # part of every signature: a forked child must not launch kernels that its parent loaded
_compiling = threading.RLock()


class FilledLaunch(NamedTuple):
    """A launch with all values of a plan; only the layer's tensors are missing."""

    launcher: Callable[..., None]  # ``compiled.run``
    grid: tuple[int, int, int]
    fixed: tuple[Any, ...]  # what the launcher takes between the stream and the kernel's arguments
    num_leading: int  # how many of the layer's tensors come first among the arguments
    rest: tuple[Any, ...]  # the arguments behind those
    tensor_slots: tuple[tuple[int, int, Any], ...]  # as in ``BoundLaunch``


class BoundLaunch:
    """A kernel launch that all layers of one signature share, with its compiled kernel once that is known."""

    def __init__(self, launch: Launch, tensors: Tensors) -> None:
        self.launch = launch
        self.compiled: Any = None  # None where Triton's dispatch has to make the launch
        self.tried = False  # whether a launch has shown which kernel Triton compiles
        names = list(tensors)
        pairs = zip(launch.arguments, names, strict=False)
        own = (isinstance(argument, OfLayer) and argument.name == name for argument, name in pairs)
        self.num_leading = sum(1 for _ in takewhile(bool, own))
        behind = list(enumerate(launch.arguments[self.num_leading :]))
        self.rest = tuple(
            None if isinstance(argument, OfLayer | Described | OfPlan) else argument for _, argument in behind
        )
        # Where in ``rest`` the layer's other tensors belong, which they are, and how they are described.
        self.tensor_slots = tuple(
            (place, names.index(argument.name), _template(argument, tensors))
            for place, argument in behind
            if isinstance(argument, OfLayer | Described)
        )
        self.of_plan = tuple(
            (place, argument.value) for place, argument in behind if isinstance(argument, OfPlan)
        )

    def fill(self, plan: Plan) -> FilledLaunch | None:
        """Fill in a plan's values; None where the kernel is unknown or was not compiled for such values."""
        if self.compiled is None:
            return None
        rest = self._rest(plan)
        if rest is None:
            return None
        x, y, z = (*self.launch.grid(plan), 1, 1)[:3]
        compiled = self.compiled
        fixed = (compiled.function, compiled.packed_metadata, *NO_HOOKS)
        return FilledLaunch(compiled.run, (x, y, z), fixed, self.num_leading, rest, self.tensor_slots)

    def _rest(self, plan: Plan) -> tuple[Any, ...] | None:
        rest = list(self.rest)
        for place, value_of in self.of_plan:
            value = rest[place] = as_argument(value_of(plan))
            if value is None:
                return None
        return tuple(rest)

    def set_compiled(self, compiled: Any, plan: Plan) -> None:
        """Keep the compiled kernel that Triton launched for a plan, if it serves other plans as well."""
        if self._rest(plan) is not None:
            self.compiled, self.tried = compiled, True


def _template(argument: OfLayer | Described, tensors: Tensors) -> Any:
    """Return a descriptor without its tensor, as layers of one signature share it; None for a pointer."""
    if isinstance(argument, OfLayer):
        return None
    return with_base(argument.describe(tensors[argument.name]), None)


def with_base(descriptor: Any, tensor: Tensor | None) -> Any:
    """Copy a tensor descriptor for another tensor of the same shape and strides."""
    other = object.__new__(type(descriptor))
    other.__dict__.update(descriptor.__dict__, base=tensor)
    return other


def as_argument(value: Any) -> int | None:
    """Return a plan's integer, or its tensor's address, as a kernel argument.

    None where Triton would compile another kernel. It does so for integers of more than 32 bits, and for
    addresses that are no multiple of ALIGNMENT, except those of index tensors (int32).
    """
    if type(value) is int:
        return value if -INT32_LIMIT <= value < INT32_LIMIT else None
    address: int = value.data_ptr()
    return None if address % ALIGNMENT and value.dtype != torch.int32 else address


def remember(cache: dict[Hashable, Any], signature: Hashable, launches: Any) -> None:
    """Keep launches in a cache of bounded size."""
    if len(cache) >= MAX_SIGNATURES:
        cache.clear()
    cache[signature] = launches


def fill(plan: Plan, bound: tuple[BoundLaunch, ...]) -> tuple[FilledLaunch, ...] | None:
    """Fill in the launches that a plan's batch needs; None if Triton's dispatch has to make one of them."""
    if hooked():
        return None
    filled = []
    for bound_launch in bound:
        if bound_launch.launch.needed(plan):
            launch = bound_launch.fill(plan)
            if launch is None:
                return None
            filled.append(launch)
    return tuple(filled)


def launch_filled(
    device: int, launches: tuple[FilledLaunch, ...], addresses: tuple[int, ...], tensors: Sequence[Tensor]
) -> None:
    """Launch on this thread's current stream of a GPU. Writes nothing that threads share."""
    if current_device() != device:
        with torch.cuda.device(device):
            launch_filled(device, launches, addresses, tensors)
        return
    stream = current_stream(device)
    for launcher, grid, fixed, num_leading, rest, tensor_slots in launches:
        if tensor_slots:
            arguments = list(rest)
            for place, index, template in tensor_slots:
                arguments[place] = (
                    addresses[index] if template is None else with_base(template, tensors[index])
                )
            rest = tuple(arguments)
        launcher(*grid, stream, *fixed, *addresses[:num_leading], *rest)


def launch_through_triton(plan: Plan, bound: tuple[BoundLaunch, ...], tensors: Tensors) -> None:
    """Let Triton's dispatch make the launches that a plan's batch needs, and keep the compiled kernels.

    Raises:
        ValueError: the tensors are on the CPU and Triton compiles, or the environment variable is wrong.
    """
    _prepare(bound[0].launch.kernel, plan.device)
    needed = [bound_launch for bound_launch in bound if bound_launch.launch.needed(plan)]
    on_device = torch.cuda.device(plan.device) if plan.device.type == "cuda" else nullcontext()
    untried = any(not bound_launch.tried for bound_launch in needed)
    direct = untried and _is_direct()
    with on_device, _compiling if untried else nullcontext():  # Triton itself has no lock
        for bound_launch in needed:
            launch = bound_launch.launch
            arguments = [_argument_value(argument, plan, tensors) for argument in launch.arguments]
            compiled = launch_kernel(launch.kernel, launch.grid(plan), arguments, launch.options)
            if compiled is not None and not bound_launch.tried:
                bound_launch.set_compiled(compiled if direct else None, plan)


def _argument_value(argument: Any, plan: Plan, tensors: Tensors) -> Any:
    if isinstance(argument, OfPlan):
        return argument.value(plan)
    if isinstance(argument, OfLayer):
        tensor = tensors[argument.name]
        return tensor if argument.view is None else tensor.view(argument.view)
    if isinstance(argument, Described):
        return argument.describe(tensors[argument.name])
    return argument


launch_kernel = needed_kernels.launch  # by Triton's dispatch


def _prepare(kernel: Any, device: torch.device) -> None:
    if isinstance(kernel, JITFunction):
        if device.type == "cpu":
            needed = "a GPU is needed (or TRITON_INTERPRET=1 before triton is imported)"
            raise ValueError(f"q is on cpu, but {needed}")
        return
    from attn_kernels.launch.interpreter import mend_bfloat16_dot

    mend_bfloat16_dot()


def _is_direct() -> bool:
    """Return whether compiled kernels may be launched without Triton's dispatch.

    Not on AMD GPUs: there, Triton also specialises kernels on the sizes of tensors, which no signature holds.
    """
    mode = os.environ.get(VARIABLE, CHOICES[0])
    if mode not in CHOICES:
        raise ValueError(f"{VARIABLE} is {mode!r}, but {' or '.join(CHOICES)} is needed")
    return mode == "direct" and not torch.version.hip


def hooked() -> bool:
    """Return whether a launch hook is set, which Triton's dispatch has to call."""
    runtime = knobs.runtime
    try:
        return bool(runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls)
    except AttributeError:  # a function or None in a chain's place
        return any(
            getattr(hook, "calls", hook) for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook)
        )


def forget() -> None:
    """Drop all compiled kernels, also those of plans that exist already."""
    global _compiling, generation
    _compiling = threading.RLock()  # at a fork, another thread may hold the old one
    generation += 1


os.register_at_fork(after_in_child=forget)

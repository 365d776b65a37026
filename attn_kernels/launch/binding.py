"""Launches bound to compiled kernels: through Triton once a signature, and directly from then on."""

import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from attn_kernels.core.config import Config
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Described, Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.launch import signature
from attn_kernels.launch.direct import observe
from attn_kernels.launch.ready import Ready, Template, as_bound
from attn_kernels.launch.signature import TENSORS

MOST_SIGNATURES = 4096  # of one config; whoever has more starts anew

_first_launch = threading.RLock()


@dataclass(slots=True, eq=False)
class Bound:
    """A launch, and how to make it directly, once that is known."""

    launch: Launch
    template: Template | None = None
    tried: bool = False


@lru_cache(maxsize=1024)
def bound_of(config: Config, model: Model, device: torch.device) -> dict[Hashable, tuple[Bound, ...]]:
    """What plans of the same config, model and device share: bound launches by signature."""
    return {}


def bind(plan: Plan, key: Hashable, launches: tuple[Launch, ...]) -> tuple[Bound, ...]:
    """Bind launches for all plans that share ``plan.bound``."""
    bound = tuple(map(Bound, launches))
    if key is not None:
        remember(plan.bound, key, bound)
    return bound


def remember(known: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    if len(known) >= MOST_SIGNATURES:
        known.clear()
    known[key] = value


def fill_in(plan: Plan, bound: tuple[Bound, ...]) -> tuple[Ready, ...] | None:
    """The launches that the plan's batch needs, or None if one has to be made through Triton."""
    filled = []
    for one in bound:
        if one.launch.needed(plan):
            ready = one.template.fill(plan) if one.template is not None else None
            if ready is None:
                return None
            filled.append(ready)
    return tuple(filled)


def launch_through_triton(plan: Plan, bound: tuple[Bound, ...], layer: Layer | None = None) -> None:
    """Launch what the plan's batch needs, and learn from each kernel's first launch how to do it directly."""
    _prepare(bound[0].launch.kernel, plan.device)
    if plan.device.type == "cpu" or plan.device.index == torch.cuda.current_device():
        _launch_and_observe(plan, bound, layer)
    else:
        with torch.cuda.device(plan.device):
            _launch_and_observe(plan, bound, layer)


def _launch_and_observe(plan: Plan, bound: tuple[Bound, ...], layer: Layer | None) -> None:
    needed = [one for one in bound if one.launch.needed(plan)]
    if all(one.tried for one in needed):
        for one in needed:
            _launch(one.launch, plan, layer)
        return
    with _first_launch:  # so that Triton compiles and loads a kernel once
        for one in needed:
            arguments, compiled = _launch(one.launch, plan, layer)
            if not one.tried and _is_as_bound(one.launch, plan):
                direct = observe(compiled, arguments)
                one.template = None if direct is None else Template.of(one.launch, direct, present(layer))
                one.tried = True


def present(layer: Layer | None) -> tuple[str, ...]:
    """The names of a layer's tensors, in the order of their addresses."""
    return tuple(name for name in TENSORS if isinstance(getattr(layer, name, None), Tensor))


def _is_as_bound(launch: Launch, plan: Plan) -> bool:
    """Whether the plan's values are of the kind that other plans' are launched with directly."""
    values = [argument.value(plan) for argument in launch.arguments if isinstance(argument, OfPlan)]
    return all(as_bound(value) is not None for value in values)


def _launch(launch: Launch, plan: Plan, layer: Layer | None) -> tuple[list[Any], Any]:
    arguments = [_resolve(argument, plan, layer) for argument in launch.arguments]
    return arguments, launch_kernel(launch.kernel, launch.grid(plan), arguments, launch.options)


def _resolve(argument: Any, plan: Plan, layer: Layer | None) -> Any:
    if isinstance(argument, OfPlan):
        return argument.value(plan)
    if isinstance(argument, OfLayer):
        tensor = getattr(layer, argument.name)
        return tensor if argument.view is None else tensor.view(argument.view)
    if isinstance(argument, Described):
        return argument.describe(getattr(layer, argument.name))
    return argument


def launch_kernel(kernel: Any, grid: tuple[int, ...], arguments: list[Any], options: Any) -> Any:
    """The one place where Triton is asked to launch. Returns its compiled kernel, or None if interpreted."""
    return kernel[grid](*arguments, **options)


def _prepare(kernel: Any, device: torch.device) -> None:
    if isinstance(kernel, JITFunction):
        if device.type == "cpu":
            needed = "a GPU is needed (or TRITON_INTERPRET=1 before triton is imported)"
            raise ValueError(f"q is on cpu, but {needed}")
        return
    from attn_kernels.launch.interpreter import mend_bfloat16_dot

    mend_bfloat16_dot()


def forget() -> None:
    """Bind everything anew from now on. A forked child must: kernels of its parent are none of its own."""
    global _first_launch
    _first_launch = threading.RLock()
    signature.forget()
    bound_of.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)

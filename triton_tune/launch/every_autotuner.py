"""Wrap the launches of all `@triton.autotune`d kernels of a program, now and later."""

import contextlib
import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics

from triton_tune.launch.choosing import DOES_NOT_FIT

Run = Callable[..., Any]


def wrap_every(wrap: Callable[[Autotuner], Run]) -> None:
    """Make each autotuner launch through what `wrap` returns for it, even if its class overrides `run`.

    The object itself is wrapped, so code that has already imported it is affected too. `own_run` launches as
    before.
    """
    begin = Autotuner.__init__

    def begin_wrapped(tuner: Autotuner, *args: Any, **kwargs: Any) -> None:
        begin(tuner, *args, **kwargs)
        tuner.run = wrap(tuner)

    Autotuner.__init__ = begin_wrapped
    for existing in gc.get_objects():
        # A `Tuned` kernel has been given a module already.
        if issubclass(type(existing), Autotuner) and not hasattr(type(existing), "chosen"):
            existing.run = wrap(existing)


def own_run(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
    """Launch as the autotuner's class does."""
    return type(tuner).run(tuner, *args, **kwargs)


def run_first(
    tuner: Autotuner, run: Run, args: Sequence[Any], kwargs: Mapping[str, Any], config: Any = None
) -> Any:
    """Launch by `run` with the first config that the device can launch, or with `config`; never search."""
    every, tuner.nargs = tuner.configs, dict(zip(tuner.arg_names, args, strict=False))
    *firsts, last = tuner.prune_configs(dict(kwargs)) if config is None else [config]
    try:
        for config in firsts:
            with contextlib.suppress(*DOES_NOT_FIT):
                tuner.configs = [config]
                return run(tuner, *args, **kwargs)
        tuner.configs = [last]
        return run(tuner, *args, **kwargs)
    finally:
        tuner.configs = every


class _WouldSearch(Exception):
    pass


def run_without_search(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
    """Launch what the autotuner found earlier for such arguments, or else the first config that works."""

    def refuse(*_: Any) -> Any:
        raise _WouldSearch

    tuner.prune_configs = refuse  # with which a search begins, whatever the autotuner's class takes for equal
    try:
        return own_run(tuner, *args, **kwargs)
    except _WouldSearch:
        pass
    finally:
        del tuner.prune_configs
    return run_first(tuner, own_run, args, kwargs)


def layers(kernel: Any) -> Iterator[Any]:
    """A kernel, and what lies below each of its decorators, down to its Python function."""
    while kernel is not None and not isinstance(kernel, type):
        yield kernel
        kernel = vars(kernel).get("fn") if hasattr(kernel, "__dict__") else None


def function_of(kernel: Any) -> Any:
    """The Python function of a kernel."""
    for layer in layers(kernel):
        kernel = layer
    return kernel


def function_name(kernel: Any) -> str:
    """`module:function` of a kernel."""
    function = function_of(kernel)
    return f"{function.__module__}:{function.__qualname__}"


def defaults_of(function: Any) -> dict[str, Any]:
    """The defaults of a function's arguments, by name."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def apply_rules(tuner: Autotuner, arguments: dict[str, Any]) -> list[Any]:
    """Add what `@triton.heuristics` below the autotuner computes to the arguments; returns it in order."""
    computed = []
    for kernel in layers(tuner.fn):
        for name, rule in kernel.values.items() if isinstance(kernel, Heuristics) else ():
            arguments[name] = rule(arguments)
            computed.append(arguments[name])
    return computed


def capturing() -> bool:
    """Return whether the current stream records a CUDA graph, in which nothing can be timed."""
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

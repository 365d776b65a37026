"""The kernels that launches need, found without a launch, and compiled in processes that use no GPU.

Triton compiles a kernel from its source, the types of its arguments, its constants and its options. Its
dispatch works these out on the host before it compiles. So they can be had in milliseconds, and Triton's
cache on disk tells which of these kernels are missing.
"""

import contextlib
import hashlib
import importlib
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, get_cache_key, make_backend
from triton.runtime import driver
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

_needed_here: ContextVar[dict[str, "NeededKernel"] | None] = ContextVar("found", default=None)


@dataclass(frozen=True, eq=False)
class NeededKernel:
    """A kernel as a launch needs it; a ``Job``."""

    key: str  # of Triton's cache
    module: str
    name: str
    signature: Mapping[str, str]  # types of the arguments
    constants: Mapping[Any, Any]
    attributes: Mapping[Any, Any]
    options: Mapping[str, Any]
    target: GPUTarget
    launcher: Any  # the class whose constructor compiles C code for a signature, as in Triton 3.6; or None
    cost: int = 1

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({self.key})

    @property
    def is_cached(self) -> bool:
        """Whether Triton's cache on disk holds it."""
        file = f"{self.name[:150]}.json"
        return file in (get_cache_manager(self.key).get_group(file) or {})

    def prepare(self) -> ASTSource:
        """Return what ``triton.compile`` takes. Forks inherit its key, which takes half a second to make."""
        kernel = getattr(importlib.import_module(self.module), self.name)
        source = source_of(kernel, self.signature, self.constants, self.attributes)
        backend = make_backend(self.target)
        options = backend.parse_options(dict(self.options))
        get_cache_key(source, backend, options, get_cache_invalidating_env_vars())
        return source

    def run(self, device: torch.device) -> None:
        """Compile it into Triton's cache. Raises Triton's own errors."""
        source = self.prepare()
        compiled = triton.compile(source, target=self.target, options=dict(self.options))
        if self.launcher is not None:
            self.launcher(source, compiled.metadata)


def source_of(kernel: Any, signature: Any, constants: Any, attributes: Any) -> ASTSource:
    """What ``triton.compile`` takes for a kernel of Triton or Gluon."""
    if type(kernel).__name__ != "GluonJITFunction":
        return ASTSource(kernel, signature, constants, attributes)
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource(kernel, signature, constants, attributes)


@contextlib.contextmanager
def collect_needed() -> Iterator[dict[str, NeededKernel]]:
    """Make ``launch`` in this thread collect the kernels that are not loaded, by key, and launch nothing."""
    needed: dict[str, NeededKernel] = {}
    token, compile_now = _needed_here.set(needed), JITFunction._do_compile

    def note(
        function: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, *rest: Any
    ) -> Any:
        collected = _needed_here.get()
        if collected is None:  # another thread's launch
            return compile_now(function, key, signature, device, constants, options, *rest)
        kernel = _needed(function, device, (signature, constants, rest[0]), options)
        collected.setdefault(kernel.key, kernel)
        return None

    JITFunction._do_compile = note
    try:
        yield needed
    finally:
        JITFunction._do_compile = compile_now
        _needed_here.reset(token)


def launch(kernel: Any, grid: tuple[int, ...], arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Launch by Triton's dispatch; return the compiled kernel, None if it is interpreted or only noted."""
    if _needed_here.get() is None:
        return kernel[grid](*arguments, **options)
    return kernel.warmup(*arguments, grid=grid, **options)


def _needed(function: Any, device: int, given: tuple[Any, Any, Any], options: Any) -> NeededKernel:
    """What Triton's dispatch would compile now."""
    *_, target, backend, _ = function.device_caches[device]
    source = source_of(function, *given)
    text = get_cache_key(source, backend, options, get_cache_invalidating_env_vars())
    key = hashlib.sha256(text.encode()).hexdigest()
    launcher = getattr(driver.active, "launcher_cls", None)
    if launcher is not None and not hasattr(sys.modules[launcher.__module__], "make_launcher"):
        launcher = None
    name = function.fn.__qualname__
    return NeededKernel(key, function.fn.__module__, name, *given, dict(vars(options)), target, launcher)

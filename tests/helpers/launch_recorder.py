"""Compiled kernels that record what they would launch, below Triton's own dispatch."""

import contextlib
import dataclasses
import functools
from types import SimpleNamespace

import torch
import triton
from kernel_cases import kernels, random_batch
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

import attn_kernels
from attn_kernels.kernels.arguments import JIT_OPTIONS
from attn_kernels.launch import direct

STREAM = 77
LENS = ((3, 1, 0), (20, 50, 7))
DISPATCHED = object()  # the launch metadata of launches that Triton's dispatch makes


TARGETS = {"nvidia": GPUTarget("cuda", 90, 32), "amd": GPUTarget("hip", "gfx942", 64)}


def jit_function(kernel):
    """What Triton compiles of a kernel; the interpreter has something else in its place."""
    if isinstance(kernel, JITFunction):
        return type(kernel)(kernel.fn, **{option: getattr(kernel, option) for option in JIT_OPTIONS})
    declared = {option: kernel.kwargs[option] for option in JIT_OPTIONS}
    assert declared == JIT_OPTIONS
    return JITFunction(kernel.fn, **declared)


@functools.cache
def binder(name, vendor):
    function = jit_function(kernels()[name])
    return create_function_from_signature(function.signature, function.params, make_backend(TARGETS[vendor]))


def key(launch, vendor="nvidia"):
    """The cache key that Triton's dispatch computes for a launch, without a GPU."""
    _, specialisation, options = binder(launch.kernel, vendor)(*launch.arguments.values(), **launch.options)
    return launch.kernel, tuple(specialisation), str(options)


class RecordingKernel:
    """In place of Triton's ``CompiledKernel``."""

    packed_metadata = (4, 1, 0)

    def __init__(self, recorder, name, key):
        self.recorder, self.name, self.function = recorder, name, key

    def launch_metadata(self, grid, stream, *arguments):
        return DISPATCHED

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        assert (function, metadata) == (self.function, self.packed_metadata)
        for hook in (enter, leave):
            if hook is not None:
                hook(launch_metadata)
        launch = SimpleNamespace(
            kernel=self.name, key=function, grid=(x, y, z), stream=stream, arguments=arguments
        )
        self.recorder.launches.append((launch_metadata, launch))


class Recorder:
    """Triton's dispatch with kernels that compile nothing; keeps all launches, dispatched or direct."""

    def __init__(self):
        self.launches = []

    @functools.cache  # noqa: B019
    def jit_function(self, kernel):
        function = jit_function(kernel)

        def compile_kernel(key, signature, device, *rest):
            made = RecordingKernel(self, function.__name__, key)
            function.device_caches[device][0][key] = made
            return made

        function._do_compile = compile_kernel
        return function

    def launch_kernel(self, kernel, grid, arguments, options):
        """In place of ``direct.launch_kernel``."""
        return self.jit_function(kernel)[grid](*arguments, **options)

    @property
    def public(self):
        return [launch for metadata, launch in self.launches if metadata is DISPATCHED]

    @property
    def direct(self):
        return [launch for metadata, launch in self.launches if metadata is not DISPATCHED]

    def clear(self):
        self.launches.clear()


@contextlib.contextmanager
def recording(monkeypatch):
    """A recorder between this package and a Hopper GPU that does not exist."""
    found = Recorder()
    driver = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda device: STREAM,
        get_current_target=lambda: TARGETS["nvidia"],
    )
    direct.forget()
    monkeypatch.delenv(direct.VARIABLE, raising=False)
    monkeypatch.setattr(triton.runtime.driver, "_active", driver)
    monkeypatch.setattr(direct, "launch_kernel", found.launch_kernel)
    monkeypatch.setattr(direct, "current_device", lambda: None)
    monkeypatch.setattr(direct, "current_stream", lambda device: STREAM)
    yield found
    direct.forget()


def run(plan, layer):
    return attn_kernels.run(plan, **layer)


def layer_of(batch, **changes):
    tensors = {"q": batch.q, "k_cache": batch.k_cache, "v_cache": batch.v_cache}
    return tensors | {"out": torch.empty_like(batch.q)} | changes


@contextlib.contextmanager
def hooked(hook=lambda metadata: None):
    chain = knobs.runtime.launch_enter_hook
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)


def as_numbers(launch):
    """A launch with the address of each tensor in its place, also of those that descriptors describe."""

    def number(value):
        if hasattr(value, "block_shape"):
            return vars(value) | {"base": value.base.data_ptr()}
        return value.data_ptr() if isinstance(value, Tensor) else value

    return SimpleNamespace(**vars(launch) | {"arguments": list(map(number, launch.arguments))})


def check_direct(recorder, plan, layer):
    """The layer's next launch is direct, and as Triton's dispatch would make it."""
    recorder.clear()
    parts = tuple(dataclasses.replace(part, launch_cache={}) for part in plan.parts)
    fused = None if plan.fused is None else dataclasses.replace(plan.fused, launch_cache={})
    run(dataclasses.replace(plan, launch_cache={}, launches={}, parts=parts, fused=fused), layer)
    expected = recorder.public
    assert expected
    assert not recorder.direct
    recorder.clear()
    run(plan, layer)
    assert not recorder.public
    for one, other in zip(map(as_numbers, recorder.direct), map(as_numbers, expected), strict=True):
        assert one == other
        assert list(map(type, one.arguments)) == list(map(type, other.arguments))


def far(tensor, dimension, stride):
    """The same values with the entries of a dimension ``stride`` elements apart; no more is touched."""
    strides = list(torch.empty_like(tensor, memory_format=torch.contiguous_format).stride())
    strides[dimension] = stride
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def batch_of(lens=LENS, **options):
    return random_batch(lens, **({"ratio": 4, "kv_heads": 2, "head_size": 32} | options))

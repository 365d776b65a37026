"""The cache key that Triton's launcher computes for a launch, without a GPU."""

import functools

from kernel_cases import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from attn_kernels.kernels.arguments import JIT_OPTIONS

TARGETS = {"nvidia": GPUTarget("cuda", 90, 32), "amd": GPUTarget("hip", "gfx942", 64)}


@functools.cache
def binder(name, vendor):
    kernel = kernels()[name]
    declared = {option: kernel.kwargs[option] for option in JIT_OPTIONS}
    assert declared == JIT_OPTIONS
    function = JITFunction(kernel.fn, **declared)
    return create_function_from_signature(function.signature, function.params, make_backend(TARGETS[vendor]))


def key(launch, vendor="nvidia"):
    _, specialisation, options = binder(launch.kernel, vendor)(*launch.arguments.values(), **launch.options)
    return launch.kernel, tuple(specialisation), str(options)

"""The cache key that Triton's dispatch computes for a launch, without a GPU."""

import functools

from kernel_cases import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from attn_kernels.kernels.arguments import JIT_OPTIONS

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
    _, specialisation, options = binder(launch.kernel, vendor)(*launch.arguments.values(), **launch.options)
    return launch.kernel, tuple(specialisation), str(options)

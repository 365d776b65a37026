"""Stand-ins for compiled kernels, which record what would have been launched instead of launching it."""

import contextlib
from types import SimpleNamespace

import torch
from kernel_cases import random_batch
from specialisation_key import key
from torch import Tensor
from triton import knobs

import attn_kernels
from attn_kernels.launch import binding, direct, ready

STREAM = 77
LENS = ((3, 1, 0), (20, 50, 7))


class Launcher:
    """Triton's, as version 3.6 has it or, ``nested``, as 3.9 does."""

    def __init__(self, launch, nested):
        self.launch, self.nested = launch, nested
        self.global_scratch_size = self.profile_scratch_size = 0

    def __call__(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        hooks = (launch_metadata, enter, leave)
        if self.nested:
            self.launch(x, y, z, stream, function, False, False, metadata, *hooks, None, None, b"", arguments)
        else:
            self.launch(x, y, z, stream, function, False, False, None, None, metadata, *hooks, *arguments)


class Recorder:
    """Compiles nothing and launches nothing; keeps what either way of launching would have launched."""

    def __init__(self, nested=False, launcher=Launcher):
        self.nested, self.launcher = nested, launcher
        self.public, self.direct, self.functions = [], [], 0

    def launch_kernel(self, kernel, grid, arguments, options):
        """In place of ``binding.launch_kernel``."""
        names = kernel.arg_names
        launch = SimpleNamespace(
            kernel=kernel.fn.__name__,
            grid=(*grid, 1, 1)[:3],
            arguments=dict(zip(names, arguments, strict=True)),
            options=options,
        )
        launch.key = self.key(launch)
        self.public.append(launch)
        self.functions += 1
        return self.compiled(launch, self.functions)

    def key(self, launch):
        """What Triton would compile the kernel for."""
        return key(launch)

    def compiled(self, launch, function):
        start = 8 if self.nested else 13

        def c_function(x, y, z, stream, *rest):
            assert rest[0] == function
            arguments = rest[-1] if self.nested else rest[start - 4 :]
            self.direct.append(
                SimpleNamespace(key=launch.key, grid=(x, y, z), stream=stream, arguments=tuple(arguments))
            )

        run = self.launcher(c_function, self.nested)
        return SimpleNamespace(run=run, function=function, packed_metadata=(4, 1, 0))

    def clear(self):
        self.public.clear()
        self.direct.clear()


@contextlib.contextmanager
def recording(monkeypatch, found):
    """While ``found`` stands in for Triton."""
    binding.forget()
    monkeypatch.delenv(direct.VARIABLE, raising=False)
    monkeypatch.setattr(binding, "launch_kernel", found.launch_kernel)
    monkeypatch.setattr(ready, "current_device", lambda: None)
    monkeypatch.setattr(ready, "current_stream", lambda device: STREAM)
    yield found
    binding.forget()


def run(plan, layer):
    return attn_kernels.run(plan, layer["q"], layer["k_cache"], layer["v_cache"], **rest(layer))


def rest(layer):
    return {name: value for name, value in layer.items() if name not in ("q", "k_cache", "v_cache")}


def layer_of(batch, **changes):
    tensors = {"q": batch.q, "k_cache": batch.k_cache, "v_cache": batch.v_cache}
    return tensors | {"out": torch.empty_like(batch.q)} | changes


def as_triton_would(recorder, plan, layer):
    """What Triton would have launched, asked for with a hook set."""
    with hooked():
        recorder.public.clear()
        run(plan, layer)
    return list(recorder.public)


@contextlib.contextmanager
def hooked():
    chain = knobs.runtime.launch_enter_hook
    chain.add(print)
    try:
        yield
    finally:
        chain.remove(print)


def assert_same(found, expected):
    """A direct launch and what Triton would have launched."""
    assert found.key == expected.key
    assert found.grid == expected.grid
    assert found.stream == STREAM
    values = [
        value.data_ptr() if isinstance(value, Tensor) else value for value in expected.arguments.values()
    ]
    assert list(found.arguments) == values
    assert list(map(type, found.arguments)) == list(map(type, values))


def check_direct(recorder, plan, layer):
    """The layer's next launch is direct, and as Triton's would be."""
    expected = as_triton_would(recorder, plan, layer)
    recorder.clear()
    run(plan, layer)
    assert not recorder.public
    assert expected
    for one, other in zip(recorder.direct, expected, strict=True):
        assert_same(one, other)


def shifted(tensor, elements=1):
    room = torch.empty(tensor.numel() + elements, dtype=tensor.dtype)
    return room[elements:].view(tensor.shape).copy_(tensor)


def far(tensor, dimension, stride):
    strides = list(tensor.stride())
    strides[dimension] = stride
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)


def batch_of(lens=LENS, **options):
    return random_batch(lens, ratio=4, kv_heads=2, head_size=32, **options)

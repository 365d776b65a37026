"""A stand-in for a GPU that this machine lacks, so that launches find the kernels that they need there."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from triton.runtime import driver

from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.hopper_limits import hopper_module
from attn_kernels.launch import direct
from attn_kernels.offline.resources import TARGETS

STAND_IN = torch.device("meta")  # whose tensors have shapes and no memory


@contextlib.contextmanager
def absent_gpu(target: str, multiprocessors: int) -> Iterator[torch.device]:
    """Yield a device that this process takes for a GPU until the end of this context; nothing runs on it.

    A process has one target, because facts about devices are kept.

    target: a key of ``TARGETS``.
    """
    gpu = TARGETS[target]
    major, minor = divmod(gpu.arch, 10) if gpu.backend == "cuda" else (9, 4)
    properties = SimpleNamespace(
        name=target, major=major, minor=minor, gcnArchName=target, multi_processor_count=multiprocessors
    )
    active = SimpleNamespace(
        get_current_target=lambda: gpu, get_current_device=lambda: 0, get_current_stream=lambda device: 0
    )
    serves, before = target == "sm_90", driver._active
    with contextlib.ExitStack() as stack:
        replaced: list[tuple[Any, str, Any]] = [
            (torch.cuda, "get_device_properties", lambda device: properties),
            (torch.cuda, "get_device_capability", lambda device: (major, minor)),
            (torch.version, "hip", None if gpu.backend == "cuda" else "stand-in"),
            (hopper_limits, "hopper_for", lambda device: hopper_module() if serves else None),
        ]
        for one in replaced:
            stack.enter_context(mock.patch.object(*one))
        driver.set_active(active)
        direct.forget()
        try:
            yield STAND_IN
        finally:
            driver.set_active(before)
            direct.forget()

"""A stand-in for an H100 on a machine without one, so that launches find the kernels that they need there."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from attn_kernels.core import checks
from attn_kernels.kernels import hopper_launch


@contextlib.contextmanager
def absent_h100() -> Iterator[torch.device]:
    """Yield a device without memory that launches take for an H100, until this process ends."""
    properties = SimpleNamespace(name="sm_90", major=9, minor=0, multi_processor_count=132)
    active = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
    )
    driver.set_active(active)
    with (
        mock.patch.object(torch.cuda, "get_device_properties", lambda device: properties),
        mock.patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)),
        mock.patch.object(torch.version, "hip", None),
        mock.patch.object(checks, "DEVICE_TYPES", ("cuda", "cpu", "meta")),
        mock.patch.object(hopper_launch, "hopper_for", lambda device: hopper_launch.hopper_module()),
    ):
        yield torch.device("meta")

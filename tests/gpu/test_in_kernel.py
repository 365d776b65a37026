"""Kernels find on the device the rows of what the host chooses, by every committed module."""

from __future__ import annotations

import random

import pytest
import torch
from in_kernel_choices import differences, draw

from generated.unified_attention import in_kernel

pytestmark = pytest.mark.gpu
BATCHES = 10_000


@pytest.mark.parametrize("key", sorted(in_kernel.MODULES))
def test_device_and_host_choose_alike(key: str, device: torch.device) -> None:
    batches = draw(random.Random(0), BATCHES)
    assert differences(key, in_kernel.MODULES[key].row, batches, str(device)) == []

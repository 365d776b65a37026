"""How many multiprocessors a device has."""

from functools import cache

import torch

INTERPRETED_PROCESSORS = 3  # in Triton's interpreter


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors (NVIDIA) or compute units (AMD) of a device."""
    if device.type == "cpu":
        return INTERPRETED_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count

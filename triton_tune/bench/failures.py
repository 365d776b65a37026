"""Why a config has no time in a scenario."""

import torch

from triton_tune.core.device import exceeds_device
from tuning_table.table import Failure

TOO_LARGE = "needs more shared memory or registers than the device has"
DISAGREES = "disagrees with the reference"
OUT_OF_MEMORY = "needs more device memory than is free"


def failure_of(error: Exception, device: torch.device, *, with_text: bool) -> Failure:
    """What an error tells of a config. Raises errors that leave the device unusable."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # raises again if the device is lost
    if exceeds_device(error):
        return Failure(TOO_LARGE)
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return Failure(OUT_OF_MEMORY)
    text = f": {(str(error).strip().splitlines() or [''])[0][:120]}" if with_text else ""
    return Failure(f"raised {type(error).__name__}{text}")

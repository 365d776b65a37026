"""The chunk scan of Mamba 2."""

import mamba_ssm.ops.triton.ssd_chunk_scan as package
import torch

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning


def arguments(batch, seqlen, heads, size, states, groups, chunk):
    chunks, widths = -(-seqlen // chunk), [heads * size, groups * states, groups * states]
    mixed = torch.randn(batch, seqlen, sum(widths), dtype=DTYPE)  # x, B and C lie in one tensor
    x, _, c = mixed.split(widths, dim=-1)
    dt = torch.rand(batch, heads, chunks, chunk)
    return {
        "cb": torch.randn(batch, chunks, groups, chunk, chunk),
        "x": x.unflatten(-1, (heads, size)),
        "dt": dt,
        "dA_cumsum": (-0.05 * dt).cumsum(-1),
        "C": c.unflatten(-1, (groups, states)),
        "states": torch.randn(batch, chunks, heads, size, states, dtype=DTYPE),
        "D": torch.randn(heads),
    }


TUNING = Tuning(
    kernel=package._chunk_scan_fwd_kernel,
    name="chunk_scan",
    call=package._chunk_scan_fwd,
    arguments=arguments,
    features={"seqlen": "seqlen", "batch": "batch", "heads": "x_ptr.shape[2]"},
    **tuned("chunk_scan"),
)

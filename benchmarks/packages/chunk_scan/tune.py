"""The chunk scan of Mamba 2."""

import mamba_ssm.ops.triton.ssd_chunk_scan as package
import torch
from torch.nn.functional import pad

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


def reference(cb, x, dt, dA_cumsum, C, states, D):
    (chunks, chunk), seqlen, per_group = dt.shape[2:], x.shape[1], x.shape[2] // C.shape[2]

    def in_chunks(tensor):  # to chunk, head or group, step, size
        padded = pad(tensor.float(), (0, 0, 0, 0, 0, chunks * chunk - seqlen))
        return padded.unflatten(0, (chunks, chunk)).transpose(1, 2)

    found = []
    for n in range(len(x)):  # all at once would take too much memory
        values, queries = in_chunks(x[n]), in_chunks(C[n]).repeat_interleave(per_group, 1)
        decay, steps = dA_cumsum[n].transpose(0, 1), dt[n].transpose(0, 1)  # chunk, head, step
        weights = (decay[..., :, None] - decay[..., None, :]).exp() * steps[..., None, :]
        weights = (cb[n].repeat_interleave(per_group, 1) * weights).tril()
        out = weights @ values + queries @ states[n].float().mT * decay.exp()[..., None]
        found.append((out + values * D[:, None, None]).transpose(1, 2).flatten(0, 1)[:seqlen])
    return torch.stack(found), None


TUNING = Tuning(
    kernel=package._chunk_scan_fwd_kernel,
    name="chunk_scan",
    call=package._chunk_scan_fwd,
    arguments=arguments,
    reference=reference,
    features={"seqlen": "seqlen", "batch": "batch", "heads": "x_ptr.shape[2]"},
    **tuned("chunk_scan"),
)

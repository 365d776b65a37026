"""What is tuned for the chunk scan of Mamba 2."""

import os

import mamba_ssm.ops.triton.ssd_chunk_scan as package
import torch
from torch.nn.functional import pad

from triton_tune import Tuning

TINY = os.environ.get("TRITON_INTERPRET") == "1"
DTYPE = torch.float16 if TINY else torch.bfloat16
# Heads, their size, states, groups, chunk; the models of untuned.py are not among them.
MODELS = [
    *((16, 64, 128, 1, 256), (40, 64, 128, 1, 256), (56, 64, 128, 1, 256), (96, 64, 128, 1, 256)),
    *((20, 64, 64, 1, 256), (72, 64, 64, 2, 256), (160, 64, 64, 4, 256), (48, 64, 64, 1, 128)),
    *((96, 64, 128, 8, 128), (160, 64, 128, 8, 128), (64, 80, 128, 4, 128), (192, 80, 128, 8, 128)),
    *((24, 128, 256, 1, 256), (32, 128, 256, 2, 256), (64, 128, 128, 4, 256), (12, 128, 128, 1, 128)),
    *((128, 64, 256, 4, 128), (192, 64, 256, 8, 128), (36, 96, 128, 1, 256), (96, 96, 64, 2, 128)),
    *((64, 32, 64, 1, 256), (128, 32, 128, 2, 128), (112, 64, 128, 2, 64), (48, 128, 64, 1, 64)),
]


def arguments(batch, seqlen, heads, size, states, groups, chunk):
    chunks = -(-seqlen // chunk)
    widths = [heads * size, groups * states, groups * states]
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
    (batch, seqlen, heads, _), (chunks, chunk) = x.shape, dt.shape[2:]
    found = []
    for number in range(batch):  # all at once would take too much memory

        def in_chunks(tensor, number=number):  # to chunk, head or group, step, size
            padded = pad(tensor[number].float(), (0, 0, 0, 0, 0, chunks * chunk - seqlen))
            return padded.unflatten(0, (chunks, chunk)).transpose(1, 2)

        values = in_chunks(x)
        queries = in_chunks(C).repeat_interleave(heads // C.shape[2], 1)
        decay, steps = dA_cumsum[number].transpose(0, 1), dt[number].transpose(0, 1)  # chunk, head, step
        weights = cb[number].repeat_interleave(heads // C.shape[2], 1)
        weights = (weights * (decay[..., :, None] - decay[..., None, :]).exp() * steps[..., None, :]).tril()
        out = weights @ values + queries @ states[number].float().mT * decay.exp()[..., None]
        out = out + values * D[:, None, None]
        found.append(out.transpose(1, 2).flatten(0, 1)[:seqlen])
    return torch.stack(found), None


TUNING = Tuning(
    kernel=package._chunk_scan_fwd_kernel,
    name="chunk_scan",
    call=package._chunk_scan_fwd,
    shapes={
        "batch": (1, 2) if TINY else (1, 4),
        "seqlen": (20, 50) if TINY else (64, 8192),
        ("heads", "size", "states", "groups", "chunk"): (
            [(2, 16, 16, 1, 32), (4, 32, 16, 2, 16)] if TINY else MODELS
        ),
    },
    num_shapes=3 if TINY else 160,
    arguments=arguments,
    reference=reference,
    features={
        "seqlen": "seqlen",
        "batch": "batch",
        "heads": "x_ptr.shape[2]",
        "per_group": "nheads_ngroups_ratio",
    },
)

"""The products of keys in a chunk, scaled by gates, of DeltaNet in flash-linear-attention."""

import fla.ops.common.chunk_scaled_dot_kkt as package
import torch
from torch.nn.functional import pad

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning

CHUNK = 64


def arguments(B, T, H, HV, K, gated, packed):
    made = {"k": torch.randn(B, T, H, K, dtype=DTYPE) / K**0.5, "beta": torch.rand(B, T, HV, dtype=DTYPE)}
    if gated:  # within chunks, cumulative logarithms to base 2
        steps = -0.05 * torch.rand(B, -(-T // CHUNK), CHUNK, HV)
        made["g"] = steps.cumsum(2).flatten(1, 2)[:, :T].contiguous()
    if packed:
        made = {name: tensor.flatten(0, 1)[None] for name, tensor in made.items()}
        made["cu_seqlens"] = T * torch.arange(B + 1)
    return made


def reference(k, beta, g=None, cu_seqlens=None):
    shape, B = beta.shape, len(k) if cu_seqlens is None else len(cu_seqlens) - 1
    T, per_key = shape[0] * shape[1] // B, shape[2] // k.shape[2]

    def in_chunks(tensor):  # to batch, chunk, head, step, size
        padded = pad(tensor.reshape(B, T, *tensor.shape[2:]).float(), (0, 0, 0, 0, 0, -T % CHUNK))
        return padded.unflatten(1, (-1, CHUNK)).transpose(2, 3)

    keys, scale = in_chunks(k).repeat_interleave(per_key, 2), in_chunks(beta[..., None])
    found = (keys @ keys.mT * scale).tril(-1)
    if g is not None:
        decay = in_chunks(g[..., None])
        found *= (decay - decay.mT).tril().exp2()
    return found.transpose(2, 3).flatten(1, 2)[:, :T].reshape(*shape, CHUNK)


TUNING = Tuning(
    kernel=package.chunk_scaled_dot_kkt_fwd_kernel,
    name="chunk_kkt",
    call=package.chunk_scaled_dot_kkt_fwd,
    arguments=arguments,
    reference=reference,
    features={"T": "T", "B": "k.shape[0]"},
    **tuned("chunk_kkt"),
)

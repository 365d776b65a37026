"""The chunk states of linear attention in flash-linear-attention."""

import fla.ops.common.chunk_h as package
import torch

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning

CHUNK = 64


def arguments(decay, B, T, H, K, V):
    made = {"k": torch.randn(B, T, H, K, dtype=DTYPE) / 8, "v": torch.randn(B, T, H, V, dtype=DTYPE)}
    if decay == "gamma":
        made["g_gamma"] = (1 - 2.0 ** (-5 - torch.arange(H) / 4)).log2()
    elif decay != "none":  # within chunks, cumulative logarithms to base 2
        steps = -0.05 * torch.rand(B, -(-T // CHUNK), CHUNK, *{"g": (H,), "gk": (H, K), "gv": (H, V)}[decay])
        made[decay] = steps.cumsum(2).flatten(1, 2)[:, :T].contiguous()
    return made


def reference(k, v, g=None, g_gamma=None, gk=None, gv=None):
    (B, T, H, K), V = k.shape, v.shape[-1]
    none = torch.zeros(1, T, 1, 1, device=k.device)
    by_step = none if g is None else g[..., None]
    if g_gamma is not None:
        by_step = ((torch.arange(T, device=k.device) % CHUNK + 1)[:, None] * g_gamma)[None, ..., None]
    by_key, by_value = by_step if gk is None else gk, none if gv is None else gv
    state = torch.zeros(B, H, K, V, device=k.device)
    states = []
    for start in range(0, T, CHUNK):
        end = min(start + CHUNK, T)
        states.append(state.to(k.dtype))
        keys = k[:, start:end].float() * (by_key[:, end - 1 : end] - by_key[:, start:end]).exp2()
        values = v[:, start:end].float() * (by_value[:, end - 1 : end] - by_value[:, start:end]).exp2()
        state = state * by_key[:, end - 1].exp2()[..., None] * by_value[:, end - 1].exp2()[..., None, :]
        state = state + torch.einsum("bthk,bthv->bhkv", keys, values)
    return torch.stack(states, 1), None


TUNING = Tuning(
    kernel=package.chunk_fwd_kernel_h,
    name="chunk_h",
    call=package.chunk_fwd_h,
    arguments=arguments,
    reference=reference,
    features={"T": "T", "sequences": "k.shape[0] * H", "USE_G_GAMMA": "USE_G_GAMMA"},
    **tuned("chunk_h"),
)

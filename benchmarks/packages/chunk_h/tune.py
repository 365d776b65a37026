"""What is tuned for the chunk states of linear attention in flash-linear-attention."""

import os

import fla.ops.common.chunk_h as package
import torch

from triton_tune import Tuning

TINY = os.environ.get("TRITON_INTERPRET") == "1"
DTYPE = torch.float16 if TINY else torch.bfloat16
CHUNK = 64
# Heads, K, V, by what decays; the kernel is compiled for each. The models of untuned.py are not among them.
LAYOUTS = {
    "gk": [
        *((12, 64, 64), (32, 64, 64), (24, 64, 64), (2, 64, 128), (14, 64, 128), (8, 64, 256), (5, 64, 512)),
        *((8, 128, 128), (20, 128, 128), (32, 128, 128), (6, 128, 256), (10, 128, 512), (16, 96, 96)),
        *((5, 256, 512), (8, 256, 256), (16, 32, 64), (6, 32, 256), (3, 192, 384), (6, 256, 128)),
    ],
    "gv": [
        *(
            (6, 512, 64),
            (3, 512, 128),
            (8, 512, 32),
            (4, 256, 64),
            (8, 256, 128),
            (16, 128, 64),
            (10, 128, 128),
        ),
        *((8, 128, 32), (24, 64, 64), (5, 384, 96), (6, 256, 256)),
    ],
    "g": [
        *((24, 128, 64), (80, 128, 64), (48, 128, 64), (8, 256, 128), (4, 64, 64), (32, 64, 64)),
        *((16, 128, 128), (6, 256, 512), (20, 64, 128)),
    ],
    "gamma": [
        *((6, 128, 256), (12, 256, 256), (32, 96, 96), (16, 256, 512), (5, 256, 512), (32, 128, 128)),
        *((20, 128, 128), (24, 64, 64), (10, 192, 192), (3, 64, 128)),
    ],
    "none": [(16, 64, 64), (8, 256, 256), (24, 128, 128), (40, 128, 64)],
}


def arguments(decay, B, T, H, K, V):
    def within_chunks(*sizes):  # cumulative logarithms of decays, to base 2
        steps = -0.05 * torch.rand(B, -(-T // CHUNK), CHUNK, *sizes)
        return steps.cumsum(2).flatten(1, 2)[:, :T].contiguous()

    made = {"k": torch.randn(B, T, H, K, dtype=DTYPE) / 8, "v": torch.randn(B, T, H, V, dtype=DTYPE)}
    if decay == "gamma":
        made["g_gamma"] = (1 - 2.0 ** (-5 - torch.arange(H) / 4)).log2()
    elif decay != "none":
        made[decay] = within_chunks(*{"g": (H,), "gk": (H, K), "gv": (H, V)}[decay])
    return made


def reference(k, v, g=None, g_gamma=None, gk=None, gv=None):
    B, T, H, K = k.shape
    state = torch.zeros(B, H, K, v.shape[-1], dtype=torch.float32, device=k.device)
    states = []
    for start in range(0, T, CHUNK):
        end = min(start + CHUNK, T)
        states.append(state.to(k.dtype))
        keys, values = k[:, start:end].float(), v[:, start:end].float()
        if g is not None:
            state = state * g[:, end - 1].exp2()[..., None, None]
            values = values * (g[:, end - 1 : end] - g[:, start:end]).exp2()[..., None]
        if g_gamma is not None:
            left = torch.arange(end - start - 1, -1, -1, device=k.device)
            state = state * (g_gamma * (end - start)).exp2()[:, None, None]
            values = values * (left[:, None] * g_gamma).exp2()[..., None]
        if gk is not None:
            state = state * gk[:, end - 1].exp2()[..., None]
            keys = keys * (gk[:, end - 1 : end] - gk[:, start:end]).exp2()
        if gv is not None:
            state = state * gv[:, end - 1].exp2()[..., None, :]
            values = values * (gv[:, end - 1 : end] - gv[:, start:end]).exp2()
        state = state + torch.einsum("bthk,bthv->bhkv", keys, values)
    return torch.stack(states, 1), None


MODELS = [(decay, *layout) for decay, layouts in LAYOUTS.items() for layout in layouts]
TUNING = Tuning(
    kernel=package.chunk_fwd_kernel_h,
    name="chunk_h",
    call=package.chunk_fwd_h,
    shapes={
        "B": (1, 2) if TINY else (1, 8),
        "T": (40, 90) if TINY else (64, 5000),
        ("decay", "H", "K", "V"): [("gk", 1, 16, 32), ("gamma", 2, 32, 16)] if TINY else MODELS,
    },
    num_shapes=3 if TINY else 400,
    arguments=arguments,
    reference=reference,
    features={"T": "T", "sequences": "k.shape[0] * H", "USE_G_GAMMA": "USE_G_GAMMA"},
)

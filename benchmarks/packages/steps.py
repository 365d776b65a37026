"""A training step of a package's layers, in a process of its own, as a program would make it.

python -m benchmarks.packages.steps WHAT MODEL FILE: WHAT is a name in STEPS, MODEL the number of its model.
FILE gets seconds of the first steps, and the time of each autotuned kernel in warm steps.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from benchmarks.launch.timing import synchronise
from benchmarks.packages.models import DTYPE, TINY
from triton_tune.launch.every_autotuner import function_of

DEVICE = torch.device("cpu" if TINY else "cuda")
WARM = 2 if TINY else 10  # steps of each batch in a measurement
REPEATS = 1 if TINY else 15  # measurements, as the host's speed varies
Step = Callable[[], Any]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=DTYPE, device=DEVICE).requires_grad_()


def gates(*shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(torch.randn(*shape, device=DEVICE)).to(DTYPE).requires_grad_()


def heads(batch: int, length: int, H: int, K: int, V: int) -> tuple[torch.Tensor, ...]:
    beta = torch.rand(batch, length, H, device=DEVICE).to(DTYPE).requires_grad_()
    return randn(batch, length, H, K), randn(batch, length, H, K), randn(batch, length, H, V), beta


def gated_delta_net(batch: int, length: int, H: int, K: int, V: int) -> Step:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule as chunk

    (q, k, v, beta), g = heads(batch, length, H, K, V), gates(batch, length, H)
    return lambda: chunk(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]


def kda(batch: int, length: int, H: int, K: int, V: int) -> Step:
    from fla.ops.kda import chunk_kda as chunk

    (q, k, v, beta), g = heads(batch, length, H, K, V), gates(batch, length, H, K)
    return lambda: chunk(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]


def norms(batch: int, length: int, H: int, K: int, V: int) -> Step:
    """The layers around those, also in the interpreter, which cannot run all of them."""
    from fla.modules import FusedRMSNormGated, RMSNorm, ShortConvolution

    size, given = H * V, {"dtype": DTYPE, "device": DEVICE}
    norm, gated = RMSNorm(size, **given), FusedRMSNormGated(size, **given)
    convolution = ShortConvolution(size, 4, activation="silu", **given)
    x, y = randn(batch, length, size), randn(batch, length, size)
    return lambda: gated(norm(convolution(x)[0]), y)


def fused_moe(tokens: int, experts: int, chosen: int, hidden: int, size: int) -> Step:
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction

    x, up, down = randn(tokens, hidden), randn(experts, 2 * size, hidden), randn(experts, hidden, size)
    weights, indices = torch.rand(tokens, experts, device=DEVICE).softmax(1).topk(chosen, dim=1)
    indices, weights = indices.int(), weights.to(DTYPE).requires_grad_()
    with torch.no_grad():
        up /= hidden**0.5
        down /= size**0.5
    return lambda: LigerFusedMoEFunction.apply(x, up, down, indices, weights)


def mamba(batch: int, length: int, H: int, P: int, N: int) -> Step:
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined as scan

    x, B, C = randn(batch, length, H, P), randn(batch, length, 1, N), randn(batch, length, 1, N)
    dt, A = torch.rand(batch, length, H, device=DEVICE).to(DTYPE), -torch.rand(H, device=DEVICE)
    return lambda: scan(x, dt.requires_grad_(), A.requires_grad_(), B, C, chunk_size=256)


# By name: what makes a step, and models with their batches. The last one is judged, the others are recorded.
_CHUNKS = [((8, 128, 128), [(1, 1000), (1, 4096), (4, 2048), (1, 16000)])]
_CHUNKS += [((16, 128, 128), [(1, 2000), (1, 8192), (2, 1024), (8, 3000)])]
_CHUNKS += [((12, 128, 128), [(1, 6000), (2, 4000)])]
_TINY = [((1, 32, 32), [(1, 40), (1, 70)]), ((2, 32, 32), [(1, 64), (1, 100)]), ((3, 32, 32), [(1, 90)])]
_EXPERTS = [((64, 8, 2048, 1024), [(500,), (2048,), (8000,)]), ((32, 4, 2880, 1440), [(1000,), (4096,)])]
_EXPERTS += [((128, 8, 2048, 768), [(3000,), (6000,)])]
_TINY_EXPERTS = [((4, 2, 32, 32), [(9,), (20,)]), ((8, 2, 32, 64), [(17,)]), ((4, 2, 64, 32), [(12,)])]
_SCANS = [((24, 64, 128), [(1, 2048), (2, 5000)]), ((80, 64, 128), [(1, 4096)])]
_SCANS += [((48, 64, 128), [(1, 3000), (2, 4096)])]
STEPS: dict[str, tuple[Callable[..., Step], list[tuple[Any, list[Any]]]]] = {
    "gated_delta_net": (gated_delta_net, _TINY if TINY else _CHUNKS),
    "kda": (kda, _TINY if TINY else _CHUNKS),
    "norms": (norms, _TINY if TINY else _CHUNKS),
    "fused_moe": (fused_moe, _TINY_EXPERTS if TINY else _EXPERTS),
    "mamba": (mamba, _TINY if TINY else _SCANS),
}


def autotuners() -> Iterator[Autotuner]:
    """Those that were launched."""
    for tuner in gc.get_objects():
        if issubclass(type(tuner), Autotuner) and len(tuner.configs) > 1 and hasattr(tuner, "best_config"):
            yield tuner


def kernel_times(steps: list[Step]) -> dict[str, float]:
    """Microseconds of each autotuned kernel in all warm steps together."""
    if TINY:
        return {}
    names = {function_of(tuner).__name__ for tuner in autotuners()}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(WARM):
            for step in steps:
                step()
        synchronise(DEVICE)
    times: dict[str, float] = {}
    for event in profile.key_averages():
        if event.key in names:
            times[event.key] = times.get(event.key, 0.0) + event.self_device_time_total / WARM
    return times


def main(name: str, model: str, file: str) -> None:
    make, models = STEPS[name]
    sizes, batches = models[int(model)]
    torch.manual_seed(0)
    result: dict[str, Any] = {"first": [], "warm_ms": []}
    steps: list[Step] = []
    for batch in batches:
        forward = make(*batch, *sizes)

        def step(forward: Step = forward) -> None:
            out = forward()
            out = out[0] if isinstance(out, tuple) else out
            out.float().square().mean().backward()

        begun = time.monotonic()
        step()
        synchronise(DEVICE)
        result["first"].append(time.monotonic() - begun)
        step()
        steps.append(step)
    for _ in range(1 + REPEATS):
        begun = time.monotonic()
        for _ in range(WARM):
            for warm in steps:
                warm()
        synchronise(DEVICE)
        result["warm_ms"].append(1e3 * (time.monotonic() - begun) / WARM)
    del result["warm_ms"][0]
    result["kernels_us"] = kernel_times(steps)
    result["configs"] = {function_of(tuner).__name__: str(tuner.best_config) for tuner in autotuners()}
    searched = {function_of(tuner).__name__: getattr(tuner, "configs_timings", {}) for tuner in autotuners()}
    result["timings"] = {n: [t[0] for t in timings.values()] for n, timings in searched.items() if timings}
    Path(file).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Check that Triton compiles each kernel at most once for each config and head layout of a serving trace.

python -m verification.recompile [--batches 1000] launches random batches of two models with at least one
config of every variant, over caches of one page. A launch that compiles would stall a server for a second.
"""

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from attn_kernels import Config
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.kernels.hopper_limits import hopper_for
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import divide_kernel
from attn_kernels.measure.batches import (
    Batch,
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)
from attn_kernels.measure.tensors import stand_in
from benchmarks.common import environment
from benchmarks.common.implementations import Ours

LAYOUTS = (HeadLayout(32, 8), HeadLayout(28, 4))
CPU_LAYOUTS = (HeadLayout(4, 2, 16),)
CONFIGS = (
    Config("naive", 1, 64),
    Config("prefix_prefill", 64, 64),
    Config("split", 64, 64),
    Config("qblock", 64, 64),
    Config("qblock", 128, 128, num_warps=8, descriptors=1),
    Config("segmented", 16, 64, num_segments=8),
    Config("static_grid", 32, 64, num_segments=4, programs_per_sm=2),
    Config("stream_k", 16, 64, programs_per_sm=2),
    Config("stream_k", 16, 128, programs_per_sm=2, descriptors=1),
    Config("pod", 128, 64, num_stages=3, decode_tile=128),
)
CountByKernel = dict[str, int]


def trace(count: int, seed: int, largest: int) -> Iterator[Batch]:
    """Yield steps of a server, of every kind: up to `largest` sequences, contexts up to 8 times `largest`."""
    for i in range(count):
        rng = random.Random(f"trace/{seed}/{i}")
        n, context = rng.randint(1, largest), rng.randint(2, 8 * largest)
        query = rng.randint(1, context)
        steps = (
            decode(n, context),
            prefill(1, query),
            chunked_prefill(1, query, context),
            speculative(n, min(context, 4), context),
            mixed(n, 0.9, context, max(1, context // 8), seed=i),
            varlen(i, n, context, 16 * largest),
        )
        yield rng.choice(steps)


def compiled(kernel: object, device: torch.device) -> int:
    """Return how many binaries of a kernel this process has loaded."""
    caches = getattr(kernel, "device_caches", None)  # an interpreted kernel has none
    return len(caches[device.index][0]) if caches is not None else 0


def kernels(device: torch.device) -> dict[str, Any]:
    """Return every kernel of every variant, and the one that divides mixed batches, by name."""
    all_kernels = [kernel for variant in VARIANTS.values() for kernel in variant.kernels]
    all_kernels.append(divide_kernel)
    hopper = hopper_for(device)
    if hopper is not None:
        all_kernels.append(hopper.hopper_kernel)
    return {kernel.fn.__name__: kernel for kernel in all_kernels}


def configs_for(device: torch.device) -> list[Config]:
    """Return the configs to launch; only the Hopper kernel computes mixed batches without other configs."""
    return [config for config in CONFIGS if not needs_parts(config) or hopper_for(device) is not None]


def allowed(layouts: tuple[HeadLayout, ...], device: torch.device) -> CountByKernel:
    """Return the most binaries of each kernel: one for each config and head layout that launches it."""
    users: dict[str, set[tuple[Config, HeadLayout]]] = defaultdict(set)
    for config in configs_for(device):
        mixed = needs_parts(config)
        for layout in layouts:
            if (config.descriptors or mixed) and hopper_for(device) is not None:
                for name in ("hopper_kernel", "schedule_kernel", *["divide_kernel"] * mixed):
                    users[name].add((config, layout))
                continue
            group = layout.num_query_heads // layout.num_kv_heads
            for part in VARIANTS[config.variant].specialise(config, group):
                users[part.kernel.fn.__name__].add((config, layout))
    return {name: len(pairs) for name, pairs in users.items()}


def launch_all(batches: list[Batch], device: torch.device) -> int:
    """Launch every batch with every config that computes it; return the number of launches."""
    launches = 0
    for batch in batches:
        tensors = stand_in(batch, device)
        in_parts = all(part.num_query_tokens for part in batch.parts)
        for config in configs_for(device):
            if in_parts or not needs_parts(config):
                Ours(config).prepare(tensors).launches[0]()
                launches += 1
    if device.type == "cuda":
        torch.cuda.synchronize()
    return launches


def verdicts(compilations: CountByKernel, limits: CountByKernel) -> list[str]:
    """Return a line for each kernel."""
    return [
        f"{name:24} {compilations[name]} compiled, {limit} configs x head layouts"
        + ("  TOO MANY" if compilations[name] > limit else "")
        for name, limit in limits.items()
    ]


def main() -> int:
    """Return 0, or 1 if a kernel was compiled more often than once for each config and head layout."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="verification.recompile", description=__doc__)
    parser.add_argument("--batches", type=int, help="batches of the trace (default 1000; 2 on cpu)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", help=environment.DEVICE_HELP)
    args = parser.parse_args()
    device = environment.device_from(args.device)
    if args.batches is not None and args.batches < 1:
        environment.stop(f"--batches {args.batches}: at least 1 is needed")
    on_gpu = device.type == "cuda"
    count = args.batches or (1000 if on_gpu else 2)
    layouts = LAYOUTS if on_gpu else CPU_LAYOUTS
    print(environment.headline(environment.describe(device)), flush=True)
    before = {name: compiled(kernel, device) for name, kernel in kernels(device).items()}
    steps = list(trace(count, args.seed, 128 if on_gpu else 2))
    launches = sum(launch_all([batch.at(layout) for batch in steps], device) for layout in layouts)
    compilations = {name: compiled(kernel, device) - before[name] for name, kernel in kernels(device).items()}
    limits = allowed(layouts, device)
    print("\n".join(verdicts(compilations, limits)))
    if not on_gpu:
        print("the interpreter compiles nothing: this run only tests the command")
    total, most = sum(compilations.values()), sum(limits.values())
    seconds = time.monotonic() - started
    print(
        f"{launches} launches in {seconds:.0f} s: {total} compiled, {most} configs x head layouts x kernels"
    )
    return 1 if any(compilations[name] > limit for name, limit in limits.items()) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Warmup time, and whether anything compiles after it.

python -m benchmarks.launch.ahead [--batches 1000]

It calls `compile_ahead` for two models and two types of caches. A first process starts with an empty Triton
cache, and a second one with the cache that the first left. The second process then serves random batches with
the configs that the device's module chooses, every other batch in parts. It counts the kernels that Triton
compiles or loads during this, of which there must be none.
"""

import argparse
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from attn_kernels import Config, Model, run
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
from attn_kernels.measure.tensors import plan_for, stand_in
from attn_kernels.warmup.compile_ahead import compile_ahead
from benchmarks.common import environment

LAYOUTS = (HeadLayout(32, 8), HeadLayout(28, 4))
CPU_LAYOUTS = (HeadLayout(4, 2, 16),)
CACHE_DTYPES = (torch.bfloat16, torch.float8_e4m3fn)
LONGEST = 64 * 1024  # tokens of a context
KV_TOKENS, QUERY_TOKENS = 256 * 1024, 16 * 1024  # about the most of a batch
CPU_SCALE = 4096
PARTS = ("cold", "warm")

Result = dict[str, Any]


def trace(count: int, layouts: Sequence[HeadLayout], scale: int = 1) -> Iterator[Batch]:
    """Yield steps of a server: every kind of batch, at any layout and type of caches, 1/scale as large."""
    for i in range(count):
        rng = random.Random(f"ahead/0/{i}")
        lengths = draw(rng, LONGEST // scale, KV_TOKENS // scale, QUERY_TOKENS // scale)
        yield lengths.at(layout=rng.choice(layouts), cache_dtype=rng.choice(CACHE_DTYPES))


def draw(rng: random.Random, longest: int, kv_tokens: int, query_tokens: int) -> Batch:
    """Draw a batch of any kind, with about so many keys and query tokens at most."""

    def log_uniform(most: int) -> int:
        return round(math.exp(rng.random() * math.log(max(1, most))))

    context = log_uniform(longest)
    n = log_uniform(min(256, kv_tokens // context))
    query = log_uniform(min(context, query_tokens // n))
    seed = rng.randrange(1 << 30)
    batches = (
        decode(n, context),
        prefill(1, query),
        chunked_prefill(n, query, context),
        speculative(n, min(context, rng.randint(2, 8)), context),
        mixed(n, 0.9, context, query, seed),
        varlen(seed, n, context, kv_tokens),
    )
    return rng.choice(batches)


def models(layouts: Iterable[HeadLayout]) -> list[Model]:
    """Return a model for each layout and type of caches."""
    return [layout.model(16, torch.bfloat16, cache) for layout, cache in product(layouts, CACHE_DTYPES)]


def count_by_kernel(device: torch.device) -> dict[str, int]:
    """How many binaries of each of this package's kernels this process has compiled or loaded."""
    kernels = [kernel for variant in VARIANTS.values() for kernel in variant.kernels]
    kernels.append(divide_kernel)
    hopper = hopper_for(device)
    if hopper is not None:
        kernels.append(hopper.hopper_kernel)
    counts = {}
    for kernel in kernels:
        caches = getattr(kernel, "device_caches", None)  # an interpreted kernel has none
        counts[kernel.fn.__name__] = len(caches[device.index][0]) if caches is not None else 0
    return counts


def count_compiled(device: torch.device) -> int:
    return sum(count_by_kernel(device).values())


def serve(batches: Iterable[Batch], device: torch.device) -> Result:
    """Plan and run each batch once, every other one in parts, with the choices of the device's module."""
    before, times, reported = count_compiled(device), [], []
    configs: set[Config] = set()
    for number, batch in enumerate(batches):
        tensors = stand_in(batch, device)
        (kv,) = tensors.sets
        began, known = time.perf_counter(), count_compiled(device)
        plan = plan_for(tensors, in_parts=number % 2 == 1)
        run(plan, kv.q, kv.k_cache, kv.v_cache, out=kv.out)
        times.append(time.perf_counter() - began)
        configs.update(part.config for part in plan.parts or (plan,))
        if count_compiled(device) > known:
            reported.append(f"{batch} launched {plan.config}")
        if device.type == "cuda":
            torch.cuda.synchronize()
    return {
        "batches": len(times),
        "configs": len(configs),
        "compiled": count_compiled(device) - before,
        "compiled by": reported,
        "typical_us": 1e6 * median(times),
        "slowest_us": 1e6 * max(times),
    }


def control(batch: Batch, device: torch.device) -> int:
    """Count kernels that a layer with a window compiles, which was not compiled ahead: the count can rise."""
    tensors = stand_in(batch, device)
    (kv,) = tensors.sets
    before = count_compiled(device)
    run(plan_for(tensors), kv.q, kv.k_cache, kv.v_cache, out=kv.out, sliding_window=1)
    return count_compiled(device) - before


def part(name: str, args: argparse.Namespace) -> Result:
    """Do the work of one process."""
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    layouts = LAYOUTS if on_gpu else CPU_LAYOUTS
    done = compile_ahead(device, models(layouts), workers=args.compile_workers)
    print(f"{name} cache: {done}", flush=True)
    result: Result = {"ahead": dataclasses.asdict(done), "kernels": count_compiled(device)}
    if name == "warm":
        count = args.batches or (1000 if on_gpu else 5)
        batches = list(trace(count, layouts, 1 if on_gpu else CPU_SCALE))
        result |= serve(batches, device)
        result["control"] = control(batches[0], device)
    return result


def in_process(name: str, arguments: list[str], folder: Path) -> Result:
    """Run `part` in a process of its own, which shares Triton's cache in `folder`."""
    result_path = folder / f"{name}.json"
    module = [sys.executable, "-m", "benchmarks.launch.ahead"]
    command = [*module, *arguments, "--part", name, "--result", str(result_path)]
    subprocess.run(command, env=os.environ | {"TRITON_CACHE_DIR": str(folder / "cache")}, check=True)
    result: Result = json.loads(result_path.read_text())
    return result


def lines(cold: Result, warm: Result) -> list[str]:
    """A table of both processes, and what the second one compiled while it served."""
    found = []
    for name, digits in (("seconds", 1), ("processes", 0), ("launches", 0)):
        cells = (f"{result['ahead'][name]:.{digits}f}" for result in (cold, warm))
        found.append("{:16}{:>8}{:>8}".format(name, *cells))
    found.append("{:16}{:>8}{:>8}".format("kernels loaded", cold["kernels"], warm["kernels"]))
    found.append(
        f"{warm['batches']} batches, {warm['configs']} configs chosen: {warm['compiled']} kernels compiled"
        f" or loaded (control, a window that was not compiled ahead: {warm['control']})"
    )
    found.append(f"plan and run: typically {warm['typical_us']:.0f} us, slowest {warm['slowest_us']:.0f} us")
    return [*found, *warm["compiled by"][:10]]


def verdict(cold: Result, warm: Result, counts: bool) -> int:
    """Return the exit code; `counts`: whether compiled kernels can be counted on this device."""
    failed = cold["ahead"]["failures"] or warm["ahead"]["failures"]
    return 1 if failed or warm["compiled"] or (counts and not warm["control"]) else 0


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 where a batch compiled something or a launch failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.launch.ahead", description=__doc__)
    parser.add_argument("--batches", type=int, help="of the trace (default 1000; 5 on cpu)")
    parser.add_argument("--compile-workers", type=int, help="processes that compile (0: none)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu (interpreter, plumbing only)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.batches is not None and args.batches < 1:
        environment.stop(f"--batches {args.batches}: at least 1 is needed")
    if args.part is not None:
        args.result.write_text(json.dumps(part(args.part, args)))
        return 0
    device = environment.device_from(args.device)
    print(environment.headline(environment.describe(device)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (in_process(name, arguments or sys.argv[1:], Path(folder)) for name in PARTS)
    print("{:16}{:>8}{:>8}".format("", *PARTS), *lines(cold, warm), sep="\n")
    return verdict(cold, warm, device.type == "cuda")


if __name__ == "__main__":
    raise SystemExit(main())

"""Seconds of compile_ahead at a first and at a later start, of one rank and of two.

    python -m benchmarks.launch.first_start [--models llama3_8b gpt_oss_20b gemma2_9b] [--fp8]

Each rank is a process that has imported torch and has a GPU context. Two ranks begin at the same time and
share an empty cache, as at the first start of a host. They share a GPU if there is only one. `seconds` is
that of the slower rank.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from attn_kernels.measure.batches import HeadLayout
from attn_kernels.warmup.compile_ahead import compile_ahead
from benchmarks.common import environment

# Heads, and the features of each kind of layer.
MODELS: dict[str, tuple[HeadLayout, list[tuple[str, ...]]]] = {
    "llama3_8b": (HeadLayout(32, 8), [()]),
    "gpt_oss_20b": (HeadLayout(64, 8, 64), [("sinks",), ("sinks", "window")]),
    "gemma2_9b": (HeadLayout(16, 8, 256), [("softcap",), ("softcap", "window")]),
}
CASES = (("cold", 1), ("warm", 1), ("cold", 2))  # cache, ranks
GO = "go\n"


def rank(name: str, fp8: bool, device: torch.device) -> str:
    """Wait for a line on stdin, compile ahead, and return the outcome as JSON."""
    layout, kinds = MODELS[name]
    model = layout.model(16, torch.bfloat16, torch.float8_e4m3fn if fp8 else torch.bfloat16)
    if fp8:
        kinds = [(*words, "scales") for words in kinds]
    torch.zeros(1, device=device)
    print("ready", flush=True)
    sys.stdin.readline()
    done = compile_ahead(device, model, features=kinds, for_capture=True)
    return json.dumps(dataclasses.asdict(done))


def start(count: int, name: str, fp8: bool, device: str, cache: Path) -> list[dict[str, object]]:
    """Start so many ranks and return their outcomes."""
    command = [sys.executable, "-m", "benchmarks.launch.first_start", "--models", name, *["--fp8"] * fp8]
    several = device == "cuda" and torch.cuda.device_count() >= count
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, "--device", f"cuda:{number}" if several else device, "--rank"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
                )
            )
            for number in range(count)
        ]
        for process in ranks:
            assert process.stdout is not None
            process.stdout.readline()
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write(GO)
            process.stdin.flush()
        return [json.loads(process.communicate()[0]) for process in ranks]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a launch failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.launch.first_start", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["llama3_8b", "gpt_oss_20b"])
    parser.add_argument("--fp8", action="store_true", help="fp8 caches")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu (interpreter, plumbing only)")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    device = environment.device_from(args.device)
    if args.rank:
        print(rank(args.models[0], args.fp8, device))
        return 0
    print(environment.headline(environment.describe(device)), flush=True)
    print(f"{'model':14}{'cache':>6}{'ranks':>6}{'seconds':>9}{'launches':>9}{'compiled':>9}{'failures':>9}")
    failed = 0
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            for cache, count in CASES:
                path = Path(folder) / ("one" if count == 1 else "two")
                outcomes = start(count, name, args.fp8, args.device, path)
                slowest = max(float(str(outcome["seconds"])) for outcome in outcomes)
                compiled = sum(int(str(outcome["compiled"])) for outcome in outcomes)
                failures = [line for outcome in outcomes for line in outcome["failures"]]  # type: ignore[attr-defined]
                failed += len(failures)
                line = f"{name:14}{cache:>6}{count:>6}{slowest:>9.1f}{outcomes[0]['launches']:>9}"
                print(f"{line}{compiled:>9}{len(failures):>9}", *failures[:3], sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

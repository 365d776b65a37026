"""Check every variant against a float64 reference on a real device, on random batches with random features.

python -m verification.verify [--quick] [--random 500] [--seed 0]; README.md beside this file says more.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief, exceeds_device
from attn_kernels.kernels.config_check import check_config
from attn_kernels.warmup.processes import compile_in_parallel
from benchmarks.common import configs, environment
from benchmarks.common.jobs import OwnJob
from verification.cases import CASE_SETS, Case
from verification.poisoned import NoMemory, load
from verification.tally import Tally


def run_case(case: Case, device: torch.device, tally: Tally) -> None:
    """Launch a case with each of its configs and compare with one reference."""
    try:
        loaded = load(case, device)
    except NoMemory as error:
        tally.left_out[f"part {case.part}: {error}"] += 1
        return
    expected = loaded.expect()
    for config in case.configs:
        try:
            found, launched = loaded.check(config, expected)
        except Exception as error:
            if config is not None and exceeds_device(error):
                tally.left_out[f"{config.variant} too large for this device"] += 1
                continue
            survive(device)
            tally.fail(case, config, brief(error))
            continue
        if config is None:
            tally.chosen[str(launched)] += 1
        tally.add(case, launched, found)


def survive(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()  # raises again if the device is lost


def compile_jobs(cases: Sequence[Case], device: torch.device) -> list[OwnJob]:
    return [
        OwnJob(dataclasses.replace(case, configs=()), config or configs.chosen(case.batch, device))
        for case in cases
        for config in case.configs
    ]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification.verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few, smaller batches")
    parser.add_argument("--random", type=int, default=500, help="how many random batches (default 500)")
    parser.add_argument("--seed", type=int, default=0, help="of the random batches")
    parser.add_argument("--only", default="", help="keep cases whose text contains this, e.g. 'random 17:'")
    parser.add_argument("--config", action="append", default=[], help="launch every case with this as well")
    environment.add_device_options(parser)
    return parser.parse_args()


def main() -> int:
    """Returns 0, or 1 when any output was wrong; 2 is wrong use."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    if args.random < 0:
        environment.stop(f"--random {args.random}: at least 0 is needed")
    try:
        extra = tuple(Config.parse(text) for text in args.config)
        for config in extra:
            check_config(config)
    except ValueError as error:
        environment.stop(str(error))
    name = "cpu" if device.type == "cpu" else "quick" if args.quick else "full"
    cases = [
        dataclasses.replace(case, configs=(*case.configs, *extra))
        for case in CASE_SETS[name](args.random, args.seed)
        if args.only in str(case)
    ]
    if not cases:
        environment.stop(f"--only {args.only!r}: no case has this in its text")
    print(environment.headline(environment.describe(device)), flush=True)
    print(compile_in_parallel(compile_jobs(cases, device), device, args.compile_workers), flush=True)

    tally = Tally()
    slowest = 0.0
    done = 0
    for case in cases:
        before = time.monotonic()
        if args.seconds_budget and before - started + slowest > args.seconds_budget:
            break
        try:
            run_case(case, device, tally)
        except Exception as error:
            tally.failures.append(f"{case}: broke off: {brief(error)}")
            survive(device)
        done += 1
        slowest = max(slowest, time.monotonic() - before)
    print("\n".join(tally.lines()))
    left_out = f", {len(cases) - done} left out at {args.seconds_budget:.0f} s" if done < len(cases) else ""
    verdict = f"{len(tally.failures)} failed" if tally.failures else "all right"
    seconds = time.monotonic() - started
    print(f"{done} batches, {tally.launches} launches in {seconds:.0f} s{left_out}: {verdict}")
    return 1 if tally.failures or not tally.launches else 0


if __name__ == "__main__":
    raise SystemExit(main())

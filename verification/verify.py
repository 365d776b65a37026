"""Check every variant against a float64 reference on a real device, on random batches with random features.

python -m verification.verify [--quick] [--random 500] [--seed 0]; benchmarks/README.md lists the cases.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence

import torch

from attn_kernels import Config, Lengths
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SERIES, WHOLE
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import ScoreOptions
from benchmarks.common import configs, environment
from triton_tune.core.device import exceeds_device
from triton_tune.processes.compile_ahead import compile_in_parallel
from verification.cases import CASE_SETS, PartConfigs, VerifyCase
from verification.compile_jobs import ConfigJob
from verification.features import FP8
from verification.poisoned import NoMemory, load
from verification.tally import Tally


def run_case(case: VerifyCase, device: torch.device, tally: Tally) -> None:
    """Launch a case with each of its configs, and of its pairs; compare each output with one reference."""
    try:
        loaded = load(case, device)
    except NoMemory as error:
        tally.left_out[f"part {case.part}: {error}"] += 1
        return
    expected = loaded.expect()
    for config in (*case.configs, *case.pairs):
        try:
            verdict, launched = loaded.check(config, expected)
        except Exception as error:
            if config is not None and exceeds_device(error):
                variant = "a pair" if isinstance(config, PartConfigs) else config.variant
                tally.left_out[f"{variant} too large for this device"] += 1
                continue
            environment.raise_if_lost(device)
            tally.fail(case, config, brief(error))
            continue
        if config is None:
            tally.chosen[str(launched)] += 1
        tally.add(case, launched, verdict)


def compile_jobs(cases: Sequence[VerifyCase], device: torch.device) -> list[ConfigJob]:
    """Return the launches that compile every kernel of a run."""
    return [
        ConfigJob(dataclasses.replace(case, configs=()), one)
        for case in cases
        for config in case.configs
        for one in ([config] if config else choices(case, device))
    ]


def choices(case: VerifyCase, device: torch.device) -> set[Config]:
    """Return what generated modules choose for a case, for its parts, and for both at once."""
    cache_dtype = FP8 if case.features.fp8 else None
    scores = ScoreOptions(window=case.features.window)
    batch = dataclasses.replace(case.batch, cache_dtype=cache_dtype, scores=scores)
    parts = [part for part in batch.parts if part.num_query_tokens]
    if len(parts) == 1:
        parts = [Lengths.of(batch.query_lens, batch.context_lens)]
    choices = choices_for(batch.model, device)
    found = [choices.config(part) for part in parts]
    if len(parts) > 1:
        way = choices.way(batch.parts)
        if way == WHOLE:
            return {configs.chosen(batch, device)}
        found += [] if way == SERIES else [way]
    return set(found)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification.verify", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few, smaller batches")
    add("--random", type=int, default=500, help="number of random batches (default 500)")
    add("--seed", type=int, default=0, help="seed of the random batches")
    add("--only", default="", help="keep cases whose text contains this, e.g. 'random 17:'")
    add("--config", action="append", default=[], help="launch every case with this config as well")
    environment.add_device_options(parser)
    return parser.parse_args()


def main() -> int:
    """Return 0, or 1 if any output was wrong; wrong use exits with 2."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    if args.random < 0:
        environment.stop(f"--random {args.random}: at least 0 is needed")
    try:
        extra = configs.parse_configs(args.config)
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
    done = 0
    for case in environment.within_deadline(cases, started + (args.seconds_budget or float("inf"))):
        try:
            run_case(case, device, tally)
        except Exception as error:
            tally.failures.append(f"{case}: broke off: {brief(error)}")
            environment.raise_if_lost(device)
        done += 1
    print("\n".join(tally.lines()))
    left_out = f", {len(cases) - done} left out at {args.seconds_budget:.0f} s" if done < len(cases) else ""
    verdict = f"{len(tally.failures)} failed" if tally.failures else "all right"
    seconds = time.monotonic() - started
    print(f"{done} batches, {tally.launches} launches in {seconds:.0f} s{left_out}: {verdict}")
    return 1 if tally.failures or not tally.launches else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Check the Hopper kernel with every option, head size and config against the float64 reference.

python -m verification.hopper_options [--rounds 3] [--seed 0] [--only TEXT] [--seconds-budget S]. A case is a
head layout and its options; each round draws other lengths. Pages and keys before a window hold NaN. One line
a failure; a config that the kernel refuses is a line, too, because a launch would fall back to other kernels.
"""

import argparse
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Iterator

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief
from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import Batch, HeadLayout, varlen
from benchmarks.common import environment
from benchmarks.common.configs import parse_configs
from triton_tune.processes.compile_ahead import compile_in_parallel
from verification.cases import VerifyCase
from verification.compile_jobs import ConfigJob
from verification.features import LaunchFeatures
from verification.poisoned import PoisonedCase, load
from verification.tally import Tally

K = 1024
PAGES = (16, 48, 64, 256, 128)
# Head layouts of models: Llama 3, gpt-oss, Gemma 2, Phi-3, others of the same kind.
LAYOUTS = (
    HeadLayout(32, 8, 128),
    HeadLayout(64, 8, 64),
    HeadLayout(16, 8, 256),
    HeadLayout(32, 32, 96),
    HeadLayout(32, 8, 80),
    HeadLayout(16, 1, 192),
    HeadLayout(28, 4, 112),
    HeadLayout(16, 4, 160),
)
OPTIONS = (
    LaunchFeatures(),
    LaunchFeatures(window=128),
    LaunchFeatures(softcap=30.0),
    LaunchFeatures(sinks="half"),
    LaunchFeatures(alibi=True),
    LaunchFeatures(window=4096, softcap=50.0),
    LaunchFeatures(window=17, sinks="float32", strides="fused"),
    LaunchFeatures(window=1000, softcap=5.0, alibi=True, sinks="half"),
    LaunchFeatures(fp8=True),
    LaunchFeatures(fp8=True, scales="tensor", window=128, sinks="half"),
    LaunchFeatures(fp8=True, scales="float", softcap=30.0, alibi=True),
)
WINDOWS = (1, 17, 128, 1000, 4096)


def configs() -> tuple[Config, ...]:
    """The configs that launch the kernel, of every variant's grids."""
    return tuple(
        config
        for name, variant in VARIANTS.items()
        for grid in variant.grids
        for config in grid.configs(name)
        if config.descriptors or variant.mixed
    )


def cases(rounds: int, seed: int, chosen: tuple[Config, ...]) -> Iterator[VerifyCase]:
    """Yield a case for each round, head layout and option, all drawn from ``seed``."""
    for number in range(rounds):
        for place, layout in enumerate(LAYOUTS):
            for i, features in enumerate(OPTIONS):
                rng = random.Random(f"hopper options/{seed}/{number}/{place}/{i}")
                if features.window is not None:
                    features = dataclasses.replace(features, window=rng.choice(WINDOWS))
                # Short sequences begin and end in one tile.
                seqs, context = (64, 80) if number % 2 else (8, 8 * K)
                lengths = varlen(rng.randrange(2**20), max_seqs=seqs, max_context=context, max_tokens=16 * K)
                # The page size and the dtype are compiled for, so they are those of the layout and option.
                dtype = torch.float16 if (place + i) % 4 == 3 else torch.bfloat16
                batch = lengths.at(layout, PAGES[(place + 2 * i) % len(PAGES)], dtype)
                scale = scale_of(features, number // 2 + place + i)
                yield VerifyCase(f"round {number}", batch, chosen, features, scale, seed + i)


def scale_of(features: LaunchFeatures, number: int) -> float:
    """What multiplies the queries. The largest makes rows outgrow their first maximum (hopper_q_blocks).

    Beside sinks, it would leave heads almost no weight; fp8 queries lose digits of large scores.
    """
    largest = 4.0 if features.sinks else 16.0 if features.fp8 else 256.0
    return (1.0, 4.0, largest)[number % 3]


def refusal(config: Config, batch: Batch, features: LaunchFeatures) -> str | None:
    """Return why the kernel refuses a case; None where it takes it."""
    if hopper_limits.hopper_module() is None:
        return "Triton's Gluon does not support it"
    names = {
        "window": features.window is not None,
        "softcap": features.softcap > 0.0,
        "alibi": features.alibi,
        "sinks": bool(features.sinks),
        "fp8": features.fp8,
        "scales": bool(features.scales),
    }
    missing = {name for name, given in names.items() if given} - hopper_limits.OPTIONS[config.variant]
    if missing:
        return f"it lacks {', '.join(sorted(missing))}"
    layout = batch.layout
    ratio = layout.num_query_heads // layout.num_kv_heads
    return hopper_limits.why_not_shape(
        config, layout.head_size, batch.block_size, ratio, 1 if features.fp8 else 2
    )


def run_case(case: VerifyCase, device: torch.device, tally: Tally) -> None:
    """Launch a case with each of its configs, and compare each output with one reference."""
    loaded: PoisonedCase = load(case, device)
    expected = loaded.expect()
    for config in case.configs:
        try:
            verdict, launched = loaded.check(config, expected)
        except Exception as error:
            environment.raise_if_lost(device)
            tally.fail(case, config, brief(error))
        else:
            tally.add(case, launched, verdict)


def main() -> int:
    """Return 0, or 1 if any output was wrong; wrong use exits with 2."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="verification.hopper_options", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="batches of each layout and option (default 3)")
    add("--seed", type=int, default=0, help="seed of the batches (default 0)")
    add("--only", default="", help="keep cases whose text contains this, e.g. '/96' or 'window'")
    add("--config", action="append", default=[], help="only this config; may be repeated")
    environment.add_device_options(parser)
    args = parser.parse_args()
    device = environment.device_from(args.device)
    try:
        chosen = parse_configs(args.config) or configs()
    except ValueError as error:
        environment.stop(str(error))
    refused: Counter[str] = Counter()
    kept = []
    for case in cases(args.rounds, args.seed, chosen):
        if args.only not in str(case):
            continue
        taken = []
        for config in chosen:
            why = refusal(config, case.batch, case.features)
            if why is None:
                taken.append(config)
            else:
                refused[f"{config}: {why}"] += 1
        kept.append(dataclasses.replace(case, configs=tuple(taken)))
    print(environment.headline(environment.describe(device)), flush=True)
    for line, count in sorted(refused.items()):
        print(f"refused {count}: {line}")
    jobs = [
        ConfigJob(dataclasses.replace(case, configs=()), config)
        for case in kept
        for config in case.configs
        if config is not None
    ]
    print(compile_in_parallel(jobs, device, args.compile_workers), flush=True)
    tally = Tally()
    done = 0
    for case in environment.within_deadline(kept, started + (args.seconds_budget or float("inf"))):
        before = len(tally.failures)
        try:
            run_case(case, device, tally)
        except Exception as error:
            tally.failures.append(f"{case}: broke off: {brief(error)}")
            environment.raise_if_lost(device)
        print("\n".join(tally.failures[before:]), end="\n" if tally.failures[before:] else "", flush=True)
        done += 1
    tally.chosen.clear()
    failed, tally.failures = tally.failures, []  # they are printed already
    print("\n".join(tally.lines()))
    verdict = f"{len(failed)} failed" if failed else "all right"
    seconds = time.monotonic() - started
    print(f"{done} of {len(kept)} batches, {tally.launches} launches in {seconds:.0f} s: {verdict}")
    return 1 if failed or not tally.launches else 0


if __name__ == "__main__":
    raise SystemExit(main())

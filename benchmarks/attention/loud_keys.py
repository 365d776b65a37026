"""Time prompts in which one key has a score far above all others, beside prompts without such a key.

python -m benchmarks.attention.loud_keys [--repeats 16]

The Hopper kernel finds the maximum of a row in a few tiles, and computes a Q-Block again where a later score
is too large (docs/kernels.md). This shows what that costs. Many models give a sequence's first token such a
score (attention sinks, arXiv 2309.17453).
"""

import argparse
import dataclasses
import math

import torch

from attn_kernels.measure.batches import Batch, prefill
from attn_kernels.measure.checking import check, expect
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for, rotation
from attn_kernels.measure.timing import Launch, Timed, prepare, time_together
from benchmarks.common import environment

K = 1024
# The loud key's place, as a share of the prompt, and its score above the others; None for no such key.
CASES: dict[str, tuple[float, float] | None] = {
    "no loud key": None,
    "the first key, 20 above": (0.0, 20.0),
    "the middle key, 8 above": (0.5, 8.0),
    "the middle key, 20 above": (0.5, 20.0),
    "the middle key, 60 above": (0.5, 60.0),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.attention.loud_keys", description=__doc__)
    parser.add_argument("--repeats", type=int, default=16, help="graph replays that time a case (default 16)")
    parser.add_argument("--device", default="cuda", help=environment.DEVICE_HELP)
    args = parser.parse_args()
    if args.repeats < 1:
        environment.stop(f"--repeats {args.repeats}: at least 1 is needed")
    return args


def add_loud_key(tensors: BatchTensors, place: float, above: float) -> None:
    """Raise the scores of one key of each sequence by about ``above``, for all queries and heads.

    The first column of every query and of that key become large; the other keys' first column becomes 0.
    """
    batch = tensors.batch
    large = math.sqrt(above / tensors.softmax_scale)
    for kv in tensors.sets:
        kv.q[..., 0] = large
        kv.k_cache.view(torch.uint8)[..., : kv.k_cache.element_size()] = 0  # fp8 tensors cannot be filled
        for row, length in zip(tensors.block_table, batch.context_lens, strict=True):
            page, slot = divmod(int(place * length), batch.block_size)
            loud = kv.k_cache[int(row[page]), slot]
            loud.copy_(torch.cat([torch.full_like(loud[:, :1].float(), large), loud[:, 1:].float()], 1))


def prepare_case(
    batch: Batch, case: tuple[float, float] | None, device: torch.device
) -> tuple[Timed, list[Launch]]:
    """Launch a case, check its output and capture it; keep the launches, whose tensors the graph needs.

    Raises:
        RuntimeError: the output is wrong.
    """
    tensors = materialise(batch, device, num_sets=rotation(batch, device))
    if case is not None:
        add_loud_key(tensors, *case)
    launches = launches_of(plan_for(tensors), tensors)
    expected = expect(tensors)
    launches[0]()
    verdict = check(tensors.sets[0].out, expected)
    if not verdict.ok:
        raise RuntimeError(f"{batch}: {verdict}")
    return prepare(launches, device), launches


def main() -> None:
    args = parse_arguments()
    device = environment.device_from(args.device)
    print(environment.headline(environment.describe(device)))
    length = 8 * K if device.type == "cuda" else 32
    plain = prefill(1, length)
    batches = {
        "16-bit cache": plain,
        "fp8 cache": dataclasses.replace(plain, cache_dtype=torch.float8_e4m3fn),
    }
    print(f"times over that without a loud key, of a prompt of {length} tokens; all outputs are right")
    print(f"{'':26}" + "".join(f"{name:>16}" for name in batches))
    ratios: dict[str, list[float]] = {name: [] for name in CASES}
    for batch in batches.values():
        prepared = {name: prepare_case(batch, case, device) for name, case in CASES.items()}
        timings = time_together({name: timed for name, (timed, _) in prepared.items()}, args.repeats)
        for name, timing in timings.items():
            ratios[name].append(timing.median_us / timings["no loud key"].median_us)
    for name, values in ratios.items():
        print(f"{name:26}" + "".join(f"{value:16.2f}" for value in values))


if __name__ == "__main__":
    main()

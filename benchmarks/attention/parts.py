"""Time mixed batches in one call, as two parts in series, and with `parts`, beside FlashAttention-3.

python -m benchmarks.attention.parts [--batches steps] [--only TEXT] [--out FOLDER]

It also times the decodes alone and the prompts alone: no fused launch can be faster than the longer of them.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, Limits, expect
from attn_kernels.measure.roofline import work
from attn_kernels.measure.tensors import materialise, rotation
from benchmarks.attention.batches import BATCH_SETS, select
from benchmarks.attention.compare import time_text
from benchmarks.attention.measure import (
    Measured,
    Records,
    Settings,
    measure_ceilings,
    ours_failed,
    time_ratio,
)
from benchmarks.common import environment
from benchmarks.common.compile_jobs import LaunchJob, PlanJob, chosen
from benchmarks.common.implementations import PEERS_FOLDER, Ours, load_peers
from benchmarks.common.in_parts import OursInParts, OursSeparate, is_mixed, split, split_tensors
from benchmarks.common.table import figure, geomean
from triton_tune.processes.compile_ahead import Job, compile_in_parallel

CHECKED = Limits(cache_elements=1 << 28, scores=1 << 29)  # of each part
LARGE = 1 << 20  # a multiple of the cache that no memory holds
COLUMNS = ("fa3", "one call", "decodes", "prompts", "separate", "parts")
RATIOS = ("FA3/ours", "ours/longer", "ours/separate", "ours/one")
MOST_SETS = 64  # more KV sets would keep only the caches of tiny prompts cold, and take longer


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.attention.parts", description=__doc__)
    add = parser.add_argument
    add("--batches", choices=list(BATCH_SETS), help="named set (default: steps; tiny_steps on cpu)")
    add("--only", default="", help="keep batches whose text contains this, e.g. 'step 31x8K'")
    add("--dtype", choices=("bfloat16", "float16"), help="element type (default: the set's)")
    add("--repeats", type=int, help="graph replays that time an implementation (default 16; 2 on cpu)")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py (default .peers)")
    add("--out", type=Path, help="folder for parts.json")
    environment.add_device_options(parser)
    args = parser.parse_args(arguments)
    if args.repeats is not None and args.repeats < 1:
        environment.stop(f"--repeats {args.repeats}: at least 1 is needed")
    return args


def num_sets(batch: Batch, device: torch.device) -> int:
    """Return how many KV sets keep the cache cold for the batch and for either part, as far as they may."""
    parts = (rotation(part, device, l2_multiple=2) for part in split(batch))
    allowed = min(MOST_SETS, rotation(batch, device, l2_multiple=LARGE))
    return min(allowed, max(rotation(batch, device), *parts))


def measure(batch: Batch, settings: Settings) -> Records:
    """Check and time a mixed batch in every way; `decodes` and `prompts` are records of those parts."""
    tensors = materialise(batch, settings.device, num_sets=num_sets(batch, settings.device))
    parts = split_tensors(tensors)
    decodes, prompts = (expect(part, CHECKED) for part in parts)
    rows = torch.cat([decodes.rows, prompts.rows + parts[0].batch.num_query_tokens])
    whole = Expected(rows, torch.cat([decodes.values, prompts.values]), decodes.tolerance)
    measured = Measured(settings)
    for implementation in (*settings.implementations, OursSeparate(), OursInParts()):
        measured.launch_and_capture(implementation.name, implementation, tensors, whole)
    for name, part, expected in zip(("decodes", "prompts"), parts, (decodes, prompts), strict=True):
        measured.launch_and_capture(name, Ours(), part, expected)
    measured.time_all()
    return measured.records


def compile_jobs(batches: Sequence[Batch], device: torch.device) -> list[Job]:
    """Return the launches that compile every kernel of a run."""
    jobs: list[Job] = [PlanJob(batch, in_parts=True) for batch in batches]
    every = [each for batch in batches for each in (batch, *split(batch))]
    return [*jobs, *(LaunchJob(batch, chosen(batch, device)) for batch in every)]


def header() -> str:
    """The titles of `batch_line`."""
    times = "".join(f" {name:>8}" for name in COLUMNS)
    return f"{'batch':23} {'heads':8}{times} {'limit':>7} |" + "".join(f" {name:>11}" for name in RATIOS)


def batch_line(records: Records, limit_us: float) -> str:
    """The times of a mixed batch in microseconds, and its `ratios`."""
    batch = records["one call"]
    text = f"{batch.batch:23} {batch.layout:8}"
    text += "".join(f" {time_text(records.get(name)):>8}" for name in COLUMNS) + f" {limit_us:7.1f} |"
    text += "".join(f" {figure(ratio, '.2f'):>11}" for ratio in ratios(records).values())
    return text + "".join(f"\n    {name}: {one.note}" for name, one in records.items() if one.failed)


def ratios(records: Records) -> dict[str, float | None]:
    """Each of RATIOS; None unless both times are known and their results right."""
    alone = ("decodes", "prompts")
    longer = max(alone, key=lambda name: records[name].time_us or 0.0)
    both_known = all(time_ratio(records, name, name) for name in alone)
    found = (
        time_ratio(records, "fa3", "parts"),
        time_ratio(records, "parts", longer) if both_known else None,
        time_ratio(records, "parts", "separate"),
        time_ratio(records, "parts", "one call"),
    )
    return dict(zip(RATIOS, found, strict=True))


def means(batches: Sequence[Records]) -> list[str]:
    """The geometric mean and the worst of each ratio; FA3 / ours is worst where it is least."""
    lines = [f"{'ratio':12} {'batches':>7} {'geomean':>8} {'worst':>6}  batch"]
    for name in RATIOS:
        known = [(ratio, one["one call"]) for one in batches if (ratio := ratios(one)[name]) is not None]
        if not known:
            lines.append(f"{name:12} {0:7}")
            continue
        mean = geomean(ratio for ratio, _ in known)
        pick = min if name == RATIOS[0] else max
        worst, record = pick(known, key=lambda pair: pair[0])
        lines.append(f"{name:12} {len(known):7} {mean:8.3f} {worst:6.2f}  {record.batch} {record.layout}")
    return lines


def document(head: dict[str, Any], done: dict[Batch, Records]) -> str:
    """parts.json: the head, then ratios and records of each batch."""
    batches = []
    for records in done.values():
        of_batch = {name: dataclasses.asdict(record) for name, record in records.items()}
        batches.append({"ratios": ratios(records), "records": of_batch})
    return json.dumps({**head, "batches": batches}, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a launch of ours failed or was wrong; wrong use exits with 2."""
    started = time.monotonic()
    args = parse_arguments(arguments)
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    name = args.batches or ("steps" if on_gpu else "tiny_steps")
    every = select(name, only=args.only, dtype=args.dtype)
    batches = [batch for batch in every if is_mixed(batch)]
    if not batches:
        environment.stop(f"no batch of {name} with {args.only!r} in its text has decodes before prompts")
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    if len(batches) < len(every):
        print(f"{len(every) - len(batches)} batches left out: all decodes, or no decode at the front")
    peers, problems = load_peers(args.peers, ("fa3",)) if on_gpu else ([], [])
    print("\n".join(problems), end="\n" if problems else "")
    print(compile_in_parallel(compile_jobs(batches, device), device, args.compile_workers), flush=True)
    ceilings = measure_ceilings(device)
    print(environment.ceilings_line(ceilings))
    if not on_gpu:
        print("times on a CPU mean nothing: this run only tests the command")
    print("times in us a launch; longer: the longer of decodes and prompts alone")
    print(header(), flush=True)

    repeats = args.repeats or (16 if on_gpu else 2)
    settings = Settings(device, [*peers, Ours(name="one call")], ceilings, repeats)
    head = {"environment": facts, "ceilings": dataclasses.asdict(ceilings), "set": name}
    limits = {batch: work(batch).floor_us(ceilings) for batch in batches}
    done: dict[Batch, Records] = {}
    broken = 0
    for batch in environment.within_deadline(batches, started + (args.seconds_budget or float("inf"))):
        try:
            done[batch] = measure(batch, settings)
            print(batch_line(done[batch], limits[batch]), flush=True)
        except Exception as error:
            print(f"{batch}: BROKE OFF: {brief(error)}", flush=True)
            environment.raise_if_lost(device)
            broken += 1
        if args.out:
            environment.write_atomically(args.out / "parts.json", document(head, done))
        if on_gpu:
            torch.cuda.empty_cache()
    print("\n".join(["", *means(list(done.values()))]))
    left_out = len(batches) - len(done) - broken
    if left_out:
        print(f"no time left within {args.seconds_budget:.0f} s for {left_out} batches")
    bad = sum(ours_failed(records, "one call") for records in done.values())
    verdict = f"ours wrong or failed on {bad}" + (f", {broken} broke off" if broken else "")
    print(f"{len(done)} batches in {time.monotonic() - started:.0f} s; {verdict}")
    return 1 if bad or broken or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())

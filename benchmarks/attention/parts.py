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
from benchmarks.attention import tables
from benchmarks.attention.batch_sets import BATCH_SETS, select
from benchmarks.attention.ceilings import measure_ceilings
from benchmarks.attention.compare_batch import ComparisonSettings, Measured
from benchmarks.attention.records import Records, ours_failed
from benchmarks.common import configs, environment
from benchmarks.common.implementations import PEERS_FOLDER, Ours, load_peers
from benchmarks.common.in_parts import OursInParts, OursInSeries, PartsJob, is_mixed, split, split_tensors
from triton_tune.processes.compile_ahead import Job, compile_in_parallel
from verification.compile_jobs import plain_job

CHECKED = Limits(cache_elements=1 << 28, scores=1 << 29)  # of each part
LARGE = 1 << 20  # a multiple of the cache that no memory holds
MOST_SETS = 64  # more KV sets would keep only the caches of tiny prompts cold, and take longer


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.attention.parts", description=__doc__)
    add = parser.add_argument
    add("--batches", choices=list(BATCH_SETS), help="named set (default: steps; tiny_steps on cpu)")
    add("--only", default="", help="keep batches whose text contains this, e.g. 'step 31x8K'")
    add("--dtype", choices=("bfloat16", "float16"), help="element type (default: the set's)")
    add("--repeats", type=int, help="graph replays that time an implementation (default 16; 2 on cpu)")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py (default .peers)")
    add("--out", type=Path, help="folder for parts.json")
    environment.add_device_options(parser)
    args = parser.parse_args()
    if args.repeats is not None and args.repeats < 1:
        environment.stop(f"--repeats {args.repeats}: at least 1 is needed")
    return args


def num_sets(batch: Batch, device: torch.device) -> int:
    """Return how many KV sets keep the cache cold for the batch and for either part, as far as they may."""
    parts = (rotation(part, device, l2_multiple=2) for part in split(batch))
    allowed = min(MOST_SETS, rotation(batch, device, l2_multiple=LARGE))
    return min(allowed, max(rotation(batch, device), *parts))


def measure(batch: Batch, settings: ComparisonSettings) -> Records:
    """Check and time a mixed batch in every way; `decodes` and `prompts` are records of those parts."""
    tensors = materialise(batch, settings.device, num_sets=num_sets(batch, settings.device))
    parts = split_tensors(tensors)
    decodes, prompts = (expect(part, CHECKED) for part in parts)
    rows = torch.cat([decodes.rows, prompts.rows + parts[0].batch.num_query_tokens])
    whole = Expected(rows, torch.cat([decodes.values, prompts.values]), decodes.tolerance)
    measured = Measured(settings)
    for implementation in (*settings.implementations, OursInSeries(), OursInParts()):
        measured.launch_and_capture(implementation.name, implementation, tensors, whole)
    for name, part, expected in zip(("decodes", "prompts"), parts, (decodes, prompts), strict=True):
        measured.launch_and_capture(name, Ours(), part, expected)
    measured.time_all()
    return measured.records


def compile_jobs(batches: Sequence[Batch], device: torch.device) -> list[Job]:
    """Return the launches that compile every kernel of a run."""
    jobs: list[Job] = [PartsJob(batch) for batch in batches]
    every = [each for batch in batches for each in (batch, *split(batch))]
    return [*jobs, *(plain_job(batch, configs.chosen(batch, device)) for batch in every)]


def document(head: dict[str, Any], done: dict[Batch, Records], limits: dict[Batch, float]) -> str:
    """Return parts.json: the head, then lengths, limit, ratios and records of each batch."""
    batches = [
        {
            "batch": batch.name,
            "layout": str(batch.layout),
            "query_lens": batch.query_lens,
            "context_lens": batch.context_lens,
            "limit_us": limits[batch],
            "ratios": tables.parts_ratios(records),
            "records": {name: dataclasses.asdict(record) for name, record in records.items()},
        }
        for batch, records in done.items()
    ]
    return json.dumps({**head, "batches": batches}, indent=1) + "\n"


def main() -> int:
    """Return 0, or 1 if a launch of ours failed or was wrong; wrong use exits with 2."""
    started = time.monotonic()
    args = parse_arguments()
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
    tera = ceilings.flops_per_s / 1e12
    print(f"ceilings: copy {ceilings.bytes_per_s / 1e9:.0f} GB/s, bf16 matmul {tera:.0f} TFLOP/s")
    if not on_gpu:
        print("times on a CPU mean nothing: this run only tests the command")
    print("times in us a launch; longer: the longer of decodes and prompts alone")
    print(tables.parts_header(), flush=True)

    repeats = args.repeats or (16 if on_gpu else 2)
    settings = ComparisonSettings(device, [*peers, Ours(name="one call")], ceilings, repeats)
    head = {"environment": facts, "ceilings": dataclasses.asdict(ceilings), "set": name}
    limits = {batch: work(batch).floor_us(ceilings) for batch in batches}
    done: dict[Batch, Records] = {}
    broken = 0
    for batch in environment.within_deadline(batches, started + (args.seconds_budget or float("inf"))):
        try:
            done[batch] = measure(batch, settings)
            print(tables.parts_line(done[batch], limits[batch]), flush=True)
        except Exception as error:
            print(f"{batch}: BROKE OFF: {brief(error)}", flush=True)
            environment.raise_if_lost(device)
            broken += 1
        if args.out:
            environment.write_atomically(args.out / "parts.json", document(head, done, limits))
        if on_gpu:
            torch.cuda.empty_cache()
    print("\n".join(["", *tables.parts_means(list(done.values()))]))
    left_out = len(batches) - len(done) - broken
    if left_out:
        print(f"no time left within {args.seconds_budget:.0f} s for {left_out} batches")
    bad = sum(ours_failed(records, "one call") for records in done.values())
    verdict = f"ours wrong or failed on {bad}" + (f", {broken} broke off" if broken else "")
    print(f"{len(done)} batches in {time.monotonic() - started:.0f} s; {verdict}")
    return 1 if bad or broken or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())

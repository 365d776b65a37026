"""Check and time our kernels beside those of FlashAttention, vLLM and PyTorch.

python -m benchmarks.attention.compare [--batches core] [--config CONFIG] [--out FOLDER]

benchmarks/README.md describes the measurements and the rivals.
"""

import argparse
import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief
from attn_kernels.kernels.registry import check_config
from attn_kernels.measure.batches import HeadLayout
from benchmarks.attention.batches import BATCH_SETS, select
from benchmarks.attention.measure import (
    ONE_SPLIT,
    RIVALS,
    Record,
    Records,
    measure_batch,
    measure_ceilings,
    ours_failed,
    time_ratio,
)
from benchmarks.common import environment
from benchmarks.common.implementations import (
    PEERS,
    PEERS_FOLDER,
    CompileJob,
    Implementation,
    Ours,
    Peer,
    Sdpa,
    load_peers,
    peer_jobs,
    run_fa3,
)
from benchmarks.common.table import aligned, figure
from triton_tune.processes.compile_ahead import Job, compile_in_parallel

TRITON_PEERS = {"vllm": "vllm_triton", "vllm33": "vllm_triton_33"}  # of vLLM 0.24 and 0.33, in PEERS


def config(text: str) -> Config:
    """Read a config that can be launched; raises ValueError, which argparse reports."""
    parsed = Config.parse(text)
    check_config(parsed)
    return parsed


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = environment.parser_of(__doc__, "benchmarks.attention.compare")
    add = parser.add_argument
    add("--batches", choices=list(BATCH_SETS), help="named set (default: core; tiny on cpu)")
    add("--only", default="", help="keep batches whose text contains this, e.g. 'decode 64x8K heads 32/8'")
    layouts = "replace the set's head layouts: 32/8 28/4/128 ..."
    add("--layouts", nargs="+", type=HeadLayout.parse, default=[], metavar="HEADS", help=layouts)
    add("--page-size", type=int, help="tokens that a KV page holds (default 16)")
    add("--dtype", choices=("bfloat16", "float16"), help="element type (default bfloat16; float16 on cpu)")
    configs = "also time these configs: qblock_M16_T64_W4_S3 ..."
    add("--config", nargs="+", type=config, default=[], metavar="CONFIG", help=configs)
    invariant = "also time ours with batch_invariant, and fa3 with one split, as vLLM has it in that mode"
    add("--invariant", action="store_true", help=invariant)
    parts = "also time ours with the parts of mixed batches; --batches steps has many"
    add("--parts", action="store_true", help=parts)
    add("--skip", nargs="+", choices=RIVALS, default=[], help="rivals to leave out")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py (default .peers)")
    add("--out", type=Path, help="folder for compare.json")
    environment.add_device_options(parser)
    return parser.parse_args(arguments)


def time_text(record: Record | None) -> str:
    """The time, such as 22.8, 466.1 or 7346; `!` marks a wrong result."""
    if record is None or record.time_us is None:
        return "-"
    text = f"{record.time_us:.1f}" if record.time_us < 1000 else f"{record.time_us:.0f}"
    return text if record.ok else text + "!"


def rate_text(record: Record) -> str:
    """Operations per second for prefill, otherwise bytes per second."""
    if record.batch.kind in ("prefill", "chunk"):
        return f"{figure(record.tflops, '.0f')} TF/s"
    return f"{figure(record.gbps, '.0f')} GB/s"


def header(rivals: Sequence[str]) -> str:
    """The titles of `batch_line`; `o/R` is our time over rival R's."""
    text = f"{'batch':23} {'heads':8} {'ours us':>8} {'config':31} {'rate':>9} {'roof':>5}"
    text += "".join(f" {rival + ' us':>8}" for rival in rivals)
    return text + " |" + "".join(f" {'o/' + rival:>8}" for rival in rivals)


def batch_line(records: Records, rivals: Sequence[str], tried: Sequence[str]) -> str:
    """The line of a batch, and notes on what its figures do not show."""
    ours = records["ours"]
    text = f"{ours.batch.name:23} {ours.batch.layout!s:8} {time_text(ours):>8} {ours.config:31}"
    text += f" {rate_text(ours):>9} {figure(ours.roofline_share, '.0%'):>5}"
    text += "".join(f" {time_text(records.get(rival)):>8}" for rival in rivals) + " |"
    text += "".join(f" {figure(time_ratio(records, 'ours', rival), '.2f'):>8}" for rival in rivals)
    notes = [] if ours.batch.block_size == 16 else [f"pages of {ours.batch.block_size}"]
    notes += ["one KV set: cache not cold"] if ours.kv_sets < 2 else []
    notes += [
        f"{name}: {time_text(records[name])} us, {figure(time_ratio(records, name, 'ours'), '.3f')} of ours"
        for name in tried
        if records[name].time_us is not None
    ]
    # Most rivals do not suit most batches.
    notes += [
        f"{name}: {one.note}" for name, one in records.items() if one.failed or (one.note and name in tried)
    ]
    return text + "".join(f"\n    {note}" for note in notes)


def mean_table(batches: Sequence[Records], rivals: Sequence[str], tried: Sequence[str] = ()) -> list[str]:
    """Geometric means of our time over each rival's and of others' over ours, with the number of batches."""
    groups: dict[str, list[Records]] = defaultdict(list)
    for records in batches:
        groups[f"kind {records['ours'].batch.kind}"].append(records)
    for records in batches:
        groups[f"heads {records['ours'].batch.layout}"].append(records)
    pairs = [*(("ours", rival) for rival in rivals), *((name, "ours") for name in tried)]
    rows = [["", *("/".join(pair) for pair in pairs)]]
    for group, members in (groups | {"all": list(batches)}).items():
        rows.append([group])
        for pair in pairs:
            ratios = [ratio for records in members if (ratio := time_ratio(records, *pair))]
            rows[-1].append(f"{geometric_mean(ratios):.3f} ({len(ratios)})" if ratios else "-")
    return ["", "ratios of times, geometric mean (batches)", *aligned(rows)]


def document(head: dict[str, object], batches: Sequence[Records]) -> str:
    """compare.json: the head, and all records."""
    rows = [record.entry() for records in batches for record in records.values()]
    return json.dumps({**head, "results": rows}, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a kernel of ours failed or was wrong on some batch; wrong use exits with 2."""
    started = time.monotonic()
    args = parse_arguments(arguments)
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    dtype = args.dtype or (None if on_gpu else "float16")  # vLLM's kernel multiplies bf16 wrongly on a CPU
    name = args.batches or ("core" if on_gpu else "tiny")
    batches = select(name, only=args.only, heads=args.layouts, block_size=args.page_size, dtype=dtype)
    if not batches:
        environment.stop(f"--only {args.only!r}: no batch of {name} has this in its text")
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    peers = load_peers(args.peers, *(PEERS if on_gpu else TRITON_PEERS.values()))
    rivals: list[Implementation] = [peer for peer in (*peers, Sdpa()) if peer.name not in args.skip]
    names = [rival for rival in RIVALS if any(rival == entry.name for entry in rivals)]
    more = [Ours(config, str(config)) for config in args.config]
    if args.parts:
        more.append(Ours(name="ours in parts", in_parts=True))
    if args.invariant:  # implementations that give a sequence the same bits in every batch
        more.append(Ours(name="ours invariant", in_parts=True, batch_invariant=True))
        if "fa3" in names:
            rivals.append(Peer(ONE_SPLIT, partial(run_fa3, num_splits=1), fp8_caches=True))
    beside = [*(one.name for one in more), *(one.name for one in rivals if one.name == ONE_SPLIT)]
    implementations: list[Implementation] = [Ours(), *more, *rivals]
    jobs: list[Job] = [CompileJob((batch,), one) for batch in batches for one in (Ours(), *more)]
    for rival, peer in TRITON_PEERS.items():
        if rival in names:
            jobs += peer_jobs(batches, args.peers, peer)
    print(compile_in_parallel(jobs, device, args.compile_workers), flush=True)
    ceilings = measure_ceilings(device)
    giga, tera = ceilings.bytes_per_s / 1e9, ceilings.flops_per_s / 1e12
    print(f"ceilings: copy {giga:.0f} GB/s, bf16 matmul {tera:.0f} TFLOP/s")
    if not on_gpu:
        print("times on a CPU mean nothing: this run only tests the command")
    print("times in us per launch; o/R: our time over rival R's")
    print(header(names), flush=True)

    head = {"environment": facts, "ceilings": dataclasses.asdict(ceilings), "batches": name}
    deadline = started + (args.seconds_budget or float("inf"))
    done: list[Records] = []
    broken = 0
    for batch in environment.within_deadline(batches, deadline):
        try:
            done.append(measure_batch(batch, device, implementations, ceilings, 16 if on_gpu else 2))
        except Exception as error:
            print(f"{batch}: BROKE OFF: {brief(error)}", flush=True)
            environment.raise_if_lost(device)
            broken += 1
            continue
        print(batch_line(done[-1], names, beside), flush=True)
        if args.out:
            environment.write_atomically(args.out / "compare.json", document(head, done))
        if on_gpu:
            torch.cuda.empty_cache()
    print("\n".join(mean_table(done, names, beside)))
    left_out = len(batches) - len(done) - broken
    if left_out:
        print(f"no time left within {args.seconds_budget:.0f} s for {left_out} batches")
    bad = sum(ours_failed(records) for records in done)
    verdict = f"ours wrong or failed on {bad}" + (f", {broken} broke off" if broken else "")
    print(f"{len(done)} batches in {time.monotonic() - started:.0f} s; {verdict}")
    return 1 if bad or broken or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())

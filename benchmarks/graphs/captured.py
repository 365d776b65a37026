"""Measure how much slower a graph captured for fixed maxima is than one captured for each batch exactly.

python -m benchmarks.graphs.captured [--sets decode short mixed] [--parts]

The exit code is 1 if a replay is wrong.
"""

import argparse
import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import torch

import attn_kernels
from attn_kernels import Lengths
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.timing import time_together
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, load_peers, run_fa3
from benchmarks.common.table import spread_text
from benchmarks.graphs.captured_step import CapturedStep, ServerBuffers
from benchmarks.graphs.server_batches import H100, KINDS, TINY, ServerBatch, draw, parts_of

# Graphs of ours: captured at the maxima; exactly for the batch.
OURS, EXACT = "for_capture", "exact"
# Graphs in parts: captured at the maxima; exactly for the batch.
PARTS, EXACT_PARTS = "for_capture in parts", "exact in parts"
BATCHES = {"decode": 200, "short": 16, "mixed": 48}
BATCHES_IN_PARTS = {"mixed": 200}  # with --parts
ALL_ROWS = Limits(cache_elements=1 << 29, scores=1 << 40)
REPEATS = 6  # replays that time a graph

Times = tuple[ServerBatch, dict[str, float]]
"""A batch, and microseconds per layer by graph."""


def time_batch(
    drawn: ServerBatch, buffers: ServerBuffers, steps: dict[str, CapturedStep], seed: int
) -> tuple[dict[str, float], int, list[str]]:
    """Check and time `steps`, captured at the maxima, and exact graphs.

    Returns microseconds per layer of each, how many rows were compared, and a line per wrong graph.
    """
    batch = drawn.batch
    buffers.fill(batch, seed)
    tensors = buffers.tensors(batch)
    exact = partial(CapturedStep, buffers, batch.lengths, for_capture=False)
    steps = {**steps, EXACT: exact()}
    if PARTS in steps:
        steps[EXACT_PARTS] = exact(parts=batch.parts)
    expected, out = expect(tensors, ALL_ROWS), tensors.sets[0].out
    wrong = []
    for name, step in steps.items():
        out.fill_(math.nan)
        step.replay()
        verdict = check(out, expected)
        if not verdict.ok:
            wrong.append(f"{name}, {batch.name}: {verdict}")
    timings = time_together(dict(steps), REPEATS)
    return {name: timing.median_us for name, timing in timings.items()}, len(expected.rows), wrong


def lines(times: Sequence[Times]) -> list[str]:
    """The tables of every kind of batch: over all batches, and by context."""
    kinds: dict[str, list[Times]] = defaultdict(list)
    for drawn, us in times:
        kinds[drawn.kind].append((drawn, us))
    printed = []
    for kind, members in kinds.items():
        names = [name for name in members[0][1] if name != EXACT]
        ratios = {name: [us[name] / us[EXACT] for _, us in members] for name in names}
        printed += ["", f"{kind}: time / exactly captured: geomean, 95th percentile, worst"]
        printed += [f"{name:34} {spread_text(of_name)}" for name, of_name in ratios.items()]
        printed += ["", f"{kind}: geomean by context: exact us | " + ", ".join(names)]
        contexts: dict[str, list[int]] = defaultdict(list)
        for place, (drawn, _) in enumerate(members):
            contexts[drawn.context_class].append(place)
        for context, places in contexts.items():
            exact = geometric_mean(members[place][1][EXACT] for place in places)
            means = (geometric_mean(ratios[name][place] for place in places) for name in names)
            cells = " ".join(f"{mean:6.3f}" for mean in means)
            printed.append(f"{context:>8} ({len(places):3}) {exact:7.1f} | {cells}")
    return printed


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = environment.parser_of(__doc__, "benchmarks.graphs.captured")
    add = parser.add_argument
    counts = ", ".join(f"{count} {kind}" for kind, count in BATCHES.items())
    add("--sets", nargs="+", choices=KINDS, default=KINDS, help="of batches (default: all)")
    add("--batches", type=int, help=f"number of batches of each set (default: {counts})")
    add("--heads", type=HeadLayout.parse, help="QUERY/KV/SIZE, such as 16/8/256 (default: 32/8/128)")
    add("--seed", type=int, default=0)
    add("--parts", action="store_true", help="also capture mixed graphs in parts: decodes and prompts apart")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    environment.add_device_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a replay is wrong."""
    started = time.monotonic()
    args = parse_arguments(arguments)
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    server, dtype = (H100, torch.bfloat16) if on_gpu else (TINY, torch.float16)
    if args.heads is not None:
        server = dataclasses.replace(server, layout=args.heads)
    print(environment.headline(environment.describe(device)), flush=True)
    peers = load_peers(args.peers, "fa3") if on_gpu else []
    counts = BATCHES | (BATCHES_IN_PARTS if args.parts else {}) if on_gpu else dict.fromkeys(BATCHES, 2)
    batches = [
        dataclasses.replace(drawn, batch=drawn.batch.at(dtype=dtype))
        for kind in sorted(args.sets, key=lambda kind: kind == "mixed")
        for drawn in draw(server, kind, args.batches or counts[kind], args.seed)
    ]
    buffers = ServerBuffers(server, device, dtype)
    if on_gpu:
        workers = args.compile_workers
        print(
            attn_kernels.compile_ahead(device, buffers.model, for_capture=True, workers=workers), flush=True
        )
    graphs: dict[Lengths, dict[str, CapturedStep]] = {}
    for maxima, kind in {drawn.maxima: drawn.kind for drawn in batches}.items():
        captured_for = partial(CapturedStep, buffers, maxima, for_capture=True)
        graphs[maxima] = {OURS: captured_for()}
        if args.parts and kind == "mixed":
            graphs[maxima][PARTS] = captured_for(parts=parts_of(maxima))
        graphs[maxima] |= {peer.name: captured_for(peer=run_fa3) for peer in peers}
    captured = sum(map(len, graphs.values()))
    print(f"{captured} graphs captured after {time.monotonic() - started:.0f} s", flush=True)
    times: list[Times] = []
    wrong: list[str] = []
    done = rows = 0
    for drawn in environment.within_deadline(batches, started + (args.seconds_budget or math.inf)):
        try:
            us, compared, wrong_steps = time_batch(drawn, buffers, graphs[drawn.maxima], done)
            times.append((drawn, us))
            rows += compared
            wrong += wrong_steps
        except Exception as error:
            wrong.append(f"{drawn.batch.name}: {brief(error)}")
            environment.raise_if_lost(device)
        done += 1
    if done < len(batches):
        print(f"no time left for {len(batches) - done} batches")
    print("\n".join([*lines(times), *(f"WRONG {line}" for line in wrong[:20])]))
    print(
        f"{len(times)} batches, {rows} rows against float64, {len(wrong)} wrong; "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if wrong or not times else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Measure how much slower a graph captured for fixed maxima is than one captured for each batch exactly.

python -m benchmarks.graphs.captured [--sets decode,short,mixed] [--parts]

The exit code is 1 if a replay is wrong.
"""

import argparse
import dataclasses
import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import torch

from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.timing import time_together
from benchmarks.common import environment
from benchmarks.common.compile_jobs import PlanJob
from benchmarks.common.implementations import PEERS_FOLDER, load_peers, run_fa3
from benchmarks.common.table import spread_text
from benchmarks.graphs.captured_step import CaptureCandidate, CapturedStep, ServerBuffers
from benchmarks.graphs.server_batches import H100, KINDS, SMOKE, CaptureServer, ServerBatch, draw
from triton_tune.processes.compile_ahead import Job, compile_in_parallel

# Graphs of ours: captured at the maxima; exactly for the batch.
OURS, EXACT = "for_capture", "exact"
# Graphs in parts: captured at the maxima; exactly for the batch.
PARTS, EXACT_PARTS = "for_capture in parts", "exact in parts"
BATCHES = {"decode": 200, "short": 16, "mixed": 48}
BATCHES_IN_PARTS = {"mixed": 200}  # with --parts
ALL_ROWS = Limits(cache_elements=1 << 29, scores=1 << 40)


@dataclass(frozen=True)
class CapturedTimes:
    """The times of one batch."""

    kind: str
    context: str  # class of the mean context
    rows: int  # of the output that were compared
    us: dict[str, float]  # microseconds per layer by candidate


def capture_candidates(
    mixed: bool, parts: bool, peers: Path, smoke: bool
) -> tuple[list[CaptureCandidate], list[str]]:
    """Return what is captured at the maxima, ours first; and a line for each peer that did not load."""
    candidates = [CaptureCandidate(OURS, for_capture=True)]
    if parts and mixed:
        candidates.append(CaptureCandidate(PARTS, for_capture=True, parts=True))
    loaded, problems = ([], []) if smoke else load_peers(peers, ("fa3",))
    return [*candidates, *(CaptureCandidate(peer.name, peer=run_fa3) for peer in loaded)], problems


def compile_all(
    batches: Sequence[ServerBatch],
    candidates: dict[bool, list[CaptureCandidate]],
    device: torch.device,
    workers: int | None,
) -> str:
    """Compile every kernel that will be captured; return a line that sums it up."""
    jobs: list[Job] = []
    for maxima, layout, dtype in {(one.maxima, one.batch.layout, one.batch.dtype) for one in batches}:
        largest = maxima.largest(layout).at(dtype=dtype)
        jobs += [PlanJob(largest), PlanJob(largest, max_query_len=maxima.max_query_len)]
    for drawn in batches:
        jobs.append(PlanJob(drawn.batch))
        if any(entry.parts for entry in candidates[drawn.maxima.mixed]):
            jobs.append(PlanJob(drawn.batch, in_parts=True))
    return str(compile_in_parallel(jobs, device, workers))


def time_batch(
    drawn: ServerBatch, buffers: ServerBuffers, steps: dict[str, CapturedStep], seed: int, repeats: int
) -> tuple[CapturedTimes, list[str]]:
    """Check and time `steps`, captured at the maxima, and exact graphs; return also a line per wrong one."""
    batch = drawn.batch
    buffers.fill(batch, seed)
    tensors = buffers.tensors(batch)
    steps = {**steps, EXACT: CapturedStep(buffers, CaptureCandidate(EXACT), batch)}
    if PARTS in steps:
        steps[EXACT_PARTS] = CapturedStep(buffers, CaptureCandidate(EXACT_PARTS, parts=True), batch)
    expected = expect(tensors, ALL_ROWS)
    wrong = []
    for name, step in steps.items():
        tensors.sets[0].out.fill_(math.nan)
        step.replay()
        verdict = check(tensors.sets[0].out, expected)
        if not verdict.ok:
            wrong.append(f"{name}, {batch.name}: {verdict}")
    timings = time_together(dict(steps), repeats)
    times = CapturedTimes(
        kind=drawn.kind,
        context=drawn.context_class,
        rows=len(expected.rows),
        us={name: timing.median_us for name, timing in timings.items()},
    )
    return times, wrong


def time_ratios(times: Sequence[CapturedTimes], name: str) -> list[float]:
    """Return each batch's time of a candidate over that of the exact graph."""
    return [batch.us[name] / batch.us[EXACT] for batch in times]


def grouped(times: Sequence[CapturedTimes], field: str) -> dict[str, list[CapturedTimes]]:
    """Group batches by the value of a field."""
    groups = defaultdict(list)
    for batch in times:
        groups[getattr(batch, field)].append(batch)
    return groups


def lines(times: Sequence[CapturedTimes]) -> list[str]:
    """Return the tables of every kind of batch."""
    return [line for kind, members in grouped(times, "kind").items() for line in lines_of(kind, members)]


def lines_of(kind: str, times: Sequence[CapturedTimes]) -> list[str]:
    """Return the tables of one kind: over all batches, and by context."""
    names = [name for name in times[0].us if name != EXACT]
    lines = ["", f"{kind}: time / exactly captured: geomean, 95th percentile, worst"]
    lines += [f"{name:34} {spread_text(time_ratios(times, name))}" for name in names]
    lines += ["", f"{kind}: geomean by context: exact us | " + ", ".join(names)]
    for group, members in grouped(times, "context").items():
        us = geometric_mean(batch.us[EXACT] for batch in members)
        cells = " ".join(f"{geometric_mean(time_ratios(members, name)):6.3f}" for name in names)
        lines.append(f"{group:>8} ({len(members):3}) {us:7.1f} | {cells}")
    return lines


def head_layout(text: str) -> HeadLayout:
    """Read --heads; raises ValueError, which argparse reports."""
    layout = HeadLayout.parse(text)
    layout.model(16, torch.bfloat16)  # checks it
    return layout


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.graphs.captured", description=__doc__)
    add = parser.add_argument
    counts = ", ".join(f"{count} {kind}" for kind, count in BATCHES.items())
    add("--sets", default=",".join(KINDS), help=f"some of {','.join(KINDS)} (default: all)")
    add("--batches", type=int, help=f"number of batches of each set (default: {counts})")
    add("--heads", type=head_layout, help="QUERY/KV/SIZE, such as 16/8/256 (default: 32/8/128)")
    add("--seed", type=int, default=0)
    add("--repeats", type=int, default=6, help="replays that time a graph")
    add("--parts", action="store_true", help="also capture mixed graphs in parts: decodes and prompts apart")
    add("--smoke", action="store_true", help="test the command on tiny batches in Triton's interpreter")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    environment.add_device_options(parser)
    args = parser.parse_args(arguments)
    args.sets = [name for name in args.sets.split(",") if name]
    for name in args.sets or [""]:
        if name not in KINDS:
            environment.stop(f"--sets {name}: the sets are {', '.join(KINDS)}")
    if args.parts and "mixed" not in args.sets:
        environment.stop("--parts: the set mixed is needed")
    if args.batches is not None and args.batches < 1:
        environment.stop(f"--batches {args.batches}: at least 1 is needed")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a replay is wrong."""
    started = time.monotonic()
    args = parse_arguments(arguments)
    device = environment.device_from("cpu" if args.smoke else args.device)
    server: CaptureServer = SMOKE if args.smoke else H100
    if args.heads is not None:
        server = dataclasses.replace(server, layout=args.heads)
    dtype = torch.float16 if args.smoke else torch.bfloat16
    print(environment.headline(environment.describe(device)), flush=True)
    counts = dict.fromkeys(BATCHES, 2) if args.smoke else BATCHES | (BATCHES_IN_PARTS if args.parts else {})
    batches = [
        dataclasses.replace(drawn, batch=drawn.batch.at(dtype=dtype))
        for kind in sorted(args.sets, key=lambda kind: kind == "mixed")
        for drawn in draw(server, kind, args.batches or counts[kind], args.seed)
    ]
    candidates: dict[bool, list[CaptureCandidate]] = {}
    for mixed in dict.fromkeys(drawn.maxima.mixed for drawn in batches):
        candidates[mixed], problems = capture_candidates(mixed, args.parts, args.peers, args.smoke)
    print("\n".join(problems), end="\n" if problems else "")
    if not args.smoke:
        print(compile_all(batches, candidates, device, args.compile_workers), flush=True)
    buffers = ServerBuffers(server, device, dtype)
    graphs = {
        maxima: {entry.name: CapturedStep(buffers, entry, maxima) for entry in candidates[maxima.mixed]}
        for maxima in dict.fromkeys(drawn.maxima for drawn in batches)
    }
    captured = sum(len(steps) for steps in graphs.values())
    print(f"{captured} graphs captured after {time.monotonic() - started:.0f} s", flush=True)
    times: list[CapturedTimes] = []
    wrong: list[str] = []
    done = 0
    for drawn in environment.within_deadline(batches, started + (args.seconds_budget or math.inf)):
        try:
            batch_times, wrong_steps = time_batch(drawn, buffers, graphs[drawn.maxima], done, args.repeats)
            times.append(batch_times)
            wrong += wrong_steps
        except Exception as error:
            wrong.append(f"{drawn.batch.name}: {brief(error)}")
            environment.raise_if_lost(device)
        done += 1
    if done < len(batches):
        print(f"no time left for {len(batches) - done} batches")
    print("\n".join([*(lines(times) if times else []), *(f"WRONG {line}" for line in wrong[:20])]))
    print(
        f"{len(times)} batches, {sum(batch.rows for batch in times)} rows against float64, "
        f"{len(wrong)} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong or not times else 0


if __name__ == "__main__":
    sys.exit(main())

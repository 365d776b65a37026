"""Measure what a graph captured for fixed maxima loses against one captured exactly for each batch.

python -m benchmarks.graphs.captured [--sets decode,short,mixed] [--parts] [--others] [--out DIR]

The exit code is 1 if a replay is wrong.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from attn_kernels import Config, Lengths
from attn_kernels.choose.capture import STREAM_K
from attn_kernels.choose.choices import choices_for
from attn_kernels.core import checks
from attn_kernels.core.config import complete
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.timing import time_together
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, load_peers, run_fa3
from benchmarks.common.in_parts import PartsJob
from benchmarks.graphs.captured_step import CaptureCandidate, CapturedStep, ServerBuffers
from benchmarks.graphs.server_batches import H100, KINDS, SMOKE, CaptureServer, ServerBatch, draw
from benchmarks.graphs.tables import EXACT, EXACT_PARTS, OURS, PARTS, SAME, CapturedTimes, lines
from triton_tune.processes.compile_ahead import compile_in_parallel
from triton_tune.processes.jobs import Job
from verification.compile_jobs import plain_job

# --others: configs with other programs, registers, stages, tiles or warps than STREAM_K.
OTHERS = (
    str(STREAM_K),
    "stream_k_M16_T64_W4_S3_P2",
    "stream_k_M16_T64_W4_S3_P6_R168",
    "stream_k_M16_T64_W4_S2_P4_R128",
    "stream_k_M16_T32_W4_S3_P4_R128",
    "stream_k_M16_T64_W8_S3_P2_R128",
)
MIXED_OTHERS = ("stream_k_M64_T64_W4_S3_P2", "stream_k_M64_T64_W4_S2_P3_R168", "split_M64_T64_W4_S3")
# Each runs with all of its segments, and with as many as the device counts.
SEGMENTS = ("segmented_M16_T64_N16_W4_S3", "static_grid_M16_T64_N8_W4_S3_P4")
MIXED_SEGMENTS = ("segmented_M64_T64_N16_W4_S3", "static_grid_M64_T64_N8_W4_S3_P2")
BATCHES = {"decode": 200, "short": 16, "mixed": 48}
BATCHES_IN_PARTS = {"mixed": 200}  # with --parts
ALL_ROWS = Limits(cache_elements=1 << 29, scores=1 << 40)


def capture_candidates(
    mixed: bool, others: bool, parts: bool, peers: Path, smoke: bool
) -> tuple[list[CaptureCandidate], list[str]]:
    """Return what is captured at the maxima, ours first; and a line for each peer that did not load."""
    candidates = [CaptureCandidate(OURS, for_capture=True)]
    if parts and mixed:
        candidates.append(CaptureCandidate(PARTS, for_capture=True, parts=True))
    if smoke:
        candidates.append(CaptureCandidate("stream_k", Config("stream_k", 16, 16, programs_per_sm=2)))
        on_gpu = Config("static_grid", 16, 16, num_segments=3, device_segments=1)
        return [*candidates, CaptureCandidate("static_grid, counted on the GPU", on_gpu)], []
    if others:
        configs = MIXED_OTHERS if mixed else OTHERS
        candidates += [
            CaptureCandidate(text.removeprefix("stream_k_"), Config.parse(text)) for text in configs
        ]
    candidates.append(CaptureCandidate("chosen for maxima"))
    for config in map(Config.parse, MIXED_SEGMENTS if mixed else SEGMENTS):
        candidates.append(CaptureCandidate(config.variant, config))
        candidates.append(
            CaptureCandidate(f"{config.variant}, counted on the GPU", config._replace(device_segments=1))
        )
    loaded, problems = load_peers(peers, ("fa3",))
    return [*candidates, *(CaptureCandidate(peer.name, peer=run_fa3) for peer in loaded)], problems


def compile_all(
    batches: Sequence[ServerBatch],
    candidates: dict[bool, list[CaptureCandidate]],
    device: torch.device,
    workers: int | None,
) -> str:
    """Compile every kernel that will be captured; return a line that sums it up."""
    jobs: list[Job] = []
    for drawn in batches:
        largest = drawn.maxima.largest(drawn.batch.layout)
        choices = choices_for(drawn.batch.model, device)
        maxima = Lengths.of(largest.query_lens, largest.context_lens)
        maxima = maxima._replace(max_query_len=drawn.maxima.max_query_len)
        for_capture = choices.config(maxima, for_capture=True)
        given = [entry.config for entry in candidates[drawn.maxima.mixed] if entry.config is not None]
        at_maxima = (for_capture, choices.config(maxima), *given)
        jobs += [plain_job(largest, complete(config)) for config in at_maxima]
        exact = choices.config(Lengths.of(drawn.batch.query_lens, drawn.batch.context_lens))
        jobs += [plain_job(drawn.batch, config) for config in (exact, for_capture)]
        if any(entry.parts for entry in candidates[drawn.maxima.mixed]):
            jobs.append(PartsJob(drawn.batch))
    return str(compile_in_parallel(jobs, device, workers))


def time_batch(
    drawn: ServerBatch, buffers: ServerBuffers, steps: dict[str, CapturedStep], seed: int, repeats: int
) -> tuple[CapturedTimes, list[str]]:
    """Check and time `steps`, captured at the maxima, and exact graphs; return also a line per wrong one."""
    batch = drawn.batch
    buffers.fill(batch, seed)
    tensors = buffers.tensors(batch)
    exact = CapturedStep(buffers, CaptureCandidate(EXACT), batch)
    same = CapturedStep(buffers, CaptureCandidate(SAME, steps[OURS].config), batch)
    steps = {**steps, EXACT: exact, SAME: same}
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
        batch=batch.name,
        kind=drawn.kind,
        captured=str(drawn.maxima),
        like=drawn.graph_class,
        query_lens=batch.query_lens,
        context_lens=batch.context_lens,
        context=drawn.context_class,
        rows=len(expected.rows),
        config=str(steps[OURS].config),
        exact_config=str(exact.config),
        us={name: timing.median_us for name, timing in timings.items()},
    )
    return times, wrong


def head_layout(text: str) -> HeadLayout:
    """Read --heads; raises ValueError, which argparse reports."""
    layout = HeadLayout.parse(text)
    checks.check_heads(layout.num_query_heads, layout.num_kv_heads, layout.head_size)
    return layout


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.graphs.captured", description=__doc__)
    add = parser.add_argument
    counts = ", ".join(f"{count} {kind}" for kind, count in BATCHES.items())
    add("--sets", default=",".join(KINDS), help=f"some of {','.join(KINDS)} (default: all)")
    add("--batches", type=int, help=f"number of batches of each set (default: {counts})")
    add("--heads", type=head_layout, help="QUERY/KV/SIZE, such as 16/8/256 (default: 32/8/128)")
    add("--seed", type=int, default=0)
    add("--repeats", type=int, default=6, help="replays that time a graph")
    add("--others", action="store_true", help="also capture other configs, most of them of stream_k")
    add("--parts", action="store_true", help="also capture mixed graphs in parts: decodes and prompts apart")
    add("--smoke", action="store_true", help="test the command on tiny batches in Triton's interpreter")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    add("--out", type=Path, help="folder for captured.json")
    environment.add_device_options(parser)
    args = parser.parse_args()
    args.sets = [name for name in args.sets.split(",") if name]
    for name in args.sets or [""]:
        if name not in KINDS:
            environment.stop(f"--sets {name}: the sets are {', '.join(KINDS)}")
    if args.parts and "mixed" not in args.sets:
        environment.stop("--parts: the set mixed is needed")
    if args.batches is not None and args.batches < 1:
        environment.stop(f"--batches {args.batches}: at least 1 is needed")
    return args


def main() -> int:
    """Return 0, or 1 if a replay is wrong."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from("cpu" if args.smoke else args.device)
    server: CaptureServer = SMOKE if args.smoke else H100
    if args.heads is not None:
        server = dataclasses.replace(server, layout=args.heads)
    dtype = torch.float16 if args.smoke else torch.bfloat16
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    counts = dict.fromkeys(BATCHES, 2) if args.smoke else BATCHES | (BATCHES_IN_PARTS if args.parts else {})
    batches = [
        dataclasses.replace(drawn, batch=drawn.batch.at(dtype=dtype))
        for kind in sorted(args.sets, key=lambda kind: kind == "mixed")
        for drawn in draw(server, kind, args.batches or counts[kind], args.seed)
    ]
    candidates: dict[bool, list[CaptureCandidate]] = {}
    for mixed in dict.fromkeys(drawn.maxima.mixed for drawn in batches):
        candidates[mixed], problems = capture_candidates(
            mixed, args.others, args.parts, args.peers, args.smoke
        )
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
    if args.out:
        batches_json = [dataclasses.asdict(batch) for batch in times]
        text = json.dumps({"environment": facts, "batches": batches_json}, indent=1)
        environment.write_atomically(args.out / "captured.json", text)
    print("\n".join([*(lines(times) if times else []), *(f"WRONG {line}" for line in wrong[:20])]))
    print(
        f"{len(times)} batches, {sum(batch.rows for batch in times)} rows against float64, "
        f"{len(wrong)} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong or not times else 0


if __name__ == "__main__":
    sys.exit(main())

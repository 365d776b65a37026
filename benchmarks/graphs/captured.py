"""What a captured graph loses: steps replayed from graphs of fixed maxima, against graphs captured exactly.

python -m benchmarks.graphs.captured [--sets decode,short,mixed] [--others] [--out DIR]

Exit code 1 if a replay is
wrong.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from pathlib import Path

import torch

from attn_kernels import Config
from attn_kernels.choose.capture import STREAM_K, choose_for_capture
from attn_kernels.choose.heuristic import choose_for_device
from attn_kernels.core import checks
from attn_kernels.core.config import complete
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.timing import time_together
from attn_kernels.warmup.processes import compile_in_parallel
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, load_peers, run_fa3
from benchmarks.common.jobs import own_job
from benchmarks.graphs.batches import H100, KINDS, SMOKE, Drawn, Maxima, Server, draw
from benchmarks.graphs.graphs import Buffers, Candidate, Step, captured_exactly
from benchmarks.graphs.lines import EXACT, OURS, SAME, Row, lines

# Beside ours, to see whether another is better: programs, registers, stages, tile, warps.
OTHERS = (
    str(STREAM_K),
    "stream_k_M16_T64_W4_S3_P2",
    "stream_k_M16_T64_W4_S3_P6_R168",
    "stream_k_M16_T64_W4_S2_P4_R128",
    "stream_k_M16_T32_W4_S3_P4_R128",
    "stream_k_M16_T64_W8_S3_P2_R128",
)
MIXED_OTHERS = ("stream_k_M64_T64_W4_S3_P2", "stream_k_M64_T64_W4_S2_P3_R168", "split_M64_T64_W4_S3")
# Each with all segments and with as many as the device decides.
SEGMENTS = ("segmented_M16_T64_N16_W4_S3", "static_grid_M16_T64_N8_W4_S3_P4")
MIXED_SEGMENTS = ("segmented_M64_T64_N16_W4_S3", "static_grid_M64_T64_N8_W4_S3_P2")
BATCHES = {"decode": 200, "short": 16, "mixed": 48}
EVERYTHING = Limits(cache_elements=1 << 29, scores=1 << 40)


def candidates(mixed: bool, others: bool, peers: Path, smoke: bool) -> tuple[list[Candidate], list[str]]:
    """Who is captured at the maxima; the first is ours. And a line for each who cannot."""
    found = [Candidate(OURS, for_capture=True)]
    if smoke:
        found.append(Candidate("stream_k", Config("stream_k", 16, 16, programs_per_sm=2)))
        decided = Config("static_grid", 16, 16, num_segments=3, device_segments=1)
        return [*found, Candidate("static_grid, decided", decided)], []
    if others:
        configs = MIXED_OTHERS if mixed else OTHERS
        found += [Candidate(text.removeprefix("stream_k_"), Config.parse(text)) for text in configs]
    found.append(Candidate("chosen for maxima"))
    for config in map(Config.parse, MIXED_SEGMENTS if mixed else SEGMENTS):
        found.append(Candidate(config.variant, config))
        found.append(Candidate(f"{config.variant}, decided", config._replace(device_segments=1)))
    loaded, problems = load_peers(peers, ("fa3",))
    return [*found, *(Candidate(peer.name, peer=run_fa3) for peer in loaded)], problems


def compile_all(trials: list["Trial"], device: torch.device, workers: int | None) -> str:
    choose, choose_for_maxima = choose_for_device(device), choose_for_capture(device)
    jobs = []
    for trial in trials:
        for one in trial.drawn:
            most = one.maxima.largest(one.batch.layout)
            maxima = {**most.features, "max_query_len": one.maxima.max_query_len}
            chosen = (choose_for_maxima(**maxima), choose(**maxima))
            given = [entry.config for entry in trial.entries if entry.config is not None]
            jobs += [own_job(most, complete(config)) for config in (*chosen, *given)]
            jobs += [own_job(one.batch, complete(choose(**one.batch.features)))]
            jobs += [own_job(one.batch, complete(chosen[0]))]
    return str(compile_in_parallel(jobs, device, workers))


@dataclasses.dataclass
class Trial:
    """Batches of like graphs, and who replays and is timed for them one after another."""

    drawn: list[Drawn]
    entries: list[Candidate]
    repeats: int
    graphs: dict[tuple[str, Maxima], Step] = dataclasses.field(default_factory=dict)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def capture(self, buffers: Buffers) -> None:
        """At the maxima."""
        for maxima in dict.fromkeys(one.maxima for one in self.drawn):
            for entry in self.entries:
                self.graphs[entry.name, maxima] = Step(buffers, entry, maxima)

    def hold(self, buffers: Buffers, drawn: Drawn, seed: int) -> Row:
        batch = drawn.batch
        buffers.fill(batch, seed)
        tensors = buffers.tensors(batch)
        steps: dict[str, Step] = {entry.name: self.graphs[entry.name, drawn.maxima] for entry in self.entries}
        steps[EXACT] = captured_exactly(buffers, Candidate(EXACT), batch)
        ours = steps[self.entries[0].name].config
        steps[SAME] = captured_exactly(buffers, Candidate(SAME, ours), batch)
        expected = expect(tensors, EVERYTHING)
        for name, step in steps.items():
            tensors.sets[0].out.fill_(math.nan)
            step.replay()
            found = check(tensors.sets[0].out, expected)
            if not found.ok:
                self.wrong.append(f"{name}, {batch.name}: {found}")
        times = time_together(dict(steps), self.repeats)
        return Row(
            batch=batch.name,
            kind=drawn.kind,
            captured=str(drawn.maxima),
            like=drawn.row,
            query_lens=batch.query_lens,
            context_lens=batch.context_lens,
            context=drawn.context_class,
            rows=len(expected.rows),
            config=str(ours),
            exact_config=str(steps[EXACT].config),
            us={name: timing.median_us for name, timing in times.items()},
        )


def head_layout(text: str) -> HeadLayout:
    layout = HeadLayout(*map(int, text.split("/")))
    checks.check_heads(layout.num_query_heads, layout.num_kv_heads, layout.head_size)
    return layout


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.graphs.captured", description=__doc__)
    counts = ", ".join(f"{count} {kind}" for kind, count in BATCHES.items())
    parser.add_argument("--sets", default=",".join(KINDS), help=f"some of {','.join(KINDS)} (default: all)")
    parser.add_argument("--batches", type=int, help=f"of each set (default: {counts})")
    parser.add_argument(
        "--heads", type=head_layout, help="QUERY/KV/SIZE, such as 16/8/256 (default: 32/8/128)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=6, help="replays that time a graph")
    parser.add_argument("--others", action="store_true", help="also other configs, most of stream_k")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny, in Triton's interpreter: tests the script"
    )
    parser.add_argument("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    parser.add_argument("--out", type=Path, help="folder for captured.json")
    environment.add_device_options(parser)
    args = parser.parse_args()
    args.sets = [name for name in args.sets.split(",") if name]
    for name in args.sets or [""]:
        if name not in KINDS:
            environment.stop(f"--sets {name}: the sets are {', '.join(KINDS)}")
    if args.batches is not None and args.batches < 1:
        environment.stop(f"--batches {args.batches}: at least 1 is needed")
    return args


def main() -> int:
    """Returns 0, or 1 where a replay is wrong."""
    started = time.monotonic()
    args = arguments()
    device = environment.device_from("cpu" if args.smoke else args.device)
    server: Server = SMOKE if args.smoke else H100
    if args.heads is not None:
        server = dataclasses.replace(server, layout=args.heads)
    dtype = torch.float16 if args.smoke else torch.bfloat16
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    trials = []
    for mixed in (False, True):
        drawn = [
            dataclasses.replace(one, batch=one.batch.at(dtype=dtype))
            for kind in args.sets
            if (kind == "mixed") == mixed
            for one in draw(server, kind, args.batches or (2 if args.smoke else BATCHES[kind]), args.seed)
        ]
        if drawn:
            entries, problems = candidates(mixed, args.others, args.peers, args.smoke)
            trials.append(Trial(drawn, entries, args.repeats))
    print("\n".join(problems), end="\n" if problems else "")
    if not args.smoke:
        print(compile_all(trials, device, args.compile_workers), flush=True)
    buffers = Buffers(server, device, dtype)
    for trial in trials:
        trial.capture(buffers)
    captured = sum(len(trial.graphs) for trial in trials)
    print(f"{captured} graphs captured after {time.monotonic() - started:.0f} s", flush=True)
    rows = []
    for trial in trials:
        for index, one in enumerate(trial.drawn):
            if args.seconds_budget and time.monotonic() - started > args.seconds_budget:
                print(f"no time left for {len(trial.drawn) - index} batches")
                break
            try:
                rows.append(trial.hold(buffers, one, index))
            except Exception as error:
                trial.wrong.append(f"{one.batch.name}: {brief(error)}")
                if device.type == "cuda":
                    torch.cuda.synchronize()  # raises again if the device itself is lost
    wrong = [line for trial in trials for line in trial.wrong]
    if args.out:
        found = [dataclasses.asdict(row) for row in rows]
        text = json.dumps({"environment": facts, "batches": found}, indent=1)
        environment.write_atomically(args.out / "captured.json", text)
    print("\n".join([*(lines(rows) if rows else []), *(f"WRONG {line}" for line in wrong[:20])]))
    print(
        f"{len(rows)} batches, {sum(row.rows for row in rows)} rows against float64, "
        f"{len(wrong)} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

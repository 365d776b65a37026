"""What a captured graph loses: decode steps replayed from graphs of fixed maxima, against graphs captured for
exactly the batch.

python -m benchmarks.captured [--out DIR] [--batches 200] [--smoke]: exit code 1 if a replay is wrong.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import torch

from attn_kernels import Config
from attn_kernels.capture import STREAM_K, choose_for_capture
from attn_kernels.choose import choose_for_device
from attn_kernels.compiling.processes import compile_in_parallel
from attn_kernels.config import complete
from attn_kernels.errors import brief
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.timing import time_together
from benchmarks import environment
from benchmarks.captured_batches import H100, SMOKE, Drawn, Server, draw
from benchmarks.captured_graphs import Buffers, Candidate, Step, captured_exactly, captured_for
from benchmarks.implementations import PEERS_FOLDER, load_peers, run_fa3
from benchmarks.jobs import own_job
from benchmarks.means import geomean

# Beside ours, to see whether another is better: programs, registers, stages, tile, warps.
OTHERS = (
    str(STREAM_K),
    "stream_k_M16_T64_W4_S3_P2",
    "stream_k_M16_T64_W4_S3_P6_R168",
    "stream_k_M16_T64_W4_S2_P4_R128",
    "stream_k_M16_T32_W4_S3_P4_R128",
    "stream_k_M16_T64_W8_S3_P2_R128",
)
STATIC = "static_grid_M16_T64_N8_W4_S3_P4"
OURS, EXACT, SAME = "for_capture", "exact", "the same, exact"
EVERYTHING = Limits(cache_elements=1 << 29, scores=1 << 40)


def candidates(others: bool, peers: Path, smoke: bool) -> tuple[list[Candidate], list[str]]:
    """Who is captured at the maxima; the first is ours. And a line for each who cannot."""
    if smoke:
        small = Config("stream_k", 16, 16, programs_per_sm=2)
        found = [Candidate(OURS, for_capture=True), Candidate("stream_k", small)]
        return [*found, Candidate("static_grid", Config("static_grid", 16, 16, num_segments=3))], []
    found = [Candidate(OURS, for_capture=True)]
    if others:
        found += [Candidate(text.removeprefix("stream_k_"), Config.parse(text)) for text in OTHERS]
    found += [Candidate("chosen for maxima"), Candidate("static_grid", Config.parse(STATIC))]
    loaded, problems = load_peers(peers, ("fa3",))
    return [*found, *(Candidate(peer.name, peer=run_fa3) for peer in loaded)], problems


def compile_all(
    entries: list[Candidate], drawn: list[Drawn], device: torch.device, workers: int | None
) -> str:
    choose = choose_for_device(device)
    jobs = [own_job(drawn[0].batch, complete(entry.config)) for entry in entries if entry.config is not None]
    for one in drawn:
        most = dataclasses.replace(
            one.batch,
            query_lens=(1,) * one.maxima.num_seqs,
            context_lens=(one.maxima.max_context,) * one.maxima.num_seqs,
        )
        jobs += [own_job(batch, complete(choose(**batch.features))) for batch in (one.batch, most)]
        jobs.append(own_job(most, complete(choose_for_capture(device)(**most.features))))
    return str(compile_in_parallel(jobs, device, workers))


class Trial:
    """Graphs at the maxima, replayed and timed for one batch after another."""

    def __init__(self, buffers: Buffers, entries: list[Candidate], repeats: int) -> None:
        self.buffers, self.entries, self.repeats = buffers, entries, repeats
        self.graphs = {
            (entry.name, maxima): captured_for(buffers, entry, maxima)
            for maxima in buffers.server.graphs
            for entry in entries
        }
        self.wrong: list[str] = []

    def hold(self, drawn: Drawn, seed: int) -> dict[str, object]:
        batch = drawn.batch
        self.buffers.fill(batch, seed)
        tensors = self.buffers.tensors(batch)
        steps: dict[str, Step] = {entry.name: self.graphs[entry.name, drawn.maxima] for entry in self.entries}
        steps[EXACT] = captured_exactly(self.buffers, Candidate(EXACT), batch)
        ours = steps[self.entries[0].name].config
        steps[SAME] = captured_exactly(self.buffers, Candidate(SAME, ours), batch)
        expected = expect(tensors, EVERYTHING)
        for name, step in steps.items():
            tensors.sets[0].out.fill_(math.nan)
            step.replay()
            found = check(tensors.sets[0].out, expected)
            if not found.ok:
                self.wrong.append(f"{name}, {batch.name}: {found}")
        times = time_together(dict(steps), self.repeats)
        return {
            "batch": batch.name,
            "captured": str(drawn.maxima),
            "size": drawn.maxima.num_seqs,
            "num_seqs": batch.num_seqs,
            "num_kv_tokens": batch.num_kv_tokens,
            "context": drawn.context_class,
            "rows": len(expected.rows),
            "config": str(ours),
            "exact_config": str(steps[EXACT].config),
            "us": {name: timing.median_us for name, timing in times.items()},
        }


def spread(ratios: Iterable[float]) -> str:
    """``1.03 1.10 1.30``: geometric mean, 95th percentile and worst."""
    ordered = sorted(ratios)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    return f"{geomean(ordered):5.3f} {high:5.2f} {ordered[-1]:5.2f}"


def report(rows: list[dict[str, object]]) -> list[str]:
    """Time over that of the exact graph of what is chosen for the batch."""

    def ratios(name: str, members: list[dict[str, object]]) -> list[float]:
        return [row["us"][name] / row["us"][EXACT] for row in members]  # type: ignore[index]

    names = [name for name in rows[0]["us"] if name != EXACT]  # type: ignore[attr-defined]
    lines = ["", "time / exactly captured: geomean, 95th percentile, worst"]
    lines += [f"{name:34} {spread(ratios(name, rows))}" for name in names]
    fit = [row["us"][names[0]] / row["us"][SAME] for row in rows]  # type: ignore[index]
    lines.append(f"{names[0] + ' / ' + SAME:34} {spread(fit)}")
    for key in ("size", "context"):
        groups = defaultdict(list)
        for row in rows:
            groups[row[key]].append(row)
        shown = [name for name in names if name != SAME]
        lines += ["", f"geomean by {key}: exact us | " + ", ".join(shown)]
        for group, members in groups.items():
            us = geomean(row["us"][EXACT] for row in members)  # type: ignore[index]
            cells = " ".join(f"{geomean(ratios(name, members)):6.3f}" for name in shown)
            lines.append(f"{group!s:>6} ({len(members):3}) {us:7.1f} | {cells}")
    for title, key in ((names[0], "config"), (EXACT, "exact_config")):
        configs = Counter(row[key] for row in rows)
        lines += ["", f"{title}: " + ", ".join(f"{name} {count}" for name, count in configs.most_common())]
    return lines


def main() -> int:
    """Returns 0, or 1 where a replay is wrong."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="benchmarks.captured", description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=6, help="replays that time a graph")
    parser.add_argument("--others", action="store_true", help="also other configs of stream_k")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny, in Triton's interpreter: tests the script"
    )
    parser.add_argument("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    parser.add_argument("--out", type=Path, help="folder for captured.json")
    environment.add_device_options(parser)
    args = parser.parse_args()
    device = environment.device_from("cpu" if args.smoke else args.device)
    server: Server = SMOKE if args.smoke else H100
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    drawn = draw(server, 4 if args.smoke else args.batches, args.seed)
    entries, problems = candidates(args.others, args.peers, args.smoke)
    print("\n".join(problems), end="\n" if problems else "")
    if not args.smoke:
        print(compile_all(entries, drawn, device, args.compile_workers), flush=True)
    dtype = torch.float16 if args.smoke else torch.bfloat16
    buffers = Buffers(server, device, dtype)
    drawn = [dataclasses.replace(one, batch=one.batch.at(dtype=dtype)) for one in drawn]
    trial = Trial(buffers, entries, args.repeats)
    print(f"{len(trial.graphs)} graphs captured after {time.monotonic() - started:.0f} s", flush=True)
    rows = []
    for index, one in enumerate(drawn):
        if args.seconds_budget and time.monotonic() - started > args.seconds_budget:
            print(f"no time left for {len(drawn) - index} batches")
            break
        try:
            rows.append(trial.hold(one, index))
        except Exception as error:
            trial.wrong.append(f"{one.batch.name}: {brief(error)}")
            if device.type == "cuda":
                torch.cuda.synchronize()  # raises again if the device itself is lost
    lines = report(rows) if rows else []
    if args.out:
        text = json.dumps({"environment": facts, "batches": rows}, indent=1)
        environment.write_atomically(args.out / "captured.json", text)
    print("\n".join([*lines, *(f"WRONG {line}" for line in trial.wrong[:20])]))
    print(
        f"{len(rows)} batches, {sum(row['rows'] for row in rows)} rows against float64, "  # type: ignore[misc]
        f"{len(trial.wrong)} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if trial.wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

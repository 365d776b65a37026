"""Time our kernels beside FlashAttention-3, vLLM's Triton kernel and PyTorch's SDPA; check them all.

python -m benchmarks.attention.compare [--sweep] [--batches core] [--out FOLDER]

README.md says how it measures.
"""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief
from attn_kernels.kernels.config_check import check_config
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.measure.tensors import multiprocessors
from attn_kernels.warmup.jobs import Job
from attn_kernels.warmup.processes import compile_in_parallel
from benchmarks.attention import plots
from benchmarks.attention.batch_sets import BATCH_SETS, select
from benchmarks.attention.compare_batch import Contest
from benchmarks.common import configs, environment, means, report, table
from benchmarks.common.ceilings import measure_ceilings
from benchmarks.common.implementations import PEERS_FOLDER, Implementation, Ours, Sdpa, load_peers
from benchmarks.common.jobs import PeerJob, own_job
from benchmarks.common.report import Result
from benchmarks.common.space import SPACES, Candidates, candidates


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.attention.compare", description=__doc__)
    add = parser.add_argument
    add("--batches", choices=list(BATCH_SETS), help="named set (default: core; tiny on cpu)")
    add("--only", default="", help="keep batches whose text contains this, e.g. 'decode 64x8K heads 32/8'")
    add("--layouts", default="", help="replace the set's head layouts: 32/8,28/4/128,...")
    add("--page-size", type=int, help="tokens that a KV page holds (default 16)")
    add("--dtype", choices=("bfloat16", "float16"), help="element type (default bfloat16; float16 on cpu)")
    add("--repeats", type=int, help="graph replays that time an implementation (default 16; 2 on cpu)")
    add("--sweep", action="store_true", help="also every variant at its best config, and `best` of them all")
    add("--variants", default="", help="sweep only these: qblock,segmented")
    add("--config", action="append", default=[], help="also try this config: segmented_M16_T64_N16_W4_S3")
    add("--skip", default="", help="leave out: fa3,vllm,sdpa")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py (default .peers)")
    add("--out", type=Path, help="folder for compare.json, compare.csv and plots")
    add("--compile-only", action="store_true", help="compile what the run would need, and stop")
    environment.add_device_options(parser)
    return parser.parse_args()


def gather(args: argparse.Namespace, device: torch.device) -> tuple[list[Implementation], list[str]]:
    """Ours first, then whoever else can run; and a line for each that cannot."""
    runnable = ("fa3", "vllm_triton") if device.type == "cuda" else ("vllm_triton",)
    peers, problems = load_peers(args.peers, runnable)
    skipped = [name for name in args.skip.split(",") if name]
    for name in skipped:
        if name not in report.RIVALS:
            environment.stop(f"--skip {name}: the rivals are {', '.join(report.RIVALS)}")
    return [Ours(), *(peer for peer in (*peers, Sdpa()) if peer.name not in skipped)], problems


@dataclass(frozen=True)
class Sweep:
    """Which configs a run tries: the space of these variants, and configs that the user adds."""

    variants: tuple[str, ...]
    extra: tuple[Config, ...]
    device: torch.device

    @property
    def names(self) -> tuple[str, ...]:
        """Variants that have any config to try."""
        also = {config.variant for config in self.extra}
        return tuple(name for name in SPACES if name in self.variants or name in also)

    def space(self, batch: Batch) -> dict[str, Candidates]:
        """The user's configs first, then what the heuristic chose, then the space."""
        proposed = candidates(batch, multiprocessors(self.device)) if self.variants else {}
        chosen = configs.chosen(batch, self.device)
        found = {}
        for name in self.names:
            own = proposed[name] if name in self.variants else Candidates()
            more = [config for config in (*self.extra, chosen) if config.variant == name]
            every = tuple(dict.fromkeys((*more, *own.configs)))
            found[name] = Candidates(every, "" if every else own.skipped)
        return found


def sweep_from(args: argparse.Namespace, device: torch.device) -> Sweep:
    """Raises ValueError on an unknown variant or a config that cannot be."""
    named = tuple(name for name in args.variants.split(",") if name)
    for name in named:
        if name not in SPACES:
            raise ValueError(f"variant {name!r}: expected some of {', '.join(SPACES)}")
    extra = tuple(Config.parse(text) for text in args.config)
    for config in extra:
        check_config(config)
    return Sweep(named or (tuple(SPACES) if args.sweep else ()), extra, device)


def compile_jobs(batches: Sequence[Batch], sweep: Sweep, vllm: Path | None) -> list[Job]:
    jobs: list[Job] = []
    for batch in batches:
        jobs.append(own_job(batch, configs.chosen(batch, sweep.device)))
        jobs += [own_job(batch, config) for tried in sweep.space(batch).values() for config in tried.configs]
        jobs += [PeerJob(batch, vllm)] if vllm else []
    return jobs


@dataclass(frozen=True)
class Run:
    """Holds the contests and keeps the table and the files up to date after each."""

    contest: Contest
    sweep: Sweep
    rivals: list[str]
    head: dict[str, object]
    out: Path | None
    deadline: float

    def go(self, batches: Sequence[Batch]) -> tuple[list[dict[str, Result]], list[Batch], list[Batch]]:
        """Results of each batch, the batches that broke off, and those for which no time was left."""
        print(table.header(self.rivals, bool(self.sweep.names)), flush=True)
        done: list[dict[str, Result]] = []
        broken: list[Batch] = []
        slowest = 0.0
        for index, batch in enumerate(batches):
            before = time.monotonic()
            if before + slowest > self.deadline:
                return done, broken, list(batches[index:])
            if not self.one(batch, done):
                broken.append(batch)
            slowest = max(slowest, time.monotonic() - before)
        return done, broken, []

    def one(self, batch: Batch, done: list[dict[str, Result]]) -> bool:
        """Hold one contest, print its line and write the files; False if it broke off (no memory, say)."""
        on_gpu = self.contest.device.type == "cuda"
        try:
            done.append(self.contest.hold(batch, self.sweep.space(batch)))
        except Exception as error:
            print(f"{batch}: BROKE OFF: {brief(error)}", flush=True)
            if on_gpu:
                torch.cuda.synchronize()  # raises again if the device itself is lost, which ends the run
            return False
        finally:
            if on_gpu:
                torch.cuda.empty_cache()
        print(table.line(done[-1], self.rivals, bool(self.sweep.names)), flush=True)
        if self.out:
            report.write(self.out, self.head, done)
        return True


def plot(out: Path) -> str:
    """Draw what was written; says what is there now."""
    source = out / "compare.json"
    try:
        return f"wrote {source} {' '.join(map(str, plots.draw(source)))}"
    except ImportError:
        return f"wrote {source}; no matplotlib, no plots; later: python -m benchmarks.attention.plots"


def main() -> int:
    """Returns 0, or 1 when our kernel failed or was wrong on some batch; 2 is wrong use."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    dtype = args.dtype or (None if on_gpu else "float16")  # vLLM's kernel multiplies bf16 wrongly there
    name = args.batches or ("core" if on_gpu else "tiny")
    try:
        layouts = tuple(HeadLayout.parse(text) for text in args.layouts.split(",") if text)
        sweep = sweep_from(args, device)
        batches = select(name, only=args.only, heads=layouts, block_size=args.page_size, dtype=dtype)
    except ValueError as error:
        environment.stop(str(error))
    if not batches:
        environment.stop(f"--only {args.only!r}: no batch of {name} has this in its text")
    implementations, problems = gather(args, device)

    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    print("\n".join(problems), end="\n" if problems else "")
    rivals = [rival for rival in report.RIVALS if any(rival == entry.name for entry in implementations)]
    jobs = compile_jobs(batches, sweep, args.peers if "vllm" in rivals else None)
    print(compile_in_parallel(jobs, device, args.compile_workers), flush=True)
    if args.compile_only:
        return 0
    ceilings = measure_ceilings(device)
    tera = ceilings.flops_per_s / 1e12
    print(f"ceilings: copy {ceilings.bytes_per_s / 1e9:.0f} GB/s, bf16 matmul {tera:.0f} TFLOP/s")
    if not on_gpu:
        print("on a CPU the times mean nothing: this run only tests the plumbing")
    if sweep.names:
        print(f"sweeping {', '.join(sweep.names)}: each at its best config; best: the fastest of all ours")
    print("times in us a launch; rate and roof are those of best; R/b, R/o: rival's time over best, ours")

    run = Run(
        Contest(device, implementations, ceilings, args.repeats or (16 if on_gpu else 2)),
        sweep,
        rivals,
        {"environment": facts, "ceilings": dataclasses.asdict(ceilings), "batches": name},
        args.out,
        started + (args.seconds_budget or float("inf")),
    )
    done, broken, left_out = run.go(batches)
    print("\n".join([*means.tables(done, rivals, sweep.names), *table.skipped(done)]))
    if left_out:
        names = "; ".join(f"{batch.name} {batch.layout}" for batch in left_out)
        print(f"no time left within {args.seconds_budget:.0f} s for: {names}")
    if args.out and done:
        print(plot(args.out))
    bad = [results for results in done if report.ours_failed(results)]
    verdict = f"ours wrong or failed on {len(bad)}" + (f", {len(broken)} broke off" if broken else "")
    print(f"{len(done)} batches in {time.monotonic() - started:.0f} s; {verdict}")
    return 1 if bad or broken or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())

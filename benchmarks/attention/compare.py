"""Check and time our kernels beside those of FlashAttention, vLLM, FlashInfer and PyTorch.

python -m benchmarks.attention.compare [--sweep] [--batches core] [--out FOLDER]

benchmarks/README.md describes the measurements.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels import Config
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.measure.tensors import multiprocessors
from benchmarks.attention import plots, tables
from benchmarks.attention.batch_sets import BATCH_SETS, select
from benchmarks.attention.ceilings import measure_ceilings
from benchmarks.attention.compare_batch import ComparisonSettings, compare_batch
from benchmarks.attention.records import FASTEST_RIVAL, RIVALS, Records, ours_failed, write_records
from benchmarks.attention.vllm_job import TRITON_PEERS, vllm_jobs
from benchmarks.common import configs, environment
from benchmarks.common.implementations import PEERS, PEERS_FOLDER, Implementation, Ours, Sdpa, load_peers
from benchmarks.common.more_rivals import MORE_PEERS_FOLDER, MORE_RIVALS, load_more_peers
from benchmarks.common.space import SPACES, Candidates, candidates
from triton_tune.processes.compile_ahead import Job, compile_in_parallel
from verification.compile_jobs import plain_job


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.attention.compare", description=__doc__)
    add = parser.add_argument
    add("--batches", choices=list(BATCH_SETS), help="named set (default: core; tiny on cpu)")
    add("--only", default="", help="keep batches whose text contains this, e.g. 'decode 64x8K heads 32/8'")
    add("--layouts", default="", help="replace the set's head layouts: 32/8,28/4/128,...")
    add("--page-size", type=int, help="tokens that a KV page holds (default 16)")
    add("--dtype", choices=("bfloat16", "float16"), help="element type (default bfloat16; float16 on cpu)")
    add("--repeats", type=int, help="graph replays that time an implementation (default 16; 2 on cpu)")
    add("--sweep", action="store_true", help="also time every variant at its best config")
    add("--variants", default="", help="sweep only these: qblock,segmented")
    add("--config", action="append", default=[], help="also try this config: segmented_M16_T64_N16_W4_S3")
    add("--skip", default="", help=f"leave out some of {','.join(RIVALS)}")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py (default .peers)")
    more = "folder that holds more_peers.py (default .more_peers)"
    add("--more-peers", type=Path, default=MORE_PEERS_FOLDER, help=more)
    add("--out", type=Path, help="folder for compare.json, compare.csv and plots")
    add("--compile-only", action="store_true", help="compile what the run would launch, and stop")
    environment.add_device_options(parser)
    return parser.parse_args()


def load_implementations(
    args: argparse.Namespace, device: torch.device
) -> tuple[list[Implementation], list[str]]:
    """Return ours first, then each rival that loads; and a line for each rival that does not."""
    peers, problems = load_peers(args.peers, tuple(PEERS) if device.type == "cuda" else TRITON_PEERS)
    skipped = [name for name in args.skip.split(",") if name]
    for name in skipped:
        if name not in RIVALS:
            environment.stop(f"--skip {name}: the rivals are {', '.join(RIVALS)}")
    implementations = [Ours(), *(peer for peer in (*peers, Sdpa()) if peer.name not in skipped)]
    if device.type == "cuda":
        more, more_problems = load_more_peers(args.more_peers, skipped)
        implementations += more
        problems += more_problems
    return implementations, problems


@dataclass(frozen=True)
class VariantSweep:
    """The configs that a run tries: the spaces of some variants, and configs that the user names."""

    variants: tuple[str, ...]
    extra: tuple[Config, ...]
    device: torch.device

    @classmethod
    def parse(cls, args: argparse.Namespace, device: torch.device) -> "VariantSweep":
        """Raise ValueError on an unknown variant or a config that cannot be launched."""
        named = tuple(name for name in args.variants.split(",") if name)
        for name in named:
            if name not in SPACES:
                raise ValueError(f"variant {name!r}: expected some of {', '.join(SPACES)}")
        extra = configs.parse_configs(args.config)
        return cls(named or (tuple(SPACES) if args.sweep else ()), extra, device)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the variants of which a config is tried."""
        also = {config.variant for config in self.extra}
        return tuple(name for name in SPACES if name in self.variants or name in also)

    def space(self, batch: Batch) -> dict[str, Candidates]:
        """Return each variant's configs: first the user's, then the chosen one, then the variant's space."""
        proposed = candidates(batch, multiprocessors(self.device)) if self.variants else {}
        preferred = (*self.extra, configs.chosen(batch, self.device))
        candidates_by_variant = {}
        for name in self.names:
            space = proposed[name] if name in self.variants else Candidates()
            first = [config for config in preferred if config.variant == name]
            every = tuple(dict.fromkeys((*first, *space.configs)))
            candidates_by_variant[name] = Candidates(every, "" if every else space.skipped)
        return candidates_by_variant


def compile_jobs(
    batches: Sequence[Batch], sweep: VariantSweep, triton_peers: Sequence[tuple[Path, str]] = ()
) -> list[Job]:
    """Return the launches that compile every kernel of a run; each peer is a folder and a function there."""
    jobs: list[Job] = []
    for batch in batches:
        tried = [config for space in sweep.space(batch).values() for config in space.configs]
        jobs += [plain_job(batch, config) for config in (configs.chosen(batch, sweep.device), *tried)]
    return [*jobs, *(job for peer in triton_peers for job in vllm_jobs(batches, *peer))]


def compare_batches(
    batches: Sequence[Batch],
    sweep: VariantSweep,
    settings: ComparisonSettings,
    deadline: float,
    report: Callable[[list[Records]], None],
) -> tuple[list[Records], int, list[Batch]]:
    """Compare batches until the deadline and call `report` with all records after each.

    Return the records, the number of batches that raised (no memory, say), and the batches left out.
    """
    done: list[Records] = []
    broken = 0
    for batch in environment.within_deadline(batches, deadline):
        try:
            records = compare_batch(batch, sweep.space(batch), settings)
        except Exception as error:
            print(f"{batch}: BROKE OFF: {brief(error)}", flush=True)
            environment.raise_if_lost(settings.device)
            broken += 1
        else:
            done.append(records)
            report(done)
        if settings.device.type == "cuda":
            torch.cuda.empty_cache()
    return done, broken, list(batches[len(done) + broken :])


def plot(out: Path) -> str:
    """Draw the plots of compare.json; return a line that names the files."""
    source = out / "compare.json"
    try:
        return f"wrote {source} {' '.join(map(str, plots.draw(source)))}"
    except ImportError:
        return f"wrote {source}; no plots without matplotlib; later: python -m benchmarks.attention.plots"


def main() -> int:
    """Return 0, or 1 if a kernel of ours failed or was wrong on some batch; wrong use exits with 2."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    dtype = args.dtype or (None if on_gpu else "float16")  # vLLM's kernel multiplies bf16 wrongly on a CPU
    name = args.batches or ("core" if on_gpu else "tiny")
    try:
        layouts = tuple(HeadLayout.parse(text) for text in args.layouts.split(",") if text)
        sweep = VariantSweep.parse(args, device)
        batches = select(name, only=args.only, heads=layouts, block_size=args.page_size, dtype=dtype)
    except ValueError as error:
        environment.stop(str(error))
    if not batches:
        environment.stop(f"--only {args.only!r}: no batch of {name} has this in its text")
    implementations, problems = load_implementations(args, device)

    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    print("\n".join(problems), end="\n" if problems else "")
    rivals = [rival for rival in RIVALS if any(rival == entry.name for entry in implementations)]
    triton_peers = [
        name for rival, name in zip(("vllm", "vllm33"), TRITON_PEERS, strict=True) if rival in rivals
    ]
    jobs = compile_jobs(batches, sweep, [(args.peers, name) for name in triton_peers])
    print(compile_in_parallel(jobs, device, args.compile_workers), flush=True)
    if args.compile_only:
        return 0
    ceilings = measure_ceilings(device)
    tera = ceilings.flops_per_s / 1e12
    print(f"ceilings: copy {ceilings.bytes_per_s / 1e9:.0f} GB/s, bf16 matmul {tera:.0f} TFLOP/s")
    if not on_gpu:
        print("times on a CPU mean nothing: this run only tests the command")
    if sweep.names:
        print(f"sweeping {', '.join(sweep.names)}: each at its best config; best: the fastest of all ours")
    shown = [name for name in rivals if name not in MORE_RIVALS]
    shown += [FASTEST_RIVAL] if len(shown) < len(rivals) else []
    rivals += [FASTEST_RIVAL] if rivals else []
    print("times in us a launch; rate and roof are those of best; R/b, R/o: rival's time over best, ours")
    print(tables.header(shown, bool(sweep.names)), flush=True)
    head = {"environment": facts, "ceilings": dataclasses.asdict(ceilings), "batches": name}

    def report(done: list[Records]) -> None:
        print(tables.batch_line(done[-1], shown, bool(sweep.names)), flush=True)
        if args.out:
            write_records(args.out, head, done)

    settings = ComparisonSettings(device, implementations, ceilings, args.repeats or (16 if on_gpu else 2))
    deadline = started + (args.seconds_budget or float("inf"))
    done, broken, left_out = compare_batches(batches, sweep, settings, deadline, report)
    print("\n".join([*tables.mean_tables(done, rivals, sweep.names), *tables.skipped_variants(done)]))
    if left_out:
        names = "; ".join(f"{batch.name} {batch.layout}" for batch in left_out)
        print(f"no time left within {args.seconds_budget:.0f} s for: {names}")
    if args.out and done:
        print(plot(args.out))
    bad = sum(ours_failed(records) for records in done)
    verdict = f"ours wrong or failed on {bad}" + (f", {broken} broke off" if broken else "")
    print(f"{len(done)} batches in {time.monotonic() - started:.0f} s; {verdict}")
    return 1 if bad or broken or not done else 0


if __name__ == "__main__":
    raise SystemExit(main())

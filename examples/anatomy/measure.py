"""Time every step beside FlashAttention-3 and attn_kernels on one Hopper GPU, or draw what was timed.

python -m examples.anatomy.measure --out results/h100
python -m examples.anatomy.measure --draw results/h100 [results/h200 ...]

The batches have the heads of Llama-3.1-8B; every output is checked against float64. --draw needs no GPU: it
prints README.md's table and writes ladder.svg beside it.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch

from attn_kernels.measure.batches import chunked_prefill, decode, mixed, prefill
from attn_kernels.measure.tensors import BatchTensors, stand_in
from benchmarks.attention.compare import document, time_text
from benchmarks.attention.measure import Records, measure_batch, measure_ceilings
from benchmarks.attention.plot import KINDS, Ratios, draw, read_runs
from benchmarks.common import environment
from benchmarks.common import implementations as implemented
from examples.anatomy import STEPS
from examples.anatomy.common import Batch
from triton_tune.bench.timing import elapsed_us
from triton_tune.processes.compile_ahead import compile_in_parallel

K = 1024
BATCHES = [  # decode shares of 100, 0 and 50%
    *(decode(n, k) for n, k in ((64, 4 * K), (1, 32 * K), (16, 2 * K), (1, K), (4, 8 * K), (64, 128))),
    *(prefill(n, k) for n, k in ((1, 4 * K), (1, 512), (4, 2 * K), (16, 128))),
    chunked_prefill(1, 512, 32 * K).at(kind="prefill"),
    *(mixed(n, 0.5, k, chunk) for n, k, chunk in ((8, 8 * K, K), (2, 32 * K, 2 * K), (32, 4 * K, 512))),
    mixed(64, 0.5, 2 * K, 128),
]
KERNELS = {name: (name.removeprefix("step").replace("_", " "), f"C{i}") for i, name in enumerate(STEPS)}
KERNELS |= {"ours": ("attn_kernels", "#a6cee3"), "fa3": ("FlashAttention-3", "#bbbbbb")}
LONG_US, MOST_US = 5e3, 2e5  # of a launch: beyond, it is timed on one set of tensors, or not at all
SECONDS = 100
RESULTS, PICTURE = "anatomy.json", Path(__file__).with_name("ladder.svg")
# Of 19.7% and 105.9% of the state of the art's speed, in the abstract of arXiv 2511.11581.
PAPER = {"the paper's first kernel, its own figure": 1 / 0.197, "the paper's last, its own figure": 1 / 1.059}


@dataclass(frozen=True)
class Step:
    """A step as an implementation that benchmarks time, and as a job that compiles it for a kind of batch."""

    name: str
    kind: str = ""
    cost: int = 1 << 58

    def launches(self, tensors: BatchTensors) -> list[Callable[[], Any]]:
        attention = import_module(f"examples.anatomy.{self.name}").attention
        index = (tensors.block_table, tensors.seqused_k, tensors.cu_seqlens_q)
        index += (tensors.batch.query_lens, tensors.batch.context_lens)
        return [
            partial(attention, Batch(kv.q, kv.k_cache, kv.v_cache, kv.out, *index)) for kv in tensors.sets
        ]

    def prepare(self, tensors: BatchTensors) -> implemented.PreparedLaunches:
        launches = self.launches(tensors)
        launches[0]()
        torch.cuda.synchronize()
        took = elapsed_us(launches[0])
        if took > MOST_US:
            raise implemented.NotApplicable(f"one launch takes {took / 1e3:.0f} ms, so it is not repeated")
        launches = launches[:1] if took > LONG_US else launches
        return implemented.PreparedLaunches(launches, lambda number: tensors.sets[number].out)

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({self})

    def run(self, device: torch.device) -> None:
        for batch in (batch for batch in BATCHES if batch.kind == self.kind):
            self.launches(stand_in(batch, device))[0]()


def measure(out: Path, device: torch.device) -> int:
    """Return how many results were wrong, failed or found no time."""
    started = time.monotonic()
    facts = environment.describe(device)
    print(environment.headline(facts), flush=True)
    fa3 = implemented.load_peers(implemented.PEERS_FOLDER, "fa3")
    jobs = [Step(name, kind) for name in STEPS[1:] for kind in {batch.kind for batch in BATCHES}]
    ours, ceilings = implemented.Ours(in_parts=True), measure_ceilings(device)
    ahead = [implemented.CompileJob((batch,), ours) for batch in BATCHES]
    print(compile_in_parallel([*jobs, *ahead], device), flush=True)
    every = [ours, *fa3, *map(Step, STEPS)]
    done: list[Records] = []
    for batch in environment.within_deadline(BATCHES, started + SECONDS):
        done.append(measure_batch(batch, device, every, ceilings, repeats=8))
        times = (f"{name} {time_text(record)}" for name, record in done[-1].items())
        print(f"{batch.name}, us: {', '.join(times)}", flush=True)
        for name, record in done[-1].items():
            print(f"    {name}: {record.note}\n" if record.note else "", end="")
        environment.write_atomically(out / RESULTS, document({"environment": facts}, done))
        torch.cuda.empty_cache()
    wrong = sum(record.failed for records in done for record in records.values())
    print(
        f"{len(done)} of {len(BATCHES)} batches in {time.monotonic() - started:.0f} s; {wrong} results wrong"
    )
    return wrong + len(BATCHES) - len(done)


def table(gpu: str, found: Ratios) -> str:
    """Markdown: geometric means over the batches that all computed right."""
    kinds = [kind for kind in KINDS if (kind, "ours") in found]
    heads = [f"{KINDS[kind]} ({len(found[kind, 'ours'])})" for kind in kinds]
    lines = [f"| {gpu}: time / FlashAttention-3's | {' | '.join(heads)} | all, / attn_kernels' |"]
    lines.append("| --- |" + " ---: |" * (len(kinds) + 1))
    for rung, (label, _) in KERNELS.items():
        means = [geometric_mean(found[kind, rung]) for kind in kinds]
        means.append(geometric_mean(found["", rung]) / geometric_mean(found["", "ours"]))
        lines.append(f"| {label} | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 if a result was wrong or a batch found no time. Wrong use exits with 2."""
    parser = environment.parser_of(__doc__, "examples.anatomy.measure")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help=f"measure, and write {RESULTS} into this folder")
    what.add_argument("--draw", type=Path, nargs="+", help="folders that --out wrote")
    parser.add_argument(
        "--picture", type=Path, default=PICTURE, help="what --draw writes (default: ladder.svg)"
    )
    args = parser.parse_args(arguments)
    if args.out:
        return min(1, measure(args.out, environment.device_from("cuda")))
    runs = read_runs([folder / RESULTS for folder in args.draw], KERNELS)
    print("\n\n".join(table(*run) for run in runs))
    draw(runs, args.picture, KERNELS, PAPER)
    return 0


if __name__ == "__main__":
    from examples.anatomy import measure as itself

    raise SystemExit(itself.main())  # jobs are pickled by their module's name

"""CPU time of choosing, planning and launching, beside FlashAttention-3 and vLLM's Triton kernel.

python -m benchmarks.launch.launch_cost [--smoke]

A figure is the median over bursts of calls, in microseconds. Exits with 1 if a section broke off.
"""

import itertools
import random
import tempfile
import time
import timeit
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import attn_kernels
from attn_kernels import Config, Lengths, Parts, Workspace
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.recording import Recorder, recorder_of_process
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch, HeadLayout, decode, prefill
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for, stand_in
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, Implementation, load_peers
from benchmarks.launch.timing import cpu_us, launching

CONFIGS = {
    "qblock": Config("qblock", 16, 64),
    "prompts on Hopper": Config("qblock", 128, 64, num_warps=8, tma=1),
    "decodes on Hopper": Config("stream_k", 16, 64, tma=1),
}
SMALL = HeadLayout(4, 2, 16)
LENGTHS = ("num_query_tokens", "num_kv_tokens", "max_query_len", "max_seq_len")
Call = Callable[[], object]


class LaunchBench:
    """Configs, batches and timers that the sections share."""

    def __init__(self, device: torch.device, smoke: bool) -> None:
        self.device, self.smoke, bursts = device, smoke, 1 if smoke else 60
        self.configs = {"qblock": CONFIGS["qblock"]} if smoke else CONFIGS
        full = [decode(8, 2048), decode(64, 8192), prefill(1, 2048)]
        self.batches = [self.batch(batch) for batch in ([decode(1, 16), prefill(1, 16)] if smoke else full)]
        self.cpu_us = partial(cpu_us, device=device, bursts=bursts)
        self.first_us = partial(self.cpu_us, burst=1, lead=0)  # after the CPU waited for the GPU

    def batch(self, batch: Batch) -> Batch:
        """The batch, or a small layout of it for the interpreter."""
        return batch.at(SMALL, dtype=torch.float16) if self.smoke else batch

    def ns(self, call: Call) -> float:
        """Time a call that launches nothing, in nanoseconds."""
        number = 10 if self.smoke else 20_000
        return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e9

    def direct_and_public(self, call: Call) -> list[float]:
        """Microseconds of direct launches, of the first after a wait, and by Triton's dispatch."""
        with launching("direct"):
            microseconds = [self.cpu_us(call), self.first_us(call)]
        with launching("public"):
            return [*microseconds, self.cpu_us(call)]


def head(name: str, *columns: object) -> None:
    print(f"\n{name:28}" + "".join(f"{column:>10}" for column in columns), flush=True)


def row(name: str, *figures: float, note: str = "") -> None:
    print(f"{name:28}" + "".join(f"{us:10.1f}" for us in figures) + note, flush=True)


def choosing(bench: LaunchBench) -> None:
    """The choice of `plan`."""
    for batch in bench.batches:
        choices = choices_for(batch.model, bench.device)
        lengths = Lengths.of(batch.query_lens, batch.context_lens)
        config = choices.config(lengths)
        print(f"choose  {batch.name:14} {bench.ns(partial(choices.config, lengths)):5.0f} ns  {config}")


def planning(bench: LaunchBench) -> None:
    """`plan` without and with a workspace, over the batch size."""
    sizes = (1, 2) if bench.smoke else (1, 8, 64, 256)
    head("plan, us", *(f"batch {size}" for size in sizes))
    model, most = bench.batch(decode(1, 32)).model, max(sizes)
    workspace = Workspace.for_maxima(bench.device, model, max_query_tokens=most, max_num_seqs=most)
    rows: dict[str, Config | None] = {"chosen": None, **bench.configs}
    for name, config in rows.items():
        for room in (None, workspace) if name in ("chosen", "qblock") else (None,):
            microseconds = []
            for size in sizes:
                batch = bench.batch(decode(size, 32 if bench.smoke else 2048))
                tensors = stand_in(batch, bench.device)
                index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table, batch.model)
                options: dict[str, Any] = {name: batch.features[name] for name in LENGTHS}
                options |= {"config": config, "check": False, "workspace": room}
                microseconds.append(bench.cpu_us(partial(attn_kernels.plan, *index, **options)))
            row(name + (" + workspace" if room else ""), *microseconds)


def recording(bench: LaunchBench) -> None:
    """What `ATTN_KERNELS_RECORD` adds to a `plan`: unset; for known buckets; for new ones."""
    off, model, draw = bench.ns(recorder_of_process), bench.batch(decode(8, 32)).model, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "batches.jsonl")
        steps = itertools.cycle([Lengths(64, 64, 1, 8192, 64 * 4096 + i) for i in range(1000)])
        parts = Parts(Lengths(60, 60, 1, 8192, 10**5), Lengths(2, 2000, 1500, 3000, 5000))
        whole = Lengths(62, 2060, 1500, 8192, 105000)
        nothing = bench.ns(lambda: next(steps))
        seen = bench.ns(lambda: recorder.record(model, next(steps))) - nothing
        mixed = bench.ns(lambda: recorder.record(model, whole, parts))
        many = range(1000 if bench.smoke else 200_000)
        drawn = [Lengths(*(int(2 ** draw.uniform(0, 20)) for _ in range(5))) for _ in many]
        fresh = itertools.cycle(drawn)
        new = bench.ns(lambda: recorder.record(model, next(fresh))) - nothing
        recorder.write()
    print(
        f"record  {off:5.0f} ns if off, {seen:5.0f} ns per decode step, {mixed:5.0f} ns per step in parts, "
        f"{new:5.0f} ns if nearly every step is of a new bucket"
    )


def running(bench: LaunchBench) -> None:
    """`run` of every variant in decode, and of the chosen config for each batch."""
    head("run, us", "direct", "first", "public")
    tensors = {batch.name: materialise(batch, bench.device) for batch in bench.batches}
    first = next(iter(tensors.values()))
    cases: list[tuple[str, BatchTensors, Config | None]] = [(n, first, c) for n, c in bench.configs.items()]
    cases += [(f"chosen {name}", of_batch, None) for name, of_batch in tensors.items()]
    for name, of_batch, config in cases:
        plan = plan_for(of_batch, config)
        (launch,) = launches_of(plan, of_batch)
        microseconds = bench.direct_and_public(launch)
        is_direct = plan.launches or bench.smoke
        row(name, *microseconds, note=f"  {plan.config}" + ("" if is_direct else "  NOT LAUNCHED DIRECTLY"))


def one_call(bench: LaunchBench) -> None:
    """`flash_attn_varlen_func`, beside `plan` and `run` apart."""
    head("one call, us", "direct", "first", "public", "plan+run")
    for batch in bench.batches:
        tensors = materialise(batch, bench.device)
        (kv,) = tensors.sets
        call = partial(
            attn_kernels.flash_attn_varlen_func,
            kv.q,
            kv.k_cache,
            kv.v_cache,
            batch.max_query_len,
            tensors.cu_seqlens_q,
            batch.max_seq_len,
            seqused_k=tensors.seqused_k,
            block_table=tensors.block_table,
            softmax_scale=tensors.softmax_scale,
            out=kv.out,
        )
        microseconds = bench.direct_and_public(call)
        with launching("direct"):
            microseconds.append(bench.cpu_us(partial(plan_and_run, tensors)))
        row(f"varlen {batch.name}", *microseconds)


def plan_and_run(tensors: BatchTensors) -> None:
    (launch,) = launches_of(plan_for(tensors), tensors)
    launch()


def other_implementations(bench: LaunchBench, peers: list[Implementation]) -> None:
    head("others' calls, us", "steady", "first")
    for peer, batch in itertools.product(peers, bench.batches):
        (launch,) = peer.prepare(materialise(batch, bench.device)).launches
        row(f"{peer.name} {batch.name}", bench.cpu_us(launch), bench.first_us(launch))


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 where a section broke off."""
    started = time.monotonic()
    parser = environment.parser_of(__doc__, "benchmarks.launch.launch_cost")
    add = parser.add_argument
    add("--smoke", action="store_true", help="tiny, in Triton's interpreter: tests the command")
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    add("--device", default="cuda", help="cuda or cuda:N")
    args = parser.parse_args(arguments)
    bench = LaunchBench(environment.device_from("cpu" if args.smoke else args.device), args.smoke)
    print(environment.headline(environment.describe(bench.device)), flush=True)
    peers, problems = load_peers(args.peers, ("fa3", "vllm_triton")) if not args.smoke else ([], [])
    print("\n".join(problems), end="\n" if problems else "")
    fine = True
    others = partial(other_implementations, peers=peers)
    for section in (choosing, planning, recording, running, one_call, others):
        try:
            section(bench)
        except Exception as error:
            traceback.print_exc()
            print(f"BROKE OFF: {brief(error)}")
            fine = False
    print(f"{time.monotonic() - started:.0f} s; {'all fine' if fine else 'SOMETHING IS WRONG'}")
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""CPU time of choosing, planning and launching, beside FlashAttention-3 and vLLM's Triton kernel.

python -m benchmarks.launch.launch_cost [--stress 10] [--smoke]

It also checks that direct launches give the same bits as Triton's dispatch. The check changes the tensors
between launches, and launches from many threads at once. It also times a decode step of 32 layers, launch by
launch and as a CUDA graph. Exits with 1 if any bit differs.
"""

import argparse
import itertools
import multiprocessing
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

import attn_kernels
from attn_kernels import Config, Lengths, Parts, Workspace
from attn_kernels.choose.recording import Recorder, recorder_of_process
from attn_kernels.core.config import complete
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import decode
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for, stand_in
from attn_kernels.measure.timing import Launch, capture
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, Implementation, load_peers
from benchmarks.launch.bench import LaunchBench
from benchmarks.launch.equal import CHANGES, FEW, cases, compare, stress, warm_up
from benchmarks.launch.parts import breakdown
from benchmarks.launch.timing import launching, wall_us
from generated import unified_attention
from triton_tune.core.device import describe_device

KEEP_PARTIALS = ("segmented", "static_grid", "static_grid N4")
THOROUGH = ("qblock", "qblock hopper", "segmented")  # tried with every change


LENGTHS = ("num_query_tokens", "num_kv_tokens", "max_query_len", "max_seq_len")


def choosing(bench: LaunchBench) -> None:
    """Time the choice of `plan`, beside a function of the same arguments that does nothing."""
    choose = unified_attention.for_device(*describe_device(bench.device))
    for name, batch in bench.named.items():
        features = batch.features
        took, passing = bench.call_ns(choose, features), bench.call_ns(nothing_of(features), features)
        config = complete(choose(**features))
        bench.say(f"choose  {name:14} {took:5.0f} ns, an empty function {passing:5.0f} ns  {config}")


def nothing_of(features: Iterable[str]) -> Callable[..., None]:
    """Return a function of these keyword arguments that does nothing."""
    nothing: Callable[..., None] = eval(f"lambda *, {', '.join(features)}: None")
    return nothing


def planning(bench: LaunchBench) -> None:
    """Time `plan` without and with a workspace, over the batch size."""
    sizes = (1, 2) if bench.smoke else (1, 8, 64, 256)
    bench.head("plan, us", *(f"batch {size}" for size in sizes))
    rows: dict[str, Config | None] = {"chosen": None, **bench.configs}
    largest = bench.batch(decode(max(sizes), 32))
    workspace = Workspace.for_maxima(
        bench.device,
        largest.model,
        max_query_tokens=max(sizes),
        max_num_seqs=max(sizes),
        max_segments=32,
    )
    for name, config in rows.items():
        for room in (None, workspace) if config is None or name in KEEP_PARTIALS else (None,):
            microseconds = []
            for size in sizes:
                batch = bench.batch(decode(size, 32 if bench.smoke else 2048))
                tensors = stand_in(batch, bench.device)
                index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table, batch.model)
                options: dict[str, Any] = {name: batch.features[name] for name in LENGTHS}
                options |= {"config": config, "check": False, "workspace": room}
                microseconds.append(bench.cpu_us(partial(attn_kernels.plan, *index, **options)))
            bench.row(name + (" + workspace" if room else ""), *microseconds)


def recording(bench: LaunchBench) -> None:
    """Time what `ATTN_KERNELS_RECORD` adds to a `plan`: unset; for known buckets; for new ones."""
    off = bench.ns(recorder_of_process)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "batches.jsonl")
        model = bench.batch(decode(8, 32)).model
        decodes = [Lengths(64, 64, 1, 8192, 64 * 4096 + i) for i in range(1000)]
        parts = Parts(Lengths(60, 60, 1, 8192, 10**5), Lengths(2, 2000, 1500, 3000, 5000))
        whole = Lengths(62, 2060, 1500, 8192, 105000)
        steps = itertools.cycle(decodes)
        nothing = bench.ns(lambda: next(steps))
        known = bench.ns(lambda: recorder.record(model, next(steps))) - nothing
        mixed = bench.ns(lambda: recorder.record(model, whole, parts))
        drawn = random.Random(0)
        fresh = itertools.cycle(
            [Lengths(*(int(2 ** drawn.uniform(0, 20)) for _ in range(5))) for _ in range(200_000)]
        )
        new = bench.ns(lambda: recorder.record(model, next(fresh))) - nothing
        recorder.write()
    bench.say(
        f"record  {off:5.0f} ns if off, {known:5.0f} ns a decode step, {mixed:5.0f} ns a step in parts, "
        f"{new:5.0f} ns if nearly every step is of a new bucket"
    )


def runs(bench: LaunchBench) -> Iterator[tuple[str, BatchTensors, Config | None]]:
    """Yield the cases of `run`: every variant in decode, and the chosen config for each batch."""
    first, *others = bench.named.values()
    tensors = materialise(first, bench.device)
    for name, config in bench.configs.items():
        yield name, tensors, config
    yield f"chosen {first.name}", tensors, None
    for batch in others:
        yield f"chosen {batch.name}", materialise(batch, bench.device), None


def running(bench: LaunchBench) -> None:
    """Time `run`. A chosen config is timed again as a given one; only noise may lie between."""
    bench.head("run, us", "direct", "first", "public", "given")
    for name, tensors, config in runs(bench):
        with launching("direct"):
            plan = plan_for(tensors, config)
            (launch,) = launches_of(plan, tensors)
            microseconds = [bench.cpu_us(launch), bench.first_us(launch)]
            note = f"  {plan.config}" + ("" if plan.launches or bench.smoke else "  NOT LAUNCHED DIRECTLY")
        with launching("public"):
            microseconds.append(bench.cpu_us(launch))
        if config is None:
            with launching("direct"):
                microseconds.append(bench.cpu_us(launches_of(plan_for(tensors, plan.config), tensors)[0]))
        bench.row(name, *microseconds, note=note)


def one_call(bench: LaunchBench) -> None:
    """Time `flash_attn_varlen_func`, beside `plan` and `run` apart."""
    bench.head("one call, us", "direct", "first", "public", "plan+run")
    for batch in bench.named.values():
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
        with launching("direct"):
            microseconds = [bench.cpu_us(call), bench.first_us(call)]
        with launching("public"):
            microseconds.append(bench.cpu_us(call))
        with launching("direct"):
            microseconds.append(bench.cpu_us(partial(plan_and_run, tensors)))
        bench.row(f"varlen {batch.name}", *microseconds)


def plan_and_run(tensors: BatchTensors) -> None:
    (launch,) = launches_of(plan_for(tensors), tensors)
    launch()


def peers_of(folder: Path, bench: LaunchBench) -> list[Implementation]:
    """Load the peers; print a line for each that cannot be loaded."""
    peers, problems = load_peers(folder, ("fa3", "vllm_triton")) if not bench.smoke else ([], [])
    for problem in problems:
        bench.say(problem)
    return peers


def other_implementations(bench: LaunchBench, peers: list[Implementation]) -> None:
    bench.head("others' calls, us", "steady", "first")
    for peer in peers:
        for batch in bench.named.values():
            try:
                (launch,) = peer.prepare(materialise(batch, bench.device)).launches
                bench.row(f"{peer.name} {batch.name}", bench.cpu_us(launch), bench.first_us(launch))
            except Exception as error:
                bench.say(f"{peer.name} {batch.name}: {brief(error)}")


def step(bench: LaunchBench, peers: list[Implementation], layers: int) -> None:
    """Time a decode step of all layers: eager, the CPU's share of that, and as a graph."""
    batch = next(iter(bench.named.values()))
    tensors = materialise(batch, bench.device, num_sets=layers)
    bench.head(f"{layers} layers, {batch.name}, us", "eager", "of CPU", "graph")

    def ours() -> None:
        for launch in launches_of(plan_for(tensors), tensors):
            launch()

    for way in ("direct", "public"):
        with launching(way):
            one_step(bench, f"ours, {way}", ours)
    for peer in peers:
        try:
            one_step(bench, peer.name, partial(call_all, peer.prepare(tensors).launches))
        except Exception as error:
            bench.say(f"{peer.name}: {brief(error)}")


def call_all(launches: list[Launch]) -> None:
    for launch in launches:
        launch()


def one_step(bench: LaunchBench, name: str, call: Callable[[], None]) -> None:
    repeats = 2 if bench.smoke else 50
    figures = [wall_us(call, bench.device, repeats), bench.cpu_us(call)]
    if bench.device.type == "cuda":
        figures.append(wall_us(capture([call], 1, bench.device).replay, bench.device, repeats))
    bench.row(name, *figures)


def compile_ahead(bench: LaunchBench, scopes: list[tuple[Config, tuple[str, ...]]]) -> None:
    """Compile the kernels of `compare` in many processes."""
    started = time.monotonic()
    jobs = [(config, names[start::3]) for config, names in scopes for start in range(3)]
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in [pool.submit(warm_up, (config,), names) for config, names in jobs]:
            part.result()
    bench.say(f"compiled ahead in {time.monotonic() - started:.0f} s")


def equality(bench: LaunchBench, seconds: float, threads: int) -> bool:
    """Return whether all direct launches gave the bits of public ones."""
    few = FEW[:1] if bench.smoke else FEW
    every = few if bench.smoke else tuple(CHANGES)
    scopes = [(config, every if name in THOROUGH else few) for name, config in bench.configs.items()]
    devices = [bench.device]
    if bench.device.type == "cuda":
        others = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        devices += [device for device in others if device != bench.device][:1]
        compile_ahead(bench, scopes)
    launch_cases = [
        case for config, names in scopes for case in cases((config,), devices, names, bench.smoke)
    ]
    count, wrong = compare(launch_cases)
    bench.say(
        f"equal: {count} outputs of {len(launch_cases)} layers, {len(devices)} devices: {len(wrong)} differ"
    )
    here = [case for case in launch_cases if case.batch.q.device == bench.device]
    launches, problems = stress(here, bench.device, seconds, threads, 1 if bench.smoke else 8)
    bench.say(f"stress: {launches} launches of {threads} threads in {seconds:.0f} s, {len(problems)} differ")
    for line in (*wrong, *problems)[:10]:
        bench.say(f"  {line}")
    return not wrong and not problems


def main() -> int:
    """Return 0, or 1 where an output differs or a section broke off."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="benchmarks.launch.launch_cost", description=__doc__)
    parser.add_argument("--stress", type=float, default=10.0, help="seconds of launches from 8 threads")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny, in Triton's interpreter: tests the script"
    )
    parser.add_argument("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    args = parser.parse_args()
    bench = LaunchBench(environment.device_from("cpu" if args.smoke else args.device), args.smoke)
    print(environment.headline(environment.describe(bench.device)), flush=True)
    peers = peers_of(args.peers, bench)
    seconds, threads, layers = (0.1, 1, 2) if args.smoke else (args.stress, 8, 32)
    sections: dict[str, Callable[[], object]] = {
        "equality": partial(equality, bench, seconds, threads),
        "choose": partial(choosing, bench),
        "plan": partial(planning, bench),
        "record": partial(recording, bench),
        "run": partial(running, bench),
        "one call": partial(one_call, bench),
        "peers": partial(other_implementations, bench, peers),
        "breakdown": partial(breakdown, bench),
        "step": partial(step, bench, peers, layers),
    }
    fine = True
    for name, section in sections.items():
        try:
            fine &= section() is not False
        except Exception as error:
            traceback.print_exc()
            bench.say(f"{name} BROKE OFF: {brief(error)}")
            fine = False
    print(f"\n{environment.headline(environment.describe(bench.device))}")
    print("\n".join(bench.lines))
    print(f"{time.monotonic() - started:.0f} s; {'all fine' if fine else 'SOMETHING IS WRONG'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

"""CPU time of choosing, planning and launching, beside FlashAttention-3 and vLLM's Triton kernel.

python -m benchmarks.launch.launch_cost [--device cuda]

A figure is the median over bursts of calls, in microseconds but where it says nanoseconds.
"""

import itertools
import random
import tempfile
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import attn_kernels
from attn_kernels import Lengths, Parts, Workspace
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.recording import Recorder, recorder_of_process
from attn_kernels.measure.batches import Batch, HeadLayout, decode, prefill
from attn_kernels.measure.tensors import launches_of, materialise, plan_for
from benchmarks.common import environment
from benchmarks.common.implementations import PEERS_FOLDER, Implementation, load_peers
from benchmarks.launch.timing import cpu_us

BATCHES = (decode(8, 2048), decode(64, 8192), prefill(1, 2048))
TINY = tuple(batch.at(HeadLayout(4, 2, 16), dtype=torch.float16) for batch in (decode(1, 16), prefill(1, 16)))
OURS = ("choose in ns", "plan, us", "workspace", "run, us", "one call, us")


def nanoseconds(call: Callable[[], object], number: int) -> float:
    """The time of a call that launches nothing."""
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e9


def costs(
    batch: Batch, device: torch.device, peers: list[Implementation], bursts: int, number: int
) -> tuple[list[float], str]:
    """A figure for each column, and what was launched."""
    tensors = materialise(batch, device)
    (kv,) = tensors.sets
    choices, lengths = choices_for(batch.model, device), batch.lengths
    index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table)
    planning = partial(
        attn_kernels.plan,
        *index,
        batch.model,
        **lengths.as_arguments(),
        check=False,
    )
    one_call = partial(
        attn_kernels.flash_attn_varlen_func,
        kv.q,
        kv.k_cache,
        kv.v_cache,
        lengths.max_query_len,
        tensors.cu_seqlens_q,
        lengths.max_seq_len,
        seqused_k=tensors.seqused_k,
        block_table=tensors.block_table,
        softmax_scale=tensors.softmax_scale,
        out=kv.out,
    )
    plan = plan_for(tensors)
    workspace = Workspace.for_maxima(
        device, batch.model, max_query_tokens=lengths.num_query_tokens, max_num_seqs=lengths.num_seqs
    )
    calls: list[Callable[[], object]] = [planning, partial(planning, workspace=workspace)]
    calls += [*launches_of(plan, tensors), one_call]
    calls += [launch for peer in peers for launch in peer.prepare(tensors).launches]
    is_direct = plan.launches or device.type != "cuda"
    figures = [nanoseconds(partial(choices.config, lengths), number)]
    figures += [cpu_us(call, device, bursts) for call in calls]
    return figures, f"{plan.config}{'' if is_direct else '  NOT LAUNCHED DIRECTLY'}"


def recording(batch: Batch, number: int, buckets: int) -> str:
    """What `ATTN_KERNELS_RECORD` adds to a `plan`: unset; for known buckets; for new ones."""
    model, draw = batch.model, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "batches.jsonl")
        steps = itertools.cycle([Lengths(64, 64, 1, 8192, 64 * 4096 + i) for i in range(1000)])
        parts = Parts(Lengths(60, 60, 1, 8192, 10**5), Lengths(2, 2000, 1500, 3000, 5000))
        whole = Lengths(62, 2060, 1500, 8192, 105000)
        drawn = [Lengths(*(int(2 ** draw.uniform(0, 20)) for _ in range(5))) for _ in range(buckets)]
        fresh = itertools.cycle(drawn)
        off = nanoseconds(recorder_of_process, number)
        nothing = nanoseconds(lambda: next(steps), number)
        seen = nanoseconds(lambda: recorder.record(model, next(steps)), number) - nothing
        mixed = nanoseconds(lambda: recorder.record(model, whole, parts), number)
        new = nanoseconds(lambda: recorder.record(model, next(fresh)), number) - nothing
        recorder.write()
    return (
        f"record  {off:5.0f} ns if off, {seen:5.0f} ns per decode step, {mixed:5.0f} ns per step in parts, "
        f"{new:5.0f} ns if nearly every step is of a new bucket"
    )


def main(arguments: list[str] | None = None) -> int:
    """Print all figures; a kernel that fails raises."""
    started = time.monotonic()
    parser = environment.parser_of(__doc__, "benchmarks.launch.launch_cost")
    add = parser.add_argument
    add("--peers", type=Path, default=PEERS_FOLDER, help="folder that holds peers.py")
    add("--device", default="cuda", help=environment.DEVICE_HELP)
    args = parser.parse_args(arguments)
    device = environment.device_from(args.device)
    on_gpu = device.type == "cuda"
    print(environment.headline(environment.describe(device)), flush=True)
    peers = load_peers(args.peers, "fa3", "vllm_triton") if on_gpu else []
    batches, bursts, number, buckets = (BATCHES, 60, 20_000, 200_000) if on_gpu else (TINY, 1, 10, 1000)
    columns = (*OURS, *(f"{peer.name}, us" for peer in peers))
    print(f"{'':18}" + "".join(f"{column:>14}" for column in columns), flush=True)
    for batch in batches:
        figures, launched = costs(batch, device, peers, bursts, number)
        print(f"{batch.name:18}" + "".join(f"{cost:14.1f}" for cost in figures) + f"  {launched}", flush=True)
    print(recording(batches[0], number, buckets))
    print(f"{time.monotonic() - started:.0f} s; all fine")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

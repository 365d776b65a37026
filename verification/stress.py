"""Launch plans with `parts` from many threads at once, and check every output.

python -m verification.stress [--seconds 60] [--threads 8] [--streams 2] [--busy-sms N] [--by bits|reference]

Threads share streams, and each thread has a workspace for each stream. Exits with 1 if an output is wrong or
a launch hangs.
"""

import argparse
import contextlib
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import attn_kernels
from attn_kernels import Workspace
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.measure.checking import TOLERANCE, Expected, check
from attn_kernels.measure.tensors import multiprocessors
from attn_kernels.testing.poisoned import PoisonedBatch
from benchmarks.attention.drawn_batches import up_to
from benchmarks.common import configs, environment
from benchmarks.common.in_parts import PartsJob
from benchmarks.launch.threads import Hang, in_threads
from benchmarks.launch.timing import synchronise
from triton_tune.processes.compile_ahead import Job, compile_in_parallel
from verification.busy import SPIN_MS, BusyMultiprocessors
from verification.compile_jobs import plain_job
from verification.poisoned import poisoned

LAYERS = 4  # launches of each plan
AT_A_TIME = 4  # plans of a turn


@dataclass(frozen=True)
class StressSizes:
    """The largest batches, and how many are drawn."""

    batches: int
    layouts: tuple[HeadLayout, ...]
    dtype: torch.dtype
    decodes: int  # sequences
    prompts: int
    context: int
    chunk: int


ON_GPU = StressSizes(24, (HeadLayout(32, 8), HeadLayout(8, 1)), torch.bfloat16, 64, 3, 8192, 1024)
ON_CPU = StressSizes(3, (HeadLayout(4, 2, 16),), torch.float16, 3, 1, 40, 12)


def draw(sizes: StressSizes, seed: int) -> list[Batch]:
    """Draw mixed batches, decodes and prompts in turn."""
    batches = []
    for i in range(sizes.batches):
        rng = random.Random(f"stress/{seed}/{i}")
        kind = ("mixed", "decode", "prefill")[i % 3]
        decodes = 0 if kind == "prefill" else rng.randint(1, sizes.decodes)
        prompts = 0 if kind == "decode" else rng.randint(1, sizes.prompts)
        queries = [rng.choice((1, 1, 1, 4)) for _ in range(decodes)]
        queries += [rng.randint(9, sizes.chunk) for _ in range(prompts)]
        cached = up_to(sizes.context, decodes + prompts, rng)
        contexts = tuple(map(max, queries, cached))
        layout = sizes.layouts[i // 3 % len(sizes.layouts)]
        name = f"{kind} {i}: {decodes} decodes, {prompts} prompts"
        batches.append(Batch(name, kind, tuple(queries), contexts, layout, dtype=sizes.dtype))
    return batches


@dataclass(frozen=True, eq=False)
class StressCase:
    """A batch, its reference, and the output of its first launch."""

    batch: Batch
    tensors: PoisonedBatch
    expected: Expected
    first: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device, seed: int) -> "StressCase":
        """Make the tensors and launch for the first time."""
        tensors = poisoned(batch, device, seed)
        rows = torch.arange(batch.num_query_tokens, device=device)
        expected = Expected(rows, tensors.reference(), TOLERANCE[batch.dtype])
        (first,) = launch(batch, tensors, None, 1)
        return cls(batch, tensors, expected, first)

    def differs(self, out: Tensor, by_bits: bool) -> str:
        """Return how an output is wrong; empty if it is right."""
        if by_bits:
            return "" if torch.equal(out, self.first) else f"{self.batch}: not the bits of the first output"
        verdict = check(out, self.expected)
        return "" if verdict.ok else f"{self.batch}: {verdict}"


def launch(batch: Batch, tensors: PoisonedBatch, workspace: Workspace | None, layers: int) -> list[Tensor]:
    """Plan with `parts`, and launch so many layers onto outputs of NaN."""
    plan = tensors.plan(check=False, workspace=workspace, parts=batch.parts)
    outputs = [torch.full_like(tensors.q, torch.nan) for _ in range(layers)]
    for out in outputs:
        attn_kernels.run(plan, tensors.q, tensors.k_cache, tensors.v_cache, out=out)
    return outputs


def workspaces(cases: Sequence[StressCase], device: torch.device, count: int) -> list[Workspace]:
    """Make workspaces that hold any plan of the cases."""
    batches = [case.batch for case in cases]
    return [
        Workspace.for_maxima(
            device,
            {batch.model for batch in batches},
            max_query_tokens=max(batch.num_query_tokens for batch in batches),
            max_num_seqs=max(batch.num_seqs for batch in batches),
            for_capture=True,
        )
        for _ in range(count)
    ]


def stress(
    cases: Sequence[StressCase], device: torch.device, args: argparse.Namespace
) -> tuple[int, list[str]]:
    """Launch the cases from all threads; return the number of launches, and a line a wrong output.

    Raises Hang if a turn takes longer than `args.patience`.
    """
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.Stream(device) for _ in range(args.streams)] if on_gpu else [None]  # type: ignore[no-untyped-call]
    rooms = [workspaces(cases, device, len(streams)) for _ in range(args.threads)]
    synchronise(device)

    def turn(number: int, index: int) -> tuple[int, list[str]]:
        place = (number + index // (args.threads + 1)) % len(streams)  # each thread's streams in turn
        chosen = [cases[(7 * index + step) % len(cases)] for step in range(AT_A_TIME)]
        with torch.cuda.stream(streams[place]) if on_gpu else contextlib.nullcontext():
            made = [
                (case, out)
                for case in chosen
                for out in launch(case.batch, case.tensors, rooms[number][place], LAYERS)
            ]
            differences = [case.differs(out, args.by == "bits") for case, out in made]
        return len(made), [line for line in differences if line]

    return in_threads(turn, args.threads, args.seconds, args.patience)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="verification.stress", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="how long threads launch (default 60)")
    add("--threads", type=int, help="default 8; 1 on cpu, where more are not possible")
    add("--streams", type=int, default=2, help="streams that the threads share (default 2)")
    by = "what an output must equal: the bits of the first output (default), or float64 within its error"
    add("--by", choices=("bits", "reference"), default="bits", help=by)
    add("--busy-sms", type=int, default=0, help="multiprocessors that another kernel takes meanwhile")
    add("--patience", type=float, default=30.0, help="seconds after which a launch counts as hung")
    add("--seed", type=int, default=0)
    add("--device", default="cuda", help=environment.DEVICE_HELP)
    add("--compile-workers", type=int, help="processes that compile before the run (0: none)")
    return parser.parse_args()


def check_arguments(args: argparse.Namespace, device: torch.device) -> None:
    """Exit with code 2 on a number that is out of range."""
    on_gpu = device.type == "cuda"
    if args.threads is None:
        args.threads = 8 if on_gpu else 1
    for name in ("seconds", "patience"):
        if not getattr(args, name) > 0:
            environment.stop(f"--{name} {getattr(args, name)}: more than 0 is needed")
    for name in ("threads", "streams"):
        if getattr(args, name) < 1:
            environment.stop(f"--{name} {getattr(args, name)}: at least 1 is needed")
    if not on_gpu and args.threads > 1:
        environment.stop(f"--threads {args.threads}: Triton's interpreter runs in one thread only")
    if args.busy_sms and (not on_gpu or torch.version.hip):
        environment.stop(f"--busy-sms {args.busy_sms}: an NVIDIA GPU is needed")
    if not 0 <= args.busy_sms < multiprocessors(device):
        most = multiprocessors(device) - 1
        environment.stop(f"--busy-sms {args.busy_sms}: 0 to {most} is needed on this device")


def main() -> int:
    """Return 0, or 1 if an output was wrong; a launch that hangs ends the process with 1."""
    started = time.monotonic()
    args = parse_arguments()
    device = environment.device_from(args.device)
    check_arguments(args, device)
    print(environment.headline(environment.describe(device)), flush=True)
    batches = draw(ON_GPU if device.type == "cuda" else ON_CPU, args.seed)
    jobs: list[Job] = [*map(PartsJob, batches)]
    jobs += (plain_job(batch, configs.chosen(batch, device)) for batch in batches)
    print(compile_in_parallel(jobs, device, args.compile_workers), flush=True)
    cases = [StressCase.of(batch, device, seed) for seed, batch in enumerate(batches)]
    problems = [line for case in cases if (line := case.differs(case.first, by_bits=False))]
    print(f"{len(cases)} batches launched once, {len(problems)} wrong", flush=True)
    launches, busy = 0, BusyMultiprocessors(device, args.busy_sms)
    if not problems:
        try:
            with busy:
                launches, problems = stress(cases, device, args)
        except Hang as hang:
            print(f"HUNG: {hang}, with {args.busy_sms} multiprocessors busy", flush=True)
            os._exit(1)  # a thread that waits for the GPU would keep the process
    if launches and args.busy_sms and not busy.spins:
        problems.append("no multiprocessor was busy: the spinning kernel did not run")
    print("\n".join(f"WRONG {line}" for line in problems[:20]), end="\n" if problems else "")
    if args.busy_sms:
        print(f"{args.busy_sms} multiprocessors busy for {busy.spins * SPIN_MS / 1e3:.1f} s")
    print(
        f"{launches} launches of {args.threads} threads on {args.streams} streams, by {args.by}: "
        f"{len(problems)} wrong; {time.monotonic() - started:.0f} s"
    )
    return 1 if problems or not launches else 0


if __name__ == "__main__":
    sys.exit(main())

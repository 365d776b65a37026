"""Outputs are right when many threads launch at once and other kernels keep multiprocessors busy.

Each thread plans random mixed, decode and prefill batches with `parts`, in workspaces of its own, and
launches layers of each plan on streams that all threads share. `ATTN_TEST_SECONDS=30` sets how long.
"""

import os
import random
import threading
from dataclasses import dataclass

import pytest
import torch
import triton
import triton.language as tl
from launch_cases import LaunchCase, make_tensors
from launch_threads import Hang, in_threads
from torch import Tensor
from triton.language.extra.cuda import globaltimer

import attn_kernels
from attn_kernels import Workspace
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.measure.checking import TOLERANCE, Expected, check
from attn_kernels.testing.poisoned import PoisonedBatch
from benchmarks.attention.batches import up_to
from triton_tune.processes.compile_ahead import compile_in_parallel

pytestmark = pytest.mark.gpu
SECONDS = float(os.environ.get("ATTN_TEST_SECONDS", "30"))
PATIENCE = 30.0  # seconds after which a launch counts as hung
THREADS, STREAMS = 8, 2
LAYERS = 4  # launches of each plan
PLANS = 4  # of a turn
BATCHES = 24
LAYOUTS = (HeadLayout(32, 8), HeadLayout(8, 1))
LONGEST, MOST_DECODES, MOST_PROMPTS, LONGEST_CHUNK = 8192, 64, 3, 1024


SPIN_MS = 20
# A program has 1,024 threads, and each holds 64 of VALUES, as many as it may have registers. So a program
# takes all registers of a multiprocessor, and no other program runs beside it.
NUM_WARPS = 32
VALUES = 64 * 32 * NUM_WARPS


@triton.jit(do_not_specialize=["nanoseconds"])
def busy_kernel(out_ptr, nanoseconds, VALUES: tl.constexpr):
    """Spin for so many nanoseconds; out is float32 [programs, VALUES], which keeps the values alive."""
    start = globaltimer()
    places = tl.program_id(0) * VALUES + tl.arange(0, VALUES)
    values = tl.load(out_ptr + places)
    while globaltimer() - start < nanoseconds:
        values = values * 0.5 + 1.0
    tl.store(out_ptr + places, values)


class BusyMultiprocessors:
    """A context in which a spinning kernel takes all of some multiprocessors, again and again.

    Each launch spins SPIN_MS, so the multiprocessors are free again soon after the context ends.
    """

    def __init__(self, device, count):
        self.spins = 0
        self._device, self._count = device, count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def __enter__(self):
        if self._count:
            self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self._ended.set()
        if self._count and error is None:  # after a hang the thread may hang too
            self._thread.join()

    def _spin(self):
        # Its programs go first to multiprocessors that become free; else many small kernels keep them out.
        stream = torch.cuda.Stream(self._device, priority=-1)
        with torch.cuda.device(self._device), torch.cuda.stream(stream):
            values = torch.zeros(self._count, VALUES, device=self._device)
            while not self._ended.is_set():
                busy_kernel[(self._count,)](values, SPIN_MS * 1_000_000, VALUES=VALUES, num_warps=NUM_WARPS)
                stream.synchronize()
                self.spins += 1


def draw(number):
    """Mixed batches, decodes and prompts in turn."""
    rng = random.Random(f"stress/0/{number}")
    kind = ("mixed", "decode", "prefill")[number % 3]
    decodes = 0 if kind == "prefill" else rng.randint(1, MOST_DECODES)
    prompts = 0 if kind == "decode" else rng.randint(1, MOST_PROMPTS)
    queries = [rng.choice((1, 1, 1, 4)) for _ in range(decodes)]
    queries += [rng.randint(9, LONGEST_CHUNK) for _ in range(prompts)]
    contexts = tuple(map(max, queries, up_to(LONGEST, decodes + prompts, rng)))
    layout = LAYOUTS[number // 3 % len(LAYOUTS)]
    return Batch(f"{kind} {number}", kind, tuple(queries), contexts, layout)


@dataclass(frozen=True, eq=False)
class StressCase:
    """A batch, and the output of its first launch."""

    batch: Batch
    tensors: PoisonedBatch
    first: Tensor


@pytest.fixture(scope="module")
def cases(device):
    """Batches whose first outputs are right."""
    batches = [draw(number) for number in range(BATCHES)]
    jobs = [job for i, batch in enumerate(batches) for job in LaunchCase(i, batch, (None,)).jobs()]
    print(compile_in_parallel(jobs, device))
    made = []
    for seed, batch in enumerate(batches):
        tensors = make_tensors(batch, device, seed)
        rows = torch.arange(batch.lengths.num_query_tokens, device=device)
        (first,) = launch(batch, tensors, None, 1)
        verdict = check(first, Expected(rows, tensors.reference(), TOLERANCE[batch.dtype]))
        assert verdict.ok, f"{batch}: {verdict}"
        made.append(StressCase(batch, tensors, first))
    return made


def launch(batch, tensors, workspace, layers):
    """Plan with `parts`, and launch so many layers onto outputs of NaN."""
    plan = tensors.plan(check=False, workspace=workspace, parts=batch.parts)
    outputs = [torch.full_like(tensors.q, torch.nan) for _ in range(layers)]
    for out in outputs:
        attn_kernels.run(plan, tensors.q, tensors.k_cache, tensors.v_cache, out=out)
    return outputs


def workspace_for(cases, device):
    """A workspace that holds any plan of the cases."""
    batches = [case.batch for case in cases]
    return Workspace.for_maxima(
        device,
        {batch.model for batch in batches},
        max_query_tokens=max(batch.lengths.num_query_tokens for batch in batches),
        max_num_seqs=max(batch.lengths.num_seqs for batch in batches),
    )


@pytest.mark.parametrize("busy_multiprocessors", [0, 64])
def test_threads_get_the_bits_of_the_first_launch(cases, device, busy_multiprocessors):
    if busy_multiprocessors and torch.version.hip:
        pytest.skip("the spinning kernel needs an NVIDIA GPU")
    streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]
    workspaces = [[workspace_for(cases, device) for _ in streams] for _ in range(THREADS)]
    torch.cuda.synchronize()

    def turn(number, index):
        place = (number + index // (THREADS + 1)) % STREAMS  # each thread's streams in turn
        chosen = [cases[(7 * index + step) % len(cases)] for step in range(PLANS)]
        with torch.cuda.stream(streams[place]):
            made = [
                (case, out)
                for case in chosen
                for out in launch(case.batch, case.tensors, workspaces[number][place], LAYERS)
            ]
            return len(made), [str(case.batch) for case, out in made if not torch.equal(out, case.first)]

    busy = BusyMultiprocessors(device, busy_multiprocessors)
    try:
        with busy:
            launches, wrong = in_threads(turn, THREADS, SECONDS, PATIENCE)
    except Hang as hang:
        print(f"HUNG: {hang}, with {busy_multiprocessors} multiprocessors busy", flush=True)
        os._exit(1)  # a thread that waits for the GPU would keep the process
    assert launches and wrong == []
    assert busy.spins or not busy_multiprocessors, "the spinning kernel did not run"

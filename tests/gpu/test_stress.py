"""Outputs are right when many threads launch at once and other kernels keep multiprocessors busy.

Each thread plans random mixed, decode and prefill batches with `parts`, in workspaces of its own, and
launches layers of each plan on streams that all threads share. `ATTN_TEST_SECONDS=30` sets how long.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest
import torch
from busy_multiprocessors import BusyMultiprocessors
from launch_cases import LaunchCase, make_tensors
from launch_threads import Hang, in_threads
from torch import Tensor

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


def draw(number: int) -> Batch:
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
def cases(device: torch.device) -> list[StressCase]:
    """Batches whose first outputs are right."""
    batches = [draw(number) for number in range(BATCHES)]
    jobs = [job for i, batch in enumerate(batches) for job in LaunchCase(i, batch, (None,)).jobs()]
    print(compile_in_parallel(jobs, device))
    made = []
    for seed, batch in enumerate(batches):
        tensors = make_tensors(batch, device, seed)
        rows = torch.arange(batch.num_query_tokens, device=device)
        (first,) = launch(batch, tensors, None, 1)
        verdict = check(first, Expected(rows, tensors.reference(), TOLERANCE[batch.dtype]))
        assert verdict.ok, f"{batch}: {verdict}"
        made.append(StressCase(batch, tensors, first))
    return made


def launch(batch: Batch, tensors: PoisonedBatch, workspace: Workspace | None, layers: int) -> list[Tensor]:
    """Plan with `parts`, and launch so many layers onto outputs of NaN."""
    plan = tensors.plan(check=False, workspace=workspace, parts=batch.parts)
    outputs = [torch.full_like(tensors.q, torch.nan) for _ in range(layers)]
    for out in outputs:
        attn_kernels.run(plan, tensors.q, tensors.k_cache, tensors.v_cache, out=out)
    return outputs


def workspace_for(cases: list[StressCase], device: torch.device) -> Workspace:
    """A workspace that holds any plan of the cases."""
    batches = [case.batch for case in cases]
    return Workspace.for_maxima(
        device,
        {batch.model for batch in batches},
        max_query_tokens=max(batch.num_query_tokens for batch in batches),
        max_num_seqs=max(batch.num_seqs for batch in batches),
    )


@pytest.mark.parametrize("busy_multiprocessors", [0, 64])
def test_threads_get_the_bits_of_the_first_launch(
    cases: list[StressCase], device: torch.device, busy_multiprocessors: int
) -> None:
    if busy_multiprocessors and torch.version.hip:
        pytest.skip("the spinning kernel needs an NVIDIA GPU")
    streams = [torch.cuda.Stream(device) for _ in range(STREAMS)]
    workspaces = [[workspace_for(cases, device) for _ in streams] for _ in range(THREADS)]
    torch.cuda.synchronize()

    def turn(number: int, index: int) -> tuple[int, list[str]]:
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

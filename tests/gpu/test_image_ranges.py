"""Tokens of images see each other in every kernel and batch, against float64 and poisoned memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from launch_cases import LaunchCase, LaunchFeatures, image_ranges, make_tensors

import attn_kernels
from attn_kernels import Config
from attn_kernels.measure.batches import Batch, HeadLayout, varlen
from attn_kernels.measure.checking import TOLERANCE, Expected, check

pytestmark = pytest.mark.gpu
K = 1024
GEMMA_3 = HeadLayout(16, 8, 256)
SETTINGS = (
    (HeadLayout(32, 8, 128), 16, LaunchFeatures(images=4)),
    (GEMMA_3, 16, LaunchFeatures(window=128, images=20)),
    (GEMMA_3, 64, LaunchFeatures(images=40, softcap=30.0, sinks="half")),
    (HeadLayout(28, 4, 80), 24, LaunchFeatures(window=1000, images=4, alibi=True, strides="fused")),
    (HeadLayout(32, 8, 128), 16, LaunchFeatures(window=128, images=4, fp8=True, scales="tensor")),
)
BATCHES = 4  # of each setting; half of them are planned for a graph
# The choice of the module, tiles of decodes and of prompts, and one that the Hopper kernel leaves to another.
CONFIGS = (None, Config("qblock", 16, 32), Config("qblock", 64, 32), Config("qblock", 128, 64, 8, 2, tma=1))


def cases() -> Iterator[LaunchCase]:
    for number, (layout, page, features) in enumerate(SETTINGS):
        for i in range(BATCHES):
            lengths = varlen(
                100 * number + i, max_seqs=8, max_context=(2 * K, 16 * K)[i % 2], max_tokens=16 * K
            )
            yield LaunchCase(i, lengths.at(layout, page), CONFIGS, features, in_pairs=True)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_images(case: LaunchCase, device: torch.device, compiled: None) -> None:
    assert case.failures(device) == []


def test_a_graph_reads_the_ranges_that_memory_holds_at_its_replay(device: torch.device) -> None:
    batch = Batch("images", "prefill", (500, 300), (500, 4000), HeadLayout(32, 8, 128))
    tensors = make_tensors(batch, device, seed=0)
    ranges = torch.zeros(2, 3, 2, dtype=torch.int32, device=device)
    plan = tensors.plan(config=Config("qblock", 64, 32), for_capture=True)

    def launch() -> torch.Tensor:
        return attn_kernels.run(
            plan, tensors.q, tensors.k_cache, tensors.v_cache, bidirectional_ranges=ranges
        )

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = launch()
    rows = torch.arange(batch.num_query_tokens, device=device)
    for seed in range(3):
        ranges.copy_(image_ranges(batch, 3, seed))
        out.fill_(torch.nan)
        graph.replay()
        expected = tensors.reference(bidirectional_ranges=ranges)
        verdict = check(out, Expected(rows, expected, TOLERANCE[batch.dtype]))
        assert verdict.ok, f"{seed}: {verdict}"

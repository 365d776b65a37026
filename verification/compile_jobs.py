"""Launches that compile kernels before a run: a config with a batch's features, on a few tokens."""

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass

import torch

from attn_kernels import Config
from attn_kernels.measure.batches import Batch
from verification.cases import VerifyCase
from verification.features import FP8, LaunchFeatures
from verification.poisoned import load


@dataclass(frozen=True)
class ConfigJob:
    """A launch of one config that compiles all that the case needs of it."""

    case: VerifyCase
    config: Config

    @property
    def needs(self) -> frozenset[Hashable]:
        batch, layout = self.case.batch, self.case.batch.layout
        parts: tuple[str, ...] = ("all",)
        if self.config.variant == "split":
            parts = ("decode",) * (1 in batch.query_lens) + ("prefill",) * (batch.max_query_len > 1)
        group = layout.num_query_heads // layout.num_kv_heads
        shape = (group, layout.head_size, batch.block_size, batch.dtype)
        # Without descriptors, it sizes a launch and compiles nothing.
        compiled = self.config if self.config.descriptors else self.config._replace(programs_per_sm=1)
        return frozenset((compiled, shape, str(self.case.features), part) for part in parts)

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.case.batch.layout.head_size

    def run(self, device: torch.device) -> None:
        """Launch on at most three tokens, because no length is compiled into a kernel."""
        batch = self.case.batch
        lens = (1,) * (1 in batch.query_lens) + (2,) * (batch.max_query_len > 1)
        batch = dataclasses.replace(batch, name="small", kind="", query_lens=lens, context_lens=lens)
        load(dataclasses.replace(self.case, batch=batch, far=0), device).launch(self.config)


def plain_job(batch: Batch, config: Config) -> ConfigJob:
    """Return the job of a batch's launch."""
    scores = batch.scores
    features = LaunchFeatures(
        window=scores.window,
        softcap=scores.softcap,
        sinks="half" if scores.sinks else "",
        fp8=batch.cache_dtype == FP8,
    )
    return ConfigJob(VerifyCase("", batch, (), features), config)

"""FlashInfer's kernels and FlashAttention-4, which plan on the host before they launch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from attn_kernels.measure.batches import Batch, ScoreOptions
from attn_kernels.measure.tensors import BatchTensors
from attn_kernels.measure.timing import Launch
from benchmarks.common.implementations import NotApplicable, PreparedLaunches, load_each

MORE_PEERS_FOLDER = Path(__file__).resolve().parents[2] / ".more_peers"
COMPILED_RATIOS = (1, 2, 4, 7, 8, 12, 16)  # query heads a KV head of the kernels compiled for each ratio
MOST_PLANS = 64  # a rival plans each KV set by itself, and a plan takes 16 MiB

Output = torch.Tensor | list[torch.Tensor]  # or its pieces in the order of tokens
Prepare = Callable[..., tuple[Callable[[], Any], Callable[[], Output]]]  # returns (plan, run)


@dataclass(frozen=True)
class RivalEntry:
    """How to load a rival from more_peers.py, and the batches that it takes."""

    load: Callable[[ModuleType], Prepare]
    takes: Literal["any", "decode", "mixed"] = "any"
    every_ratio: bool = True  # of query heads to KV heads; else COMPILED_RATIOS

    def check(self, batch: Batch) -> None:
        """Raise NotApplicable where the rival was not built for a batch."""
        layout = batch.layout
        if (layout.head_size, batch.block_size, batch.dtype_name) != (128, 16, "bfloat16"):
            raise NotApplicable("built for heads of 128, pages of 16 and bf16")
        if batch.scores != ScoreOptions():
            raise NotApplicable("without score options")
        if not self.every_ratio and layout.num_query_heads // layout.num_kv_heads not in COMPILED_RATIOS:
            raise NotApplicable("not built for this ratio of heads")
        first, last = batch.query_lens[0], batch.max_query_len
        if self.takes == "decode" and last > 1:
            raise NotApplicable("decodes only")
        if self.takes == "mixed" and not first == 1 < last:
            raise NotApplicable("decodes before prompts only")


# FlashInfer's wrapper of one prefill beside decodes is left out: it cannot be captured.
MORE_RIVALS: dict[str, RivalEntry] = {
    "fi_decode": RivalEntry(lambda peers: peers.flashinfer_decode(), "decode"),
    "fi_decode_cc": RivalEntry(lambda peers: peers.flashinfer_decode(False), "decode"),  # on CUDA cores
    "fi_xqa": RivalEntry(lambda peers: peers.flashinfer_xqa(), "decode", every_ratio=False),
    "fi_fa2": RivalEntry(lambda peers: peers.flashinfer_prefill("fa2")),
    "fi_fa3": RivalEntry(lambda peers: peers.flashinfer_prefill("fa3")),
    "fi_batch": RivalEntry(lambda peers: peers.flashinfer_batch_attention()),
    "fi_split": RivalEntry(lambda peers: peers.flashinfer_split("fa3"), "mixed"),
    "fi_pod": RivalEntry(lambda peers: peers.flashinfer_pod(), "mixed"),
    "fa4": RivalEntry(lambda peers: peers.fa4(), every_ratio=False),
}


@dataclass(frozen=True)
class PlannedPeer:
    """Another project's kernel that plans a batch on the host; only its launches are timed."""

    name: str
    entry: RivalEntry
    prepare_call: Prepare

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        """Plan and launch each KV set once, because a library may allocate at its first launch."""
        batch = tensors.batch
        self.entry.check(batch)
        if len(tensors.sets) > MOST_PLANS:
            raise NotApplicable(f"more than {MOST_PLANS} KV sets")
        index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table)
        limits = (batch.max_query_len, batch.max_seq_len, tensors.softmax_scale)
        outputs: dict[int, Output] = {}

        def launch(i: int, run: Callable[[], Output]) -> Launch:
            def go() -> None:
                outputs[i] = run()

            return go

        launches = []
        for i, kv in enumerate(tensors.sets):
            _, run = self.prepare_call(kv.q, kv.k_cache, kv.v_cache, kv.out, *index, *limits)
            launches.append(launch(i, run))
            launches[-1]()

        def output(i: int) -> torch.Tensor:
            out = outputs[i]
            return torch.cat(out) if isinstance(out, list) else out

        return PreparedLaunches(launches, output)


def load_more_peers(folder: Path, skipped: Sequence[str] = ()) -> tuple[list[PlannedPeer], list[str]]:
    """Load MORE_RIVALS but those `skipped` from `folder`; return a line for each that failed."""

    def load(name: str, peers: ModuleType) -> PlannedPeer:
        return PlannedPeer(name, MORE_RIVALS[name], MORE_RIVALS[name].load(peers))

    names = [name for name in MORE_RIVALS if name not in skipped]
    return load_each(folder, "more_peers", {name: partial(load, name) for name in names})

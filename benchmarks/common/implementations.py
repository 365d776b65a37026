"""Attention implementations behind one interface: each prepares one launch per KV set of a batch."""

import importlib
import sys
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from attn_kernels import Config, Plan
from attn_kernels.core.errors import brief
from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.measure.tensors import BatchTensors, KVSet, launches_of, plan_for, stand_in
from triton_tune.bench.timing import Launch

PEERS_FOLDER = Path(__file__).resolve().parents[2] / ".peers"


class NotApplicable(Exception):
    """The implementation does not support this batch; the message says why."""


@dataclass(frozen=True)
class PreparedLaunches:
    """One launch per KV set."""

    launches: list[Launch]
    output: Callable[[int], torch.Tensor]  # set i's result, [num_query_tokens, num_query_heads, head_size]
    config: str = ""


class Implementation(Protocol):
    """An attention kernel that benchmarks time."""

    @property
    def name(self) -> str: ...

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        """Make all that is not timed; raises NotApplicable."""


@dataclass(frozen=True)
class Ours:
    """Our kernels; the generated module chooses the config unless one is given."""

    config: Config | None = None
    name: str = "ours"
    in_parts: bool = False  # whether `plan` is told the decodes and the prompts of a batch
    batch_invariant: bool = False  # of the model

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        plan = plan_for(tensors, self.config, in_parts=self.in_parts, batch_invariant=self.batch_invariant)
        return PreparedLaunches(launches_of(plan, tensors), lambda i: tensors.sets[i].out, configs_text(plan))


def configs_text(plan: Plan) -> str:
    """Return the config of a plan's one launch, or those of its parts."""
    parts = (plan,) if plan.fused is not None else plan.parts or (plan,)
    return " + ".join(str(part.config) for part in parts)


@dataclass(frozen=True)
class Peer:
    """Another project's kernel, called with the arguments of `run_fa3`."""

    name: str
    run: Callable[..., None]
    score_options: bool = True  # whether it takes them, by the names of `attn_kernels.run`
    fp8_caches: bool = False
    fp8_queries: bool = False  # beside fp8 caches
    non_causal: bool = False
    largest_head: int = 512
    refuses: Callable[[Batch], str] = lambda _: ""  # for another reason, which it returns

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        batch = tensors.batch
        if batch.layout.head_size > self.largest_head:
            raise NotApplicable(f"heads of at most {self.largest_head}")
        index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table)
        limits = (batch.lengths.max_query_len, batch.lengths.max_seq_len, tensors.softmax_scale)
        if tensors.options and not self.score_options:
            raise NotApplicable("loaded without score options")
        if not (batch.scores.causal or self.non_causal):
            raise NotApplicable("loaded for causal attention")
        if batch.cache_dtype and not self.fp8_caches:
            raise NotApplicable("loaded without fp8 caches")
        if reason := self.refuses(batch):
            raise NotApplicable(reason)

        def launch(kv: KVSet) -> Launch:
            q = kv.q.to(batch.cache_dtype) if batch.cache_dtype and self.fp8_queries else kv.q
            return lambda: self.run(q, kv.k_cache, kv.v_cache, kv.out, *index, *limits, **tensors.options)

        return PreparedLaunches([launch(kv) for kv in tensors.sets], lambda i: tensors.sets[i].out)


@dataclass(frozen=True)
class Sdpa:
    """PyTorch's scaled_dot_product_attention on dense copies of the cache, whose making is not timed.

    It needs sequences of equal lengths. PyTorch picks the backend.
    """

    name: str = "sdpa"

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        batch, layout = tensors.batch, tensors.batch.layout
        if tensors.options or batch.cache_dtype:
            raise NotApplicable("without score options and fp8 caches")
        n, query_len, context = len(batch.query_lens), batch.query_lens[0], batch.context_lens[0]
        if batch.query_lens != (query_len,) * n or batch.context_lens != (context,) * n:
            raise NotApplicable("lengths differ")

        def dense(cache: torch.Tensor) -> torch.Tensor:
            pages = cache[tensors.block_table.long()].reshape(n, -1, layout.num_kv_heads, layout.head_size)
            return pages[:, :context].contiguous().transpose(1, 2)

        mask = causal_lower_right(query_len, context) if 1 < query_len < context else None
        options: dict[str, Any] = {"attn_mask": mask, "is_causal": mask is None and query_len > 1}
        options |= {
            "scale": tensors.softmax_scale,
            "enable_gqa": layout.num_query_heads > layout.num_kv_heads,
        }
        results: dict[int, torch.Tensor] = {}

        def launch(i: int, kv: KVSet) -> Launch:
            q = kv.q.reshape(n, query_len, layout.num_query_heads, layout.head_size).transpose(1, 2)
            k, v = dense(kv.k_cache), dense(kv.v_cache)

            def go() -> None:
                results[i] = F.scaled_dot_product_attention(q, k, v, **options)

            return go

        return PreparedLaunches(
            [launch(i, kv) for i, kv in enumerate(tensors.sets)],
            lambda i: results[i].transpose(1, 2).reshape(tensors.sets[i].out.shape),
        )


# Of Gemma 4's global layers (E4B, 26B-A4B and 31B), and the 256 of `core` and `models`.
FA4_LAYOUTS = (HeadLayout(8, 2, 512), HeadLayout(16, 2, 512), HeadLayout(32, 4, 512), HeadLayout(16, 8, 256))


def fa4_refuses(batch: Batch) -> str:
    """Say why FlashAttention-4, which is compiled ahead, does not take a batch; empty if it does."""
    if batch.layout not in FA4_LAYOUTS:
        return f"compiled for heads {', '.join(map(str, FA4_LAYOUTS))}"
    if batch.dtype != torch.bfloat16:
        return "compiled for bfloat16"
    if batch.cache_dtype and (batch.layout.head_size != 512 or batch.block_size != 64):
        return "fp8 caches have heads of 512 and pages of 64 tokens"
    return ""


# The peers of peers.py: its functions, and from what they return to an implementation.
PEERS: dict[str, Callable[[Callable[..., None]], Peer]] = {
    # FlashAttention-3 multiplies queries with keys of the same type.
    "fa3": lambda run: Peer(
        "fa3", run_fa3, fp8_caches=True, fp8_queries=True, non_causal=True, largest_head=256
    ),
    "fa4": lambda run: Peer("fa4", run, score_options=False, fp8_caches=True, refuses=fa4_refuses),
    "vllm_triton": lambda run: Peer("vllm", run, score_options=False, fp8_caches=True),
    "vllm_triton_33": lambda run: Peer("vllm33", run, fp8_caches=True),
}


def load_peers(folder: Path, *names: str) -> list[Implementation]:
    """Load some of PEERS from `folder`, and print a line for each that failed, or for all."""
    loaded: list[Implementation] = []
    if not (folder / "peers.py").exists():
        print(f"{', '.join(names)} left out: no peers.py in {folder}")
        return loaded
    sys.path.insert(0, str(folder))
    for name in names:
        try:
            peers = importlib.import_module("peers")
            loaded.append(PEERS[name](getattr(peers, name)()))  # loads the rival's library
        except Exception as error:
            print(f"{name} left out: {brief(error)}")
    return loaded


@dataclass(frozen=True)
class CompileJob:
    """Launches over one page, which compile what batches need. Only `plan` knows the kernels of ours."""

    batches: tuple[Batch, ...]
    implementation: Ours | str  # ours, or a function of peers.py
    folder: Path = PEERS_FOLDER  # holds peers.py
    cost: int = 1 << 59

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset((batch, self.implementation) for batch in self.batches)

    def run(self, device: torch.device) -> None:
        one: Implementation
        if isinstance(self.implementation, Ours):
            one = self.implementation
        else:
            (one,) = load_peers(self.folder, self.implementation)
        for batch in self.batches:
            with suppress(NotApplicable):
                one.prepare(stand_in(batch, device)).launches[0]()


def peer_jobs(batches: Iterable[Batch], folder: Path, peer: str) -> list[CompileJob]:
    """One job for batches that are alike, so that no two processes compile the same kernel."""
    alike: dict[Hashable, list[Batch]] = {}
    for batch in batches:
        key = (batch.layout, batch.dtype, batch.cache_dtype, batch.block_size, max(batch.query_lens) > 1)
        alike.setdefault(key, []).append(batch)
    return [CompileJob(tuple(group), peer, folder) for group in alike.values()]


FA3_UNUSED = (
    "k_new v_new q_v cu_seqlens_k cu_seqlens_k_new seqused_q kv_batch_idx leftpad_k rotary_cos rotary_sin "
    "seqlens_rotary q_descale k_descale v_descale scheduler_metadata pack_gqa cp_tot_seqused_k"
)


def run_fa3(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    softmax_scale: float,
    sliding_window: int | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    causal: bool = True,
    num_splits: int = 0,
) -> None:
    """Call FlashAttention-3 as vLLM 0.24 builds it; 0 splits leave their number to it.

    Arguments go by keyword, because their order differs between builds. q and out are [num_query_tokens,
    num_query_heads, head_size]; the caches are [num_blocks, block_size, num_kv_heads, head_size]. With fp8
    caches, q is fp8 as well, and all scales are 1. Score options are those of `attn_kernels.run`.
    """
    torch.ops._vllm_fa3_C.fwd(
        q=q,
        k=k_cache,
        v=v_cache,
        out=out,
        cu_seqlens_q=cu_seqlens_q,
        seqused_k=seqused_k,
        page_table=block_table,
        max_seqlen_q=max_query_len,
        max_seqlen_k=max_seq_len,
        softmax_scale=softmax_scale,
        is_causal=causal,
        window_size_left=-1 if sliding_window is None else sliding_window - 1,
        window_size_right=-1 if sliding_window is None else 0,
        softcap=softcap,
        s_aux=sinks,
        is_rotary_interleaved=True,
        num_splits=num_splits,
        sm_margin=0,
        cp_world_size=1,
        cp_rank=0,
        **dict.fromkeys(FA3_UNUSED.split()),
    )

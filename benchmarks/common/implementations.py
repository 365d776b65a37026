"""The kernels that are compared, all behind one interface: prepare a batch, get one launch per KV set."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from attn_kernels.core.errors import brief
from attn_kernels.measure.tensors import BatchTensors, KVSet, launches_of, plan_for
from attn_kernels.measure.timing import Launch

PEERS_FOLDER = Path(__file__).resolve().parents[2] / ".peers"
DENSE_MEMORY_SHARE = 0.6


class NotApplicable(Exception):
    """The implementation does not do this batch; says why."""


@dataclass(frozen=True)
class Prepared:
    """One launch per KV set; `output(i)` is set i's result [num_query_tokens, num_query_heads, head_size]."""

    launches: list[Launch]
    output: Callable[[int], torch.Tensor]
    config: str = ""


class Implementation(Protocol):
    """A kernel under comparison."""

    @property
    def name(self) -> str: ...

    def prepare(self, tensors: BatchTensors) -> Prepared: ...


@dataclass(frozen=True)
class Ours:
    """This repository's kernel; the generated heuristic chooses the config unless one is given."""

    config: Any = None
    name: str = "ours"

    def prepare(self, tensors: BatchTensors) -> Prepared:
        plan = plan_for(tensors, self.config)
        return Prepared(launches_of(plan, tensors), lambda i: tensors.sets[i].out, str(plan.config))


@dataclass(frozen=True)
class Peer:
    """Another project's attention, called as run(q, k, v, out, cu, seqused, table, max_q, max_k, scale)."""

    name: str
    run: Callable[..., None]

    def prepare(self, tensors: BatchTensors) -> Prepared:
        batch = tensors.batch

        def launch(kv: KVSet) -> Launch:
            index = (tensors.cu_seqlens_q, tensors.seqused_k, tensors.block_table)
            limits = (batch.max_query_len, batch.max_seq_len, tensors.softmax_scale)

            def go() -> None:
                self.run(kv.q, kv.k_cache, kv.v_cache, kv.out, *index, *limits)

            return go

        return Prepared([launch(kv) for kv in tensors.sets], lambda i: tensors.sets[i].out)


@dataclass(frozen=True)
class Sdpa:
    """PyTorch's scaled_dot_product_attention on dense copies of the cache, made beforehand and not timed.

    Applies where all sequences are alike; PyTorch picks the backend.
    """

    name: str = "sdpa"

    def prepare(self, tensors: BatchTensors) -> Prepared:
        batch, layout = tensors.batch, tensors.batch.layout
        n, query_len, context = batch.num_seqs, batch.query_lens[0], batch.context_lens[0]
        if batch.query_lens != (query_len,) * n or batch.context_lens != (context,) * n:
            raise NotApplicable("lengths differ")
        if tensors.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(tensors.device)
            if 2 * batch.kv_bytes * len(tensors.sets) > DENSE_MEMORY_SHARE * free:
                raise NotApplicable("no memory for dense copies")

        def dense(cache: torch.Tensor) -> torch.Tensor:
            pages = cache[tensors.block_table.long()]
            return (
                pages.reshape(n, -1, layout.num_kv_heads, layout.head_size)[:, :context]
                .contiguous()
                .transpose(1, 2)
            )

        mask = causal_lower_right(query_len, context) if 1 < query_len < context else None
        results: dict[int, torch.Tensor] = {}

        def launch(i: int, kv: KVSet) -> Launch:
            q = kv.q.reshape(n, query_len, layout.num_query_heads, layout.head_size).transpose(1, 2)
            k, v = dense(kv.k_cache), dense(kv.v_cache)

            def go() -> None:
                results[i] = F.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    attn_mask=mask,
                    is_causal=mask is None and query_len > 1,
                    scale=tensors.softmax_scale,
                    enable_gqa=layout.num_query_heads > layout.num_kv_heads,
                )

            return go

        return Prepared(
            [launch(i, kv) for i, kv in enumerate(tensors.sets)],
            lambda i: results[i].transpose(1, 2).reshape(tensors.sets[i].out.shape),
        )


def load_peers(
    folder: Path, names: tuple[str, ...] = ("fa3", "vllm_triton")
) -> tuple[list[Implementation], list[str]]:
    """FlashAttention-3 and vLLM's Triton kernel from `folder`; one line for each that could not be loaded."""
    if not (folder / "peers.py").exists():
        return [], [f"FA3 and vLLM left out: no peers.py in {folder}"]
    sys.path.insert(0, str(folder))
    try:
        peers = importlib.import_module("peers")
    except Exception as error:
        return [], [f"FA3 and vLLM left out: {brief(error)}"]
    loaded: list[Implementation] = []
    problems = []
    for name in names:
        try:
            run = getattr(peers, name)()  # loads the peer's library
            loaded.append(Peer("vllm", run) if name == "vllm_triton" else Peer(name, run_fa3))
        except Exception as error:
            problems.append(f"{name} left out: {brief(error)}")
    return loaded, problems


FA3_ABSENT = (
    "k_new v_new q_v cu_seqlens_k cu_seqlens_k_new seqused_q kv_batch_idx leftpad_k rotary_cos rotary_sin "
    "seqlens_rotary q_descale k_descale v_descale scheduler_metadata pack_gqa s_aux cp_tot_seqused_k"
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
) -> None:
    """FlashAttention-3 as vLLM 0.24 builds it, by keyword: its operator's arguments differ between builds."""
    absent = dict.fromkeys(FA3_ABSENT.split())
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
        is_causal=True,
        window_size_left=-1,
        window_size_right=-1,
        softcap=0.0,
        is_rotary_interleaved=True,
        num_splits=0,
        sm_margin=0,
        cp_world_size=1,
        cp_rank=0,
        **absent,
    )

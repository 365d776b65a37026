"""SGLang's attention backend: makes the batch of each forward pass, and runs each layer's plan."""

import logging
from itertools import accumulate
from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor

from attn_kernels.core.checks import FP8
from attn_kernels.core.model import Model
from attn_kernels.engines.planner import Planner, StepMetadata, shared_workspace
from attn_kernels.engines.sglang_supported import check_layer, check_runner
from attn_kernels.launch.run import run
from attn_kernels.warmup.compile_ahead import compile_ahead

CHUNK_TOKENS = 8192  # of one pass, where SGLang has no limit

logger = logging.getLogger("sglang.attn_kernels")


class AttnKernelsBackend(AttentionBackend):  # type: ignore[misc, unused-ignore]
    """Causal self-attention over SGLang's paged caches; arguments and methods are SGLang's.

    Raises ValueError about what is not supported.
    """

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.device = torch.device(runner.device)
        self._page = int(runner.page_size)
        self._pool = runner.token_to_kv_pool
        self._slots: Tensor = runner.req_to_token_pool.req_to_token  # int32 [requests, positions]
        # Whether layers with windows have a cache of their own; the pool finds its slots by the other's.
        self._two_caches = bool(getattr(self._pool, "swa_layer_nums", 0))
        layers = [layer for layer in runner.model.modules() if isinstance(layer, RadixAttention)]
        check_runner(runner, self._pool)
        for layer in layers:
            check_layer(layer)
        self._scaled = self._pool.dtype == FP8
        self._one = torch.ones(1, dtype=torch.float32, device=self.device)  # scale of layers that have none
        models = {kind_of(layer): self._model(layer, runner.dtype) for layer in layers}
        max_seqs = self._slots.shape[0]
        max_tokens = max(runner.server_args.chunked_prefill_size or 0, 0) or CHUNK_TOKENS
        shared = shared_workspace(id(self), self.device, models.values(), max_seqs, max_tokens)
        self._planners = {kind: Planner(model, shared) for kind, model in models.items()}
        # Where the query tokens of decodes begin, on the device and on the host.
        self._starts = torch.arange(max_seqs + 1, dtype=torch.int32, device=self.device)
        self._starts_cpu = torch.arange(max_seqs + 1, dtype=torch.int32)
        self._captured: dict[int, list[StepMetadata]] = {}  # by sequences
        self._kept: list[Any] = []  # plans, which must live as long as their graphs
        self.forward_metadata: list[StepMetadata] = []  # of each cache
        if self.device.type == "cuda":
            features = {features_of(layer, self._scaled) for layer in layers}
            done = compile_ahead(self.device, models.values(), features=features, for_capture=True)
            logger.info("attn_kernels: %s", done)

    def _model(self, layer: Any, dtype: torch.dtype) -> Model:
        return Model(
            num_query_heads=layer.tp_q_head_num,
            num_kv_heads=layer.tp_k_head_num,
            head_size=layer.head_dim,
            block_size=self._page,
            dtype=dtype,
            cache_dtype=FP8 if self._scaled else None,
            sliding_window=window_of(layer),
        )

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Make the batch of a pass that no graph holds."""
        mode = forward_batch.forward_mode
        if mode.is_idle():
            self.forward_metadata = []
            return
        seqs = forward_batch.batch_size
        if mode.is_decode():
            starts, starts_cpu, longest = self._starts[: seqs + 1], self._starts_cpu[: seqs + 1], 1
        elif mode.is_extend():
            lens = [int(length) for length in forward_batch.extend_seq_lens_cpu]
            starts_cpu = torch.tensor([0, *accumulate(lens)], dtype=torch.int32)
            starts = torch.zeros(seqs + 1, dtype=torch.int32, device=self.device)
            torch.cumsum(forward_batch.extend_seq_lens, 0, dtype=torch.int32, out=starts[1:])
            longest = max(lens, default=0)
        else:
            raise NotImplementedError(f"attn_kernels: forward mode {mode} is not supported")
        lens, lens_cpu = forward_batch.seq_lens.to(torch.int32), forward_batch.seq_lens_cpu
        self.forward_metadata = [
            self._step(starts, starts_cpu, lens, table, lens_cpu=lens_cpu, max_query_len=longest)
            for table in self._page_tables(forward_batch, self._pages(forward_batch))
        ]

    def _pages(self, forward_batch: Any) -> int:
        """Pages of the longest sequence, at most; the host may not know it."""
        lens = forward_batch.seq_lens_cpu
        longest = self._slots.shape[1] if lens is None else int(lens.max())
        return max(1, -(-longest // self._page))

    def _page_tables(self, forward_batch: Any, pages: int) -> list[Tensor]:
        """Page ids of each cache, int32 [sequences, pages]: a page's slots lie one behind the other."""
        places = torch.arange(0, pages * self._page, self._page, device=self.device)
        places.clamp_(max=self._slots.shape[1] - 1)
        slots = [self._slots[forward_batch.req_pool_indices[:, None], places]]
        if self._two_caches:
            slots.append(self._pool.translate_loc_from_full_to_swa(slots[0]))
        return [own.to(torch.int32) // self._page for own in slots]

    def _step(
        self, *of_batch: Tensor, lens_cpu: Tensor | None, max_query_len: int, for_capture: bool = False
    ) -> StepMetadata:
        """Describe a batch: where queries begin, on the device and on the host; lengths; page ids."""
        starts, starts_cpu, lens, table = of_batch
        return StepMetadata(
            query_start_loc=starts,
            seq_lens=lens,
            block_table=table,
            slot_mapping=starts,  # SGLang stores keys and values itself
            query_start_loc_cpu=starts_cpu,
            seq_lens_cpu_upper_bound=lens_cpu,
            num_actual_tokens=int(starts_cpu[-1]),
            max_query_len=max_query_len,
            max_seq_len=table.shape[1] * self._page if lens_cpu is None else int(lens_cpu.max()),
            for_capture=for_capture,
            planners=self._planners,
        )

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Allocate what graphs of decodes read."""
        pages = -(-self._slots.shape[1] // self._page)
        self._lens = torch.ones(max_bs, dtype=torch.int32, device=self.device)
        shape = (1 + self._two_caches, max_bs, pages)
        self._tables = torch.zeros(shape, dtype=torch.int32, device=self.device)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Fill what a graph reads, before its replay; make its batch before its capture."""
        seqs = forward_batch.batch_size
        if not forward_batch.forward_mode.is_decode_or_idle():
            raise NotImplementedError(
                f"attn_kernels: graphs of forward mode {forward_batch.forward_mode} are not supported"
            )
        if in_capture:
            starts, starts_cpu = self._starts[: seqs + 1], self._starts_cpu[: seqs + 1]
            self._captured[seqs] = [
                self._step(
                    *(starts, starts_cpu, self._lens[:seqs], table[:seqs]),
                    lens_cpu=None,
                    max_query_len=1,
                    for_capture=True,
                )
                for table in self._tables
            ]
        pages = self._pages(forward_batch)
        self._lens[:seqs].copy_(forward_batch.seq_lens)
        for table, filled in zip(self._tables, self._page_tables(forward_batch, pages), strict=True):
            table[:seqs, :pages].copy_(filled)
        self.forward_metadata = self._captured[seqs]

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """Forget the plans of a warm-up: a graph must hold the kernels that a plan launches."""
        for step in self.forward_metadata:
            if step.for_capture:
                step.plans = {}
                self._kept.append(step.plans)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def forward_extend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Store a layer's keys and values, and compute its attention, with zeros behind the last token.

        Args:
            q: [rows, heads * head_size], or with both dimensions apart.
            k, v: [rows, num_kv_heads, head_size]; None where the caches hold them already.
            others: must be None or False.
        """
        for name, value in others.items():
            if isinstance(value, Tensor) or value not in (None, False):
                raise NotImplementedError(f"attn_kernels: {name} is given, but it is not supported")
        scales: dict[str, Any] = {}
        if self._scaled:
            scales = {
                name: self._one if scale is None else scale.reshape(1)
                for name, scale in (("k_scale", layer.k_scale), ("v_scale", layer.v_scale))
            }
        own_cache = self._two_caches and self._pool.layers_mapping[layer.layer_id][1]
        if save_kv_cache and k is not None and v is not None:
            slots = forward_batch.out_cache_loc
            of_window = self._pool.translate_loc_from_full_to_swa(slots) if own_cache else None
            self._pool.set_kv_buffer(layer, KVWriteLoc(slots, swa_loc=of_window), k, v, *scales.values())
        if not self.forward_metadata:
            raise RuntimeError("attn_kernels: init_forward_metadata was not called")
        step = self.forward_metadata[own_cache]
        heads, window = kind = kind_of(layer)
        plan = step.plans.get(kind) or step.plan_for(kind)
        tokens = plan.lengths.num_query_tokens
        rows = q.view(-1, heads, layer.head_dim)
        out = torch.empty_like(rows) if rows.shape[0] == tokens else torch.zeros_like(rows)
        run(
            plan,
            rows[:tokens],
            *self._caches(layer),
            out=out[:tokens],
            softmax_scale=float(layer.scaling),
            sliding_window=window,
            softcap=float(layer.logit_cap or 0.0),
            sinks=sinks,
            **scales,
        )
        return out.view(q.shape)

    forward_decode = forward_extend

    def _caches(self, layer: Any) -> list[Tensor]:
        """Keys and values of a layer, [pages, page size, heads, head size]."""
        caches = []
        for cache in self._pool.get_kv_buffer(layer.layer_id):
            cache = cache.view(self._pool.dtype) if cache.dtype != self._pool.dtype else cache
            whole = cache.shape[0] // self._page * self._page
            caches.append(cache[:whole].view(-1, self._page, *cache.shape[1:]))
        return caches


def window_of(layer: Any) -> int | None:
    """The keys that a query of a layer sees, with its own; None for all. SGLang does not count its own."""
    before = layer.sliding_window_size
    return None if before is None or before < 0 else int(before) + 1


def kind_of(layer: Any) -> tuple[int, int | None]:
    """The query heads and the window of a layer: layers of one kind share plans."""
    return layer.tp_q_head_num, window_of(layer)


def features_of(layer: Any, scaled: bool) -> frozenset[str]:
    """Return a layer's features, as ``compile_ahead`` names them; sinks are known at a layer's first call."""
    words = {"window": window_of(layer) is not None, "softcap": bool(layer.logit_cap), "scales": scaled}
    return frozenset(word for word, present in words.items() if present)

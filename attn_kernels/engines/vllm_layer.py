"""One layer's attention in vLLM: stores the new keys and values, then runs the step's plan."""

from typing import Any

import torch
from torch import Tensor
from vllm._custom_ops import reshape_and_cache_flash
from vllm.distributed.parallel_state import get_dcp_group
from vllm.forward_context import get_forward_context
from vllm.v1.attention.backend import AttentionImpl, AttentionType

from attn_kernels.core.checks import FP8
from attn_kernels.engines.planner import StepMetadata
from attn_kernels.engines.store import Store
from attn_kernels.engines.two_passes import TwoPlans
from attn_kernels.engines.vllm_kernels import begin_for
from attn_kernels.engines.vllm_supported import FP8_WORDS, cache_views
from attn_kernels.launch.merge import merge_attention_states
from attn_kernels.launch.run import run

try:
    from vllm.v1.attention.ops.dcp import cp_lse_ag_out_rs
except ImportError:  # vLLM 0.24
    from vllm.v1.attention.ops.common import cp_lse_ag_out_rs


class AttnKernelsImpl(AttentionImpl):  # type: ignore[misc, unused-ignore]
    """The implementation of one layer; arguments and methods are vLLM's.

    Raises ValueError about an option that is not supported.
    """

    # What vLLM 0.24 and later versions ask for decode context parallelism.
    can_return_lse_for_decode = supports_dcp = supports_mtp_with_cp_non_trivial_interleave_size = True

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: Tensor | None = None,
        **others: Any,
    ) -> None:
        for name, value in others.items():
            if isinstance(value, Tensor) or value not in (None, False, -1):  # -1: no ``chunk_lookback``
                raise ValueError(f"attn_kernels: {name} is {value!r}, but it is not supported")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.sliding_window = sliding_window
        self.logits_soft_cap = float(logits_soft_cap or 0.0)
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.alibi_slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32)
        self.sinks = sinks
        # Encoders have no cache. Cross-attention has one, whose slots stand in the metadata alone.
        self.own_keys = attn_type in (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)
        self._scaled = kv_cache_dtype in FP8_WORDS and not self.own_keys
        self._stores = kv_sharing_target_layer_name is None and not self.own_keys
        self._crosses = attn_type == AttentionType.ENCODER_DECODER
        self.causal = attn_type == AttentionType.DECODER
        self.forget_cache()
        begin_for(self)

    @property
    def features(self) -> frozenset[str]:
        """The layer's features, as ``compile_ahead`` names them."""
        words = {
            "window": self.sliding_window is not None,
            "noncausal": not self.causal,
            "softcap": self.logits_soft_cap != 0.0,
            "alibi": self.alibi_slopes is not None,
            "sinks": self.sinks is not None and self.sinks.dtype != torch.float32,
            "float32_sinks": self.sinks is not None and self.sinks.dtype == torch.float32,
            "scales": self._scaled,
        }
        return frozenset(word for word, present in words.items() if present)

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        kv_cache: Tensor,
        attn_metadata: StepMetadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """Compute one layer; rows of ``output`` past the step's tokens stay as they are.

        Args:
            query: [rows, num_heads, head_size]. key, value: [rows, num_kv_heads, head_size]; rows may be
                strided. None where the cache holds them already.
            kv_cache: as ``cache_views`` takes it.
            attn_metadata: None in a profiling run, which gives zeros.
            output: like query, written in place, and returned.
        """
        # A server runs this 32 to 80 times per step, and an eager step waits for the CPU.
        if attn_metadata is None:
            return output.zero_()
        if kv_cache is not self._kv_cache:
            self._bind(layer, kv_cache, query.device)
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("attn_kernels: output_scale is given, but outputs are not quantised")
        if self.own_keys:
            assert key is not None and value is not None
            k_cache, v_cache = one_a_page(key), one_a_page(value)
        else:
            k_store, v_store, k_cache, v_cache = self._views
        if self._stores and key is not None and value is not None:
            slots = attn_metadata.slot_mapping
            if not self._crosses:
                slots = get_forward_context().slot_mapping.get(layer.layer_name)
            if slots is not None and (self._store is None or not self._store(key, value, slots)):
                dtype = self.kv_cache_dtype
                reshape_and_cache_flash(key, value, k_store, v_store, slots, dtype, *self._scales)
        plan = attn_metadata.plans.get(self.num_heads) or attn_metadata.plan_for(self.num_heads)
        out, tokens = output, plan.lengths.num_query_tokens
        if query.shape[0] != tokens:  # padded for a piecewise graph
            query, out = query[:tokens], output[:tokens]
        if isinstance(plan, TwoPlans):
            self._run_twice(plan, query, key, value, out)
            return output
        ranges, causal = attn_metadata.mm_prefix_range_tensor, attn_metadata.causal
        run(
            plan,
            query,
            k_cache,
            v_cache,
            out=out,
            bidirectional_ranges=ranges,
            causal=causal,
            **self._options,
        )
        return output

    def _run_twice(
        self, plan: TwoPlans, query: Tensor, key: Tensor | None, value: Tensor | None, out: Tensor
    ) -> None:
        """Run both passes and merge them into ``out``; sinks take part in the second alone."""
        group, options = get_dcp_group(), self._options
        gathered = group.all_gather(query.contiguous(), dim=1)
        first_lse, second_lse = (
            torch.empty(rows.shape[1::-1], dtype=torch.float32, device=rows.device)
            for rows in (gathered, query)
        )
        every_key = options | {"sinks": None, "causal": plan.first_is_causal}
        first = run(plan.first, gathered, *self._views[2:], lse=first_lse, **every_key)
        first, of_ranks = cp_lse_ag_out_rs(first, first_lse.t(), group, return_lse=True)
        assert key is not None and value is not None  # no layer shares another's cache
        own = [one_a_page(new[: len(query)]) for new in (key, value)]
        options = options | {"k_scale": 1.0, "v_scale": 1.0, "causal": plan.second.model.causal}
        second = run(plan.second, query, *own, lse=second_lse, **options)
        merge_attention_states(first, of_ranks.t().contiguous(), second, second_lse, out=out, lse=second_lse)

    def forget_cache(self) -> None:
        """Drop the views of the layer's cache, which keep its memory."""
        self._kv_cache: Tensor | None = None  # as vLLM passed it last
        self._views: tuple[Tensor, ...] = ()  # keys and values as they are stored, and as they are read
        self._store: Store | None = None  # None for fp8, which vLLM's own kernel stores
        self._options: dict[str, Any] = {}  # of ``run``, the same at each call

    def _bind(self, layer: Any, kv_cache: Tensor, device: torch.device) -> None:
        """Make the views of a cache that vLLM passes for the first time, and keep them for later steps."""
        if self.alibi_slopes is not None:
            self.alibi_slopes = self.alibi_slopes.to(device)
        if not self.own_keys:
            stored = cache_views(kv_cache, self.head_size)
            self._views = *stored, *(cache_views(kv_cache, self.head_size, FP8) if self._scaled else stored)
            self._store = None if self._scaled else Store(*stored)
        self._scales = layer._k_scale, layer._v_scale  # vLLM only ever fills them in place
        self._options = {
            "softmax_scale": self.scale,
            "sliding_window": self.sliding_window,
            "softcap": self.logits_soft_cap,
            "alibi_slopes": self.alibi_slopes,
            "sinks": self.sinks,
        }
        if self._scaled:
            self._options |= {"k_scale": layer._k_scale, "v_scale": layer._v_scale}
        self._kv_cache = kv_cache


def one_a_page(new: Tensor) -> Tensor:
    """The step's own keys or values as a cache; contiguous, as kernels are compiled ahead for."""
    return new.contiguous().unsqueeze(1)

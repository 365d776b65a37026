"""Metadata of vLLM's steps, one builder for all layers that are alike; compiles ahead and takes memory."""

import copy
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.logger import init_logger
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder

from attn_kernels.choose.recording import record_step, recorder_of_process
from attn_kernels.core.checks import FP8
from attn_kernels.core.errors import AttnKernelsWarning
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.engines.planner import Planner, SharedWorkspace
from attn_kernels.engines.step import StepMetadata, step_lengths
from attn_kernels.engines.store import compile_store
from attn_kernels.engines.vllm_layer import AttnKernelsImpl
from attn_kernels.engines.vllm_supported import check_parallel, check_spec
from attn_kernels.warmup.compile_ahead import compile_ahead

logger: logging.Logger = init_logger("vllm.attn_kernels")  # vLLM shows lines of its own loggers alone


class MetadataBuilder(AttentionMetadataBuilder):  # type: ignore[misc, type-arg, unused-ignore]
    """The builder of one group of layers; arguments and methods are vLLM's.

    A step's plan is made by its first layer, not here: vLLM also calls ``build`` before it replays a graph,
    and a graph must hold the kernels that a plan launches.

    Raises ValueError about layers that are not supported.
    """

    # Decodes alone: a graph of mixed steps is replayed for other query lengths than it was captured with.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    supports_update_block_table: bool = True

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.reorder_batch_threshold = MAX_DRAFT  # decodes and drafts first, for ``Parts``
        check_spec(kv_cache_spec, vllm_config.model_config.dtype)
        check_parallel(vllm_config.parallel_config)
        contexts = vllm_config.compilation_config.static_forward_context
        own = [contexts[name].impl for name in layer_names]
        for impl in own:
            impl.forget_cache()  # vLLM allocates another after this
        models: dict[int, Model] = {}
        for impl in own:
            model = models.setdefault(impl.num_heads, self._model(impl))
            if model.sliding_window != impl.sliding_window:  # one plan serves layers of several windows
                models[impl.num_heads] = replace(model, sliding_window=None)
        every = {self._model(layer.impl) for layer in _layers(contexts)} | set(models.values())
        scheduler, parallel = vllm_config.scheduler_config, vllm_config.parallel_config
        captured = vllm_config.compilation_config.max_cudagraph_capture_size or 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AttnKernelsWarning)
            shared = SharedWorkspace.of(
                # Overlapping halves of a batch may share nothing.
                id(self) if parallel.use_ubatching else id(contexts),
                device,
                every,
                max(scheduler.max_num_seqs, captured),
                scheduler.max_num_batched_tokens,
            )
            self._planners = {heads: Planner(model, shared) for heads, model in models.items()}
            self._compile(list(models.values()), {impl.features for impl in own})
        for line in dict.fromkeys(str(w.message) for w in caught if w.category is AttnKernelsWarning):
            logger.warning("attn_kernels: %s", line)
        self._captured: list[StepMetadata] = []  # plans must live as long as their graphs
        self._last: tuple[StepMetadata | None, list[tuple[Model, tuple[Lengths, Parts | None]]]] = None, []

    def _model(self, impl: AttnKernelsImpl) -> Model:
        return Model(
            num_query_heads=impl.num_heads,
            num_kv_heads=impl.num_kv_heads,
            head_size=impl.head_size,
            block_size=self.kv_cache_spec.block_size,
            dtype=self.vllm_config.model_config.dtype,
            cache_dtype=FP8 if "scales" in impl.features else None,
            sliding_window=impl.sliding_window,
        )

    def _compile(self, models: list[Model], features: set[frozenset[str]]) -> None:
        """Compile and load all that these layers can launch."""
        if self.device.type != "cuda":
            return
        done = compile_ahead(self.device, models, features=features, for_capture=True)
        for model in models:
            compile_store(self.device, model.dtype, model.num_kv_heads, model.head_size, model.block_size)
        logger.info("attn_kernels: %s", done)

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> StepMetadata:
        """Return the metadata of one step; reads no tensor."""
        metadata = self._metadata(common_attn_metadata, for_capture=False)
        self._record_replay_before(metadata)
        return metadata

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> StepMetadata:
        """Return the metadata of a graph that is captured for the lengths given here as maxima."""
        metadata = self._metadata(common_attn_metadata, for_capture=True)
        self._captured.append(metadata)
        return metadata

    def update_block_table(
        self, metadata: StepMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> StepMetadata:
        """Return the metadata of the same step for this builder's layers, whose pages are others."""
        own = copy.copy(metadata)
        own.block_table, own.slot_mapping = blk_table, slot_mapping
        own.planners, own.plans = self._planners, {}
        return own

    def _record_replay_before(self, metadata: StepMetadata) -> None:
        """Count the last step for ``ATTN_KERNELS_RECORD`` if no layer planned it: it replayed a graph."""
        if recorder_of_process() is None:
            return
        last, lengths = self._last
        if last is not None and not last.plans:
            for model, (whole, parts) in lengths:
                record_step(model, whole, parts)
        models = [planner.model for planner in self._planners.values()]
        # Now, because vLLM overwrites its tensors.
        self._last = metadata, [(model, step_lengths(metadata, model.block_size)) for model in models]

    def _metadata(self, common: Any, for_capture: bool) -> StepMetadata:
        if common.causal is not True:
            raise NotImplementedError("attn_kernels: a step is not causal, but causal attention is needed")
        return StepMetadata(
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
            query_start_loc_cpu=common.query_start_loc_cpu,
            seq_lens_cpu_upper_bound=common.seq_lens_cpu_upper_bound,
            num_actual_tokens=common.num_actual_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=common.max_seq_len,
            for_capture=for_capture,
            planners=self._planners,
        )


def _layers(contexts: dict[str, Any]) -> Iterator[Any]:
    """The model's layers of attention that are computed here."""
    for layer in contexts.values():
        if isinstance(getattr(layer, "impl", None), AttnKernelsImpl):
            yield layer

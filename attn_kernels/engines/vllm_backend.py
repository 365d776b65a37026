"""The backend that vLLM finds under the name ``CUSTOM``, and the builder of its steps' metadata.

A builder serves all layers that are alike; it compiles ahead and takes memory.
"""

import copy
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm import envs
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)

from attn_kernels.choose.recording import record_step, recorder_of_process
from attn_kernels.core.checks import DTYPES
from attn_kernels.core.lengths import MAX_DRAFT, Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.engines.planner import Planner, StepMetadata, shared_workspace, step_lengths
from attn_kernels.engines.two_passes import SharePlanner
from attn_kernels.engines.vllm_kernels import kinds_of, launches_of_layers, logger, model_of, warnings_logged
from attn_kernels.engines.vllm_layer import AttnKernelsImpl
from attn_kernels.engines.vllm_supported import (
    CACHE_DTYPES,
    MIN_CAPABILITY,
    PAGE_MULTIPLE,
    SAME_NAMES,
    cache_dtype_fits,
    check_parallel,
    check_shares,
    check_spec,
    head_size_fits,
    image_ranges,
    refusals,
)
from attn_kernels.warmup.compile_ahead import compile_launches
from triton_tune.processes.compile_ahead import Job


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
        page = kv_cache_spec.block_size
        for impl in own:
            model = models.setdefault(impl.num_heads, model_of(impl, vllm_config, page))
            if model.sliding_window != impl.sliding_window:  # one plan serves layers of several windows
                models[impl.num_heads] = replace(model, sliding_window=None)
        impls = (getattr(layer, "impl", None) for layer in contexts.values())
        every = {model_of(impl, vllm_config, page) for impl in impls if isinstance(impl, AttnKernelsImpl)}
        every |= set(models.values())
        scheduler, parallel = vllm_config.scheduler_config, vllm_config.parallel_config
        captured = vllm_config.compilation_config.max_cudagraph_capture_size or 0
        images, invariant = vllm_config.model_config.is_mm_prefix_lm, bool(envs.VLLM_BATCH_INVARIANT)
        ranks = own[0].dcp_world_size
        self._shares: tuple[int, ...] = ()
        if ranks > 1:
            for impl in own:
                check_shares(
                    ranks,
                    impl,
                    encoder=not impl.causal,
                    is_mm_prefix_lm=images,
                    VLLM_BATCH_INVARIANT=invariant,
                )
            self._shares = ranks, own[0].dcp_rank, parallel.cp_kv_cache_interleave_size
            every |= {replace(model, num_query_heads=model.num_query_heads * ranks) for model in every}
        with warnings_logged():
            shared = shared_workspace(
                # Overlapping halves of a batch may share nothing.
                id(self) if parallel.use_ubatching else id(contexts),
                device,
                every,
                max(scheduler.max_num_seqs, captured),
                scheduler.max_num_batched_tokens,
            )
            self._planners: dict[int, Any] = {
                heads: SharePlanner(model, shared, *self._shares)
                if self._shares
                else Planner(model, shared, own_keys=own[0].own_keys)
                for heads, model in models.items()
            }
            kinds = {kind for impl in own for kind in kinds_of(impl, vllm_config)}
            self._compile(kinds, ranks, images)
        self._captured: list[StepMetadata] = []  # plans must live as long as their graphs
        self._capturing = False
        self._last: tuple[StepMetadata | None, list[tuple[Model, tuple[Lengths, Parts | None]]]] = None, []

    def _compile(self, features: set[frozenset[str]], ranks: int, images: bool) -> None:
        """Compile and load all that these layers can launch; ``begin_for`` began while the model loaded."""
        if self.device.type != "cuda":
            return
        launches: list[Job] = []
        for planner in self._planners.values():
            launches += launches_of_layers(self.device, planner.model, features, ranks, images)
        logger.info("attn_kernels: %s", compile_launches(launches, self.device))

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> StepMetadata:
        """Return the metadata of one step; reads no tensor."""
        metadata = self._metadata(common_attn_metadata, self._capturing)
        if self._capturing:
            self._captured.append(metadata)
        else:
            self._record_replay_before(metadata)
        return metadata

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> StepMetadata:
        """Return the metadata of a graph that is captured for the lengths given here as maxima."""
        self._capturing = True
        try:
            return self.build(0, common_attn_metadata)  # which vLLM changes for encoders and cross-attention
        finally:
            self._capturing = False

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
        if recorder_of_process() is None or self._shares:  # each rank replays other lengths
            return
        last, lengths = self._last
        if last is not None and not last.plans:
            for model, (whole, parts) in lengths:
                record_step(model, whole, parts)
        models = [planner.model for planner in self._planners.values()]
        # Now, because vLLM overwrites its tensors.
        self._last = metadata, [(model, step_lengths(metadata, model.block_size)) for model in models]

    def _metadata(self, common: Any, for_capture: bool) -> StepMetadata:
        if not isinstance(common.causal, bool):
            needed = "True or False for all of them is needed"
            raise NotImplementedError(f"attn_kernels: causal is a tensor of requests, but {needed}")
        same = {name: getattr(common, name) for name in SAME_NAMES}
        table, planners = common.block_table_tensor, self._planners
        metadata = StepMetadata(block_table=table, for_capture=for_capture, planners=planners, **same)
        # Graphs are of decodes, whose queries lie in no image.
        ranges = None if for_capture else getattr(common, "mm_req_doc_ranges", None)
        if ranges:
            shown = image_ranges(ranges, metadata.query_start_loc_cpu, metadata.seq_lens_cpu_upper_bound)
            if shown:
                pinned = torch.tensor(shown, dtype=torch.int32, pin_memory=self.device.type == "cuda")
                metadata.mm_prefix_range_tensor = pinned.to(self.device, non_blocking=True)
        return metadata


class AttnKernelsBackend(AttentionBackend):  # type: ignore[misc, unused-ignore]
    """Attention over paged caches, and of encoders without a cache; see docs/vllm.md."""

    supported_dtypes: ClassVar[list[torch.dtype]] = list(DTYPES)
    supported_kv_cache_dtypes: ClassVar[list[str]] = list(CACHE_DTYPES)
    # One operator per layer instead of two: vLLM runs neither inside compiled pieces.
    forward_includes_kv_cache_update: bool = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"  # vLLM looks this name up among its own

    @staticmethod
    def get_impl_cls() -> type[AttnKernelsImpl]:
        return AttnKernelsImpl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(PAGE_MULTIPLE)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """Return the shape of a layer's cache; later versions of vLLM have a shape of their own."""
        return num_blocks, 2, block_size, num_kv_heads, head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """Return the order of the dimensions in memory, blocks first, as vLLM's own backends do."""
        from vllm.v1.attention.backends.utils import get_kv_cache_layout

        heads_first = get_kv_cache_layout() == "HND"
        if include_num_layers_dimension:
            return (1, 4, 0, 2, 3, 5) if heads_first else (1, 0, 2, 3, 4, 5)
        return (0, 1, 3, 2, 4) if heads_first else (0, 1, 2, 3, 4)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size_fits(head_size)

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: Any) -> bool:
        return cache_dtype_fits(kv_cache_dtype, current_platform.fp8_dtype())

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return (capability.major, capability.minor) >= MIN_CAPABILITY

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type in set(AttentionType)

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return hasattr(CommonAttentionMetadata, "mm_req_doc_ranges")  # without it, builders see no images

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False  # plans rely on the host's longest query

    @classmethod
    def validate_configuration(cls, *args: Any, **given: Any) -> list[str]:
        """Return a line for each thing that is not supported; none if all is."""
        return refusals(super().validate_configuration(*args, **given), given)

"""The kernels that layers in vLLM launch: which they are, and when they begin to compile."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import torch
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.logger import init_logger

from attn_kernels.core.checks import FP8
from attn_kernels.core.errors import AttnKernelsWarning
from attn_kernels.core.model import Model
from attn_kernels.engines.planner import over_own_keys
from attn_kernels.engines.store import StoreLaunch
from attn_kernels.engines.two_passes import passes_of
from attn_kernels.warmup.compile_ahead import begin_compiling, launches_of
from triton_tune.processes.compile_ahead import Job

logger = init_logger("vllm.attn_kernels")  # vLLM shows lines of its own loggers alone


def model_of(impl: Any, config: Any, block_size: int) -> Model:
    """What plans need to know of a layer; ``config`` is vLLM's."""
    return Model(
        num_query_heads=impl.num_heads,
        num_kv_heads=impl.num_kv_heads,
        head_size=impl.head_size,
        block_size=block_size,
        dtype=config.model_config.dtype,
        cache_dtype=FP8 if "scales" in impl.features else None,
        sliding_window=impl.sliding_window,
        batch_invariant=bool(envs.VLLM_BATCH_INVARIANT),
    )


def kinds_of(impl: Any, config: Any) -> set[frozenset[str]]:
    """The features of a layer, also in steps that are not causal, where there are such."""
    both = getattr(getattr(config, "attention_config", None), "use_non_causal", False)
    return {impl.features, impl.features | {"noncausal"}} if both else {impl.features}


def launches_of_layers(
    device: torch.device, model: Model, features: Iterable[frozenset[str]], ranks: int, images: bool
) -> list[Job]:
    """What layers with these features can launch if this many ranks share keys, with images or without."""
    kinds = {kind | words for kind in features for words in ([set(), {"ranges"}] if images else [set()])}
    launches: list[Job] = [StoreLaunch(model)] if model.block_size > 1 else []
    for of_pass, kinds_of_pass in passes_of(model, ranks, kinds) if ranks > 1 else ((model, kinds),):
        launches += launches_of(device, of_pass, features=kinds_of_pass, for_capture=True)
    return launches


def begin_for(impl: Any) -> None:
    """Begin to compile what a new layer will launch, in other processes, while vLLM loads the model.

    The layer's builder compiles what this did not foresee.
    """
    config = get_current_vllm_config_or_none()
    if config is None or not torch.cuda.is_available():
        return
    with warnings_logged(), contextlib.suppress(Exception):  # the builder will raise it
        if not config.model_config.is_hybrid:  # vLLM finds the pages of those later
            model = model_of(impl, config, config.cache_config.block_size)
            model = over_own_keys(model) if impl.own_keys else model
            images = config.model_config.is_mm_prefix_lm
            _begin(model, frozenset(kinds_of(impl, config)), impl.dcp_world_size, images)


@cache
def _begin(model: Model, features: frozenset[frozenset[str]], ranks: int, images: bool) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    with torch.device("cpu"):  # vLLM makes the layers' tensors on the GPU by default
        begin_compiling(launches_of_layers(device, model, features, ranks, images), device)


@contextlib.contextmanager
def warnings_logged() -> Iterator[None]:
    """Log each of the package's warnings once instead."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AttnKernelsWarning)
        yield
    for line in dict.fromkeys(str(w.message) for w in caught if w.category is AttnKernelsWarning):
        logger.warning("attn_kernels: %s", line)

"""The config space: what the variants declare, and what the rules leave of it in each scenario."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.core.config import Config
from attn_kernels.kernels.arguments import head_padded
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import Batch
from attn_kernels.offline.resources import SHARED_LIMITS
from attn_kernels.tuning.space.rules import Gpu, reason_against, reason_of_model
from triton_tune.core.problem import Likeness, SearchProblem

# Bytes of shared memory that a block may have on an architecture that is not in SHARED_LIMITS.
SMALLEST_SHARED = {"nvidia": 101376, "amd": 65536, "cpu": 232448}


def declared(vendor: str, *, batch_invariant: bool = False) -> tuple[Config, ...]:
    """Every config for whole batches that the variants declare, once; rules have dropped none yet.

    ``batch_invariant``: of those variants instead whose results do not depend on the batch.
    vendor: as of ``Gpu``. AMD GPUs have the same tiles, with the stages that pay there.
    """
    configs: list[Config] = []
    for variant in VARIANTS.values():
        if variant.mixed or variant.batch_invariant != batch_invariant:
            continue
        for grid in variant.grids:
            if vendor == "amd":
                if grid.D != (0,) or grid.wide_heads:
                    continue
                grid = replace(grid, S=(1, 2) if len(grid.S) > 1 else (2,))
            configs += grid.configs(variant.name)
    return tuple(dict.fromkeys(configs))


def declared_mixed() -> tuple[Config, ...]:
    """Every config for mixed batches: in series, and those that the variants for mixed batches declare."""
    configs = (config for variant in VARIANTS.values() if variant.mixed for config in variant.configs())
    return (*WITHOUT_KERNEL, *dict.fromkeys(configs))


def gpu_of(facts: Mapping[str, str | int]) -> Gpu:
    arch = str(facts["arch"])
    vendor = "cpu" if arch == "cpu" else "nvidia" if arch.startswith("sm_") else "amd"
    shared = SHARED_LIMITS.get(arch, SMALLEST_SHARED[vendor])
    return Gpu(arch, vendor, shared, int(facts["multiprocessors"]))


def _derived(features: Mapping[str, int]) -> Mapping[str, int]:
    """Add the number of query heads per KV head, and the columns of a tile that holds a head."""
    group = features.get("num_query_heads", 1) // max(1, features.get("num_kv_heads", 1))
    return {**features, "gqa_group_size": group, "head_padded": head_padded(features.get("head_size", 1))}


# How alike two batches are, for the search.
ATTENTION = Likeness(
    shape=("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size"),
    family=("head_padded", "kv_element_size"),
    weights={
        "num_seqs": 1.0,
        "num_query_tokens": 0.5,
        "num_kv_tokens": 1.0,
        "max_query_len": 1.0,
        "max_seq_len": 1.0,
        "num_decodes": 1.0,
        "num_decode_kv_tokens": 1.0,
        "num_prompts": 0.5,
        "num_prompt_tokens": 1.0,
        "num_prompt_kv_tokens": 1.0,
        "gqa_group_size": 1.0,
        "num_kv_heads": 1.0,
        "head_size": 4.0,
        "block_size": 0.5,
        "kv_element_size": 4.0,
    },
    derive=_derived,
)


def find_possible(
    scenarios: Sequence[Batch],
    configs: Sequence[Config],
    gpu: Gpu,
    seed: int = 0,
    features_of: Callable[[Batch], Mapping[str, int]] = lambda batch: batch.features,
) -> tuple[SearchProblem, dict[str, int]]:
    """Apply all rules to all cells. Returns what strategies search, and the dropped cells by reason."""
    of_models = {
        model: {config: reason_of_model(config, model, gpu) for config in configs}
        for model in {scenario.model for scenario in scenarios}
    }
    dropped: Counter[str] = Counter()
    candidates: dict[str, tuple[str, ...]] = {}
    for scenario in scenarios:
        kept = []
        for config, of_model in of_models[scenario.model].items():
            reason = of_model or reason_against(config, scenario, gpu)
            if reason is None:
                kept.append(str(config))
            else:
                dropped[reason] += 1
        candidates[scenario.name] = tuple(kept)
    problem = SearchProblem(
        features={scenario.name: features_of(scenario) for scenario in scenarios},
        candidates=candidates,
        variants={str(config): config.variant for config in configs},
        seed=seed,
        likeness=ATTENTION,
    )
    return problem, dict(dropped.most_common())

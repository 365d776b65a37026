"""Three ways of computing a mixed batch: its parts in series, the batch as a whole, or both parts at once."""

from attn_kernels.core.config import Config, LaunchConfig
from attn_kernels.core.lengths import Parts
from attn_kernels.core.model import Model
from attn_kernels.kernels.registry import VARIANTS

KERNEL = "mixed_attention"  # the generated package that chooses the way

# Two ways without a kernel of their own. In series, the parts are launched one after the other, each with the
# choice for its own lengths. As a whole, the batch is launched with the choice for all its lengths. They are
# configs like any other, so tables, trees and log lines need no second kind of choice.
SEPARATE = Config("separate", block_m=0, tile_size=0, num_warps=0, num_stages=0)
SINGLE = SEPARATE._replace(variant="single")
WITHOUT_KERNEL = (SEPARATE, SINGLE)


def needs_parts(config: LaunchConfig) -> bool:
    """Return whether a config computes mixed batches only, from the lengths of both parts."""
    variant = config.variant
    if variant in VARIANTS:
        return VARIANTS[variant].mixed
    return variant in (SEPARATE.variant, SINGLE.variant)


def mixed_features(parts: Parts, model: Model) -> dict[str, int]:
    """The features of a mixed batch: the arguments of the generated ``choose`` of ``mixed_attention``."""
    return mixed_lengths(parts, model.sliding_window) | model.features


def mixed_lengths(parts: Parts, sliding_window: int | None) -> dict[str, int]:
    """The features that differ from step to step."""
    decodes, prompts = parts
    if sliding_window is not None:
        decodes, prompts = (part.in_window(sliding_window) for part in parts)
    return {
        "num_decodes": decodes.num_seqs,
        "num_decode_tokens": decodes.num_query_tokens,
        "num_decode_kv_tokens": decodes.num_kv_tokens,
        "max_decode_len": decodes.max_query_len,
        "max_decode_seq_len": decodes.max_seq_len,
        "num_prompts": prompts.num_seqs,
        "num_prompt_tokens": prompts.num_query_tokens,
        "num_prompt_kv_tokens": prompts.num_kv_tokens,
        "max_prompt_len": prompts.max_query_len,
        "max_prompt_seq_len": prompts.max_seq_len,
    }

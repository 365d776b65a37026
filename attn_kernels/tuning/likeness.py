"""How alike two batches are, for the search of a tuning run."""

from collections.abc import Mapping

from attn_kernels.kernels.arguments import head_padded
from triton_tune.core.problem import Likeness


def _with_group(features: Mapping[str, int]) -> Mapping[str, int]:
    """Add the number of query heads a KV head, and the columns of a tile that holds a head."""
    group = features.get("num_query_heads", 1) // max(1, features.get("num_kv_heads", 1))
    return {**features, "queries_per_kv": group, "head_padded": head_padded(features.get("head_size", 1))}


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
        "queries_per_kv": 1.0,
        "num_kv_heads": 1.0,
        "head_size": 4.0,
        "block_size": 0.5,
        "kv_element_size": 4.0,
    },
    derive=_with_group,
)

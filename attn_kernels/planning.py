"""The plan of one step: batch metadata and the chosen config, made once for all layers."""

import dataclasses

import torch
from torch import Tensor

from attn_kernels import checks
from attn_kernels.choose import choose_for_device, choose_for_key
from attn_kernels.config import LaunchConfig, complete
from attn_kernels.config_check import check_config
from attn_kernels.structures import Plan
from attn_kernels.variants import VARIANTS


def plan(
    cu_seqlens_q: Tensor,
    seqused_k: Tensor,
    block_table: Tensor,
    *,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: torch.dtype,
    num_kv_tokens: int | None = None,
    cache_dtype: torch.dtype | None = None,
    config: LaunchConfig | None = None,
    device_key: str | None = None,
    check: bool | None = None,
) -> Plan:
    """Validate a batch, choose its config and return the plan that ``run`` takes, once a step.

    Never synchronises with the device unless ``check=True``, so it may be called while a CUDA graph is
    captured. A graph that is replayed for other batches, in the same index tensors, must hold the plan as
    well: ``static_grid`` computes its share of the work in it. Layers that use one plan must run one after
    the other: they share its workspace.

    Args:
        cu_seqlens_q: int32 [num_seqs + 1], where each sequence's query tokens begin; ends at
            ``num_query_tokens``. Sequences may have no query tokens.
        seqused_k: int32 [num_seqs], keys of each sequence, its query tokens included.
        block_table: int32 [num_seqs, max_blocks_per_seq], page ids; entries past a sequence's keys are
            never read. Its rows may be strided.
        num_query_tokens, max_query_len, max_seq_len: what the host knows of the batch, in tokens.
        num_query_heads, num_kv_heads: any integer ratio (multi-head, grouped-query, multi-query).
        head_size: 1 to 256. block_size: tokens a page holds, any size.
        dtype: ``torch.float16`` or ``torch.bfloat16``, of the queries, the caches and the output.
        num_kv_tokens: sum of ``seqused_k`` where the host knows it; else ``num_seqs * max_seq_len``.
        cache_dtype: the caches' type if it is another, ``torch.float8_e4m3fn``; used to choose only.
        config: launch with this instead of what the generated module chooses.
        device_key: choose by the generated module of this name instead of the device's.
        check: also check the index tensors' contents: None = when they are on the CPU, True = always
            (synchronises), False = never.

    Raises:
        TypeError: an argument of the wrong type or dtype.
        ValueError: a shape, device, size, config or content that cannot be right.
    """
    checks.check_index_tensors(cu_seqlens_q, seqused_k, block_table)
    checks.check_heads(num_query_heads, num_kv_heads, head_size)
    checks.check_dtype(dtype)
    checks.check_cache_dtype(cache_dtype, dtype)
    num_seqs, blocks_per_seq = block_table.shape
    checks.check_lengths(num_seqs, blocks_per_seq, block_size, num_query_tokens, max_query_len, max_seq_len)
    if num_kv_tokens is None:
        num_kv_tokens = num_seqs * max_seq_len
    else:
        checks.check_int("num_kv_tokens", num_kv_tokens, 0)

    device = cu_seqlens_q.device
    max_page_id = None
    if check or (check is None and device.type == "cpu"):
        max_page_id = checks.check_contents(
            cu_seqlens_q,
            seqused_k,
            block_table,
            num_query_tokens=num_query_tokens,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            block_size=block_size,
        )

    if config is None:
        choose = choose_for_device(device) if device_key is None else choose_for_key(device_key)
        config = choose(
            num_seqs=num_seqs,
            num_query_tokens=num_query_tokens,
            num_kv_tokens=num_kv_tokens,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            num_query_heads=num_query_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            block_size=block_size,
            kv_element_size=(cache_dtype or dtype).itemsize,
        )
    elif device_key is not None:
        raise ValueError(f"device_key is {device_key!r}, but config was given too: only one can choose")
    full_config = complete(config)
    check_config(full_config)
    made = Plan(
        cu_seqlens_q=cu_seqlens_q,
        seqused_k=seqused_k,
        block_table=block_table,
        num_query_tokens=num_query_tokens,
        num_kv_tokens=num_kv_tokens,
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
        num_query_heads=num_query_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=dtype,
        config=full_config,
        max_page_id=max_page_id,
    )
    return dataclasses.replace(made, workspace=VARIANTS[full_config.variant].workspace(made))

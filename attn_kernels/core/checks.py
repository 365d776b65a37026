"""Validation of what users hand in. Host-only, except where a function says that it reads tensor contents."""

import torch
from torch import Tensor

from attn_kernels.core.structures import Plan

DTYPES = (torch.float16, torch.bfloat16)
FP8 = torch.float8_e4m3fn
MAX_HEAD_SIZE = 256
INT32_LIMIT = 2**31
FLOAT32_LIMIT = 3.4e38
MAX_SOFTCAP = 1000.0  # a score's error in float32 grows with it: 1e-4 here


def check_int(name: str, value: object, minimum: int) -> None:
    """Only plain ints: anything else might hide a device synchronisation."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a {type(value).__name__}, but a plain int is needed")
    if value < minimum:
        raise ValueError(f"{name} is {value}, but at least {minimum} is needed")


def check_index_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """int32, of this shape (the first size may be given, -1 is any), on this device, the last stride 1."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, but an int32 torch.Tensor is needed")
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} has dtype {tensor.dtype}, but torch.int32 is needed")
    got = tensor.shape
    if len(got) != len(shape) or shape[0] not in (-1, got[0]):
        wanted = str(shape).replace("-1", "any")
        raise ValueError(f"{name} has shape {tuple(got)}, but {wanted} is needed")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, but cu_seqlens_q is on {device}")
    if got[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension, but 1 is needed")


def check_index_tensors(cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor) -> None:
    device = cu_seqlens_q.device if isinstance(cu_seqlens_q, Tensor) else torch.device("cpu")
    check_index_tensor("cu_seqlens_q", cu_seqlens_q, (-1,), device)
    num_seqs = cu_seqlens_q.shape[0] - 1
    if num_seqs < 0:
        raise ValueError("cu_seqlens_q is empty, but num_seqs + 1 entries are needed")
    check_index_tensor("seqused_k", seqused_k, (num_seqs,), device)
    check_index_tensor("block_table", block_table, (num_seqs, -1), device)


def check_heads(num_query_heads: int, num_kv_heads: int, head_size: int) -> None:
    check_int("num_query_heads", num_query_heads, 1)
    check_int("num_kv_heads", num_kv_heads, 1)
    check_int("head_size", head_size, 1)
    if head_size > MAX_HEAD_SIZE:
        raise ValueError(f"head_size is {head_size}, but at most {MAX_HEAD_SIZE} is supported")
    if num_query_heads % num_kv_heads:
        raise ValueError(
            f"num_query_heads is {num_query_heads}, but a multiple of num_kv_heads ({num_kv_heads}) is needed"
        )


def check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise TypeError(f"dtype is {dtype}, but torch.float16 or torch.bfloat16 is needed")


def check_cache_dtype(cache_dtype: torch.dtype | None, dtype: torch.dtype) -> None:
    if cache_dtype not in (None, dtype, FP8):
        raise TypeError(f"cache_dtype is {cache_dtype}, but {dtype} or {FP8} is needed")


def check_lengths(
    num_seqs: int,
    blocks_per_seq: int,
    block_size: int,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
) -> None:
    """What the host knows of a batch's lengths must be possible."""
    check_int("block_size", block_size, 1)
    check_int("num_query_tokens", num_query_tokens, 0)
    check_int("max_query_len", max_query_len, 0)
    check_int("max_seq_len", max_seq_len, 0)
    if max_seq_len > blocks_per_seq * block_size:
        raise ValueError(
            f"max_seq_len is {max_seq_len}, but block_table holds {blocks_per_seq} blocks of {block_size} "
            f"tokens a sequence, so at most {blocks_per_seq * block_size} is possible"
        )
    if max_query_len > num_query_tokens:
        raise ValueError(f"max_query_len is {max_query_len}, but num_query_tokens is only {num_query_tokens}")
    if max_query_len > max_seq_len:
        raise ValueError(f"max_query_len is {max_query_len}, but max_seq_len is only {max_seq_len}")
    if num_query_tokens > num_seqs * max_query_len:
        raise ValueError(
            f"num_query_tokens is {num_query_tokens}, but {num_seqs} sequences of at most max_query_len "
            f"{max_query_len} tokens hold no more than {num_seqs * max_query_len}"
        )


def check_contents(
    cu_seqlens_q: Tensor,
    seqused_k: Tensor,
    block_table: Tensor,
    *,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    block_size: int,
) -> int:
    """Check what the index tensors hold, and return the largest page id in use (-1 when there is none).

    Reads the tensors, so on a GPU it synchronises.
    """
    starts = cu_seqlens_q.to("cpu", torch.int64)
    context_lens = seqused_k.to("cpu", torch.int64)
    table = block_table.to("cpu", torch.int64)
    query_lens = starts.diff()
    if starts[0] != 0:
        raise ValueError(f"cu_seqlens_q begins with {starts[0]}, but 0 is needed")
    for i in (query_lens < 0).nonzero().flatten().tolist():
        raise ValueError(f"cu_seqlens_q decreases from {starts[i]} to {starts[i + 1]} at sequence {i}")
    if starts[-1] != num_query_tokens:
        raise ValueError(f"cu_seqlens_q ends with {starts[-1]}, but num_query_tokens is {num_query_tokens}")
    for i in (query_lens > max_query_len).nonzero().flatten().tolist():
        raise ValueError(
            f"cu_seqlens_q gives sequence {i} {query_lens[i]} query tokens, "
            f"but max_query_len is {max_query_len}"
        )
    for i in (context_lens < query_lens).nonzero().flatten().tolist():
        raise ValueError(
            f"seqused_k is {context_lens[i]} for sequence {i}, but it has {query_lens[i]} query tokens"
        )
    for i in (context_lens > max_seq_len).nonzero().flatten().tolist():
        raise ValueError(f"seqused_k is {context_lens[i]} for sequence {i}, but max_seq_len is {max_seq_len}")
    blocks_used = (context_lens + block_size - 1) // block_size
    used = torch.arange(table.shape[1], device="cpu")[None, :] < blocks_used[:, None]
    for i, j in ((table < 0) & used).nonzero().tolist():
        raise ValueError(f"block_table holds page id {table[i, j]} at [{i}, {j}], but page ids start at 0")
    return int(table[used].max()) if used.any() else -1


def check_run(
    plan: Plan,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    out: Tensor | None,
    k_new: Tensor | None,
    v_new: Tensor | None,
) -> None:
    """Shapes, dtypes, devices and strides of one launch; cheap, as it runs once a layer."""
    query_shape = (plan.num_query_tokens, plan.num_query_heads, plan.head_size)
    dtype = plan.dtype
    for name, tensor in (("q", q),) if out is None else (("q", q), ("out", out)):
        _check_data(plan, name, tensor, query_shape, dtype)
        token, head, _ = tensor.stride()
        rows, heads = plan.config.block_m, plan.queries_per_kv
        _check_reach(name, tensor, (rows - 1) * token + (heads - 1) * head)
    _check_tensor("k_cache", k_cache)
    num_blocks = k_cache.shape[0] if k_cache.ndim else 0
    cache_shape = (num_blocks, plan.block_size, plan.num_kv_heads, plan.head_size)
    cache_dtype = FP8 if k_cache.dtype == FP8 else dtype
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check_data(plan, name, cache, cache_shape, cache_dtype)
        _check_reach(name, cache, plan.block_size * cache.stride(1))
    if plan.max_page_id is not None and plan.max_page_id >= num_blocks:
        raise ValueError(
            f"block_table uses page id {plan.max_page_id}, but k_cache holds only {num_blocks} pages"
        )
    if (k_new is None) != (v_new is None):
        given, absent = ("k_new", "v_new") if v_new is None else ("v_new", "k_new")
        raise ValueError(f"{given} is given without {absent}, but both or neither are needed")
    if k_new is not None and v_new is not None:
        new_shape = (plan.num_query_tokens, plan.num_kv_heads, plan.head_size)
        _check_data(plan, "k_new", k_new, new_shape, dtype)
        _check_data(plan, "v_new", v_new, new_shape, dtype)


def _check_data(plan: Plan, name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    _check_tensor(name, tensor)
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {shape} is needed")
    if tensor.dtype != dtype:
        raise TypeError(f"{name} has dtype {tensor.dtype}, but {dtype} is needed")
    if tensor.device != plan.device:
        raise ValueError(f"{name} is on {tensor.device}, but the plan was made for {plan.device}")
    stride = tensor.stride()
    if stride[-1] != 1 and shape[-1] > 1:
        raise ValueError(f"{name} has stride {stride[-1]} in its last dimension, but 1 is needed")


def _check_reach(name: str, tensor: Tensor, far: int) -> None:
    """Offsets inside a page of keys and inside a tile of queries are int32 in the kernels."""
    if far >= INT32_LIMIT:
        strides = tensor.stride()
        raise ValueError(f"{name} has strides {strides}, which reach past 2^31 elements inside one tile")


def check_scoring(
    plan: Plan,
    softmax_scale: float | None,
    sliding_window: int | None,
    softcap: float,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    k_scale: float | Tensor,
    v_scale: float | Tensor,
) -> None:
    """How one launch turns products into scores, and its scales."""
    if softmax_scale is not None:
        _check_positive("softmax_scale", softmax_scale)
    if sliding_window is not None:
        check_int("sliding_window", sliding_window, 1)
        if sliding_window >= INT32_LIMIT:
            raise ValueError(f"sliding_window is {sliding_window}, but less than 2^31 is needed")
    if softcap != 0.0:
        _check_positive("softcap", softcap)
        if softcap > MAX_SOFTCAP:
            raise ValueError(f"softcap is {softcap}, but at most {MAX_SOFTCAP} is supported, or 0 for none")
    heads = (plan.num_query_heads,)
    if alibi_slopes is not None:
        _check_vector(plan, "alibi_slopes", alibi_slopes, heads, (torch.float32,))
    if sinks is not None:
        _check_vector(plan, "sinks", sinks, heads, (torch.float32, plan.dtype))
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if isinstance(scale, Tensor):
            if scale.numel() != 1:
                raise ValueError(f"{name} has shape {tuple(scale.shape)}, but one element is needed")
            _check_vector(plan, name, scale.flatten(), (1,), (torch.float32,))
        else:
            _check_positive(name, scale)


def _check_positive(name: str, value: float) -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is a {type(value).__name__}, but a number is needed")
    if not 0.0 < value < FLOAT32_LIMIT:
        raise ValueError(f"{name} is {value}, but a positive finite number is needed")


def _check_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, but a torch.Tensor is needed")


def _check_vector(
    plan: Plan, name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
) -> None:
    _check_tensor(name, tensor)
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {shape} is needed")
    if tensor.dtype not in dtypes:
        wanted = " or ".join(map(str, dict.fromkeys(dtypes)))
        raise TypeError(f"{name} has dtype {tensor.dtype}, but {wanted} is needed")
    if tensor.device != plan.device:
        raise ValueError(f"{name} is on {tensor.device}, but the plan was made for {plan.device}")
    if tensor.stride(0) != 1 and shape[0] > 1:
        raise ValueError(f"{name} has stride {tensor.stride(0)}, but 1 is needed")

"""Validation of ``plan``'s arguments. Only ``check_contents`` reads tensors; all else stays on the host."""

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16)
DEVICE_TYPES = ("cuda", "cpu")  # as torch calls them; AMD's GPUs are "cuda", too
FP8 = torch.float8_e4m3fn
MAX_HEAD_SIZE = 512
INT32_LIMIT = 2**31
MAX_TOKENS = 2**30 - 256  # of a batch, and keys of a sequence: two such numbers and a tile are below 2^31


def check_int(name: str, value: object, minimum: int) -> None:
    """Accept only plain ints: reading anything else might synchronise with the device."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a {type(value).__name__}, but a plain int is needed")
    if value < minimum:
        raise ValueError(f"{name} is {value}, but at least {minimum} is needed")


def check_index_tensors(cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor) -> None:
    """Demand int32, one device, a last stride of 1, and shapes that agree."""
    device = cu_seqlens_q.device if isinstance(cu_seqlens_q, Tensor) else torch.device("cpu")
    check_device("cu_seqlens_q", device)
    _check_index_tensor("cu_seqlens_q", cu_seqlens_q, (-1,), device)
    num_seqs = cu_seqlens_q.shape[0] - 1
    if num_seqs < 0:
        raise ValueError("cu_seqlens_q is empty, but num_seqs + 1 entries are needed")
    _check_index_tensor("seqused_k", seqused_k, (num_seqs,), device)
    _check_index_tensor("block_table", block_table, (num_seqs, -1), device)


def check_device(name: str, device: torch.device) -> None:
    if device.type not in DEVICE_TYPES:
        raise ValueError(f"{name} is on {device}, but a GPU is needed")


def _check_index_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """Check a tensor; a first size of -1 stands for any."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, but an int32 torch.Tensor is needed")
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} has dtype {tensor.dtype}, but torch.int32 is needed")
    got = tensor.shape
    if len(got) != len(shape) or shape[0] not in (-1, got[0]):
        needed = str(shape).replace("-1", "any")
        raise ValueError(f"{name} has shape {tuple(got)}, but {needed} is needed")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, but cu_seqlens_q is on {device}")
    if got[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has stride {tensor.stride(-1)} in its last dimension, but 1 is needed")


def check_causal(causal: object) -> None:
    if not isinstance(causal, bool):
        raise TypeError(f"causal is a {type(causal).__name__}, but a bool is needed")


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
        raise TypeError(f"dtype is {dtype!r}, but torch.float16 or torch.bfloat16 is needed")


def check_cache_dtype(cache_dtype: torch.dtype | None, dtype: torch.dtype) -> None:
    if cache_dtype not in (None, dtype, FP8):
        raise TypeError(f"cache_dtype is {cache_dtype!r}, but {dtype} or {FP8} is needed")


def check_lengths(
    num_seqs: int,
    blocks_per_seq: int,
    block_size: int,
    num_query_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    causal: bool,
) -> None:
    """Check the lengths that the host states against each other."""
    check_int("num_query_tokens", num_query_tokens, 0)
    check_int("max_query_len", max_query_len, 0)
    check_int("max_seq_len", max_seq_len, 0)
    if max_seq_len > blocks_per_seq * block_size:
        raise ValueError(
            f"max_seq_len is {max_seq_len}, but block_table holds {blocks_per_seq} blocks of {block_size} "
            f"tokens per sequence, so at most {blocks_per_seq * block_size} is possible"
        )
    for name, value in (("num_query_tokens", num_query_tokens), ("max_seq_len", max_seq_len)):
        if value > MAX_TOKENS:
            raise ValueError(f"{name} is {value}, but at most {MAX_TOKENS} is supported")
    if max_query_len > num_query_tokens:
        raise ValueError(f"max_query_len is {max_query_len}, but num_query_tokens is only {num_query_tokens}")
    if causal and max_query_len > max_seq_len:
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
    causal: bool,
) -> int:
    """Check the contents of the index tensors and return the largest page id in use, -1 if there is none.

    Reads the tensors, so it synchronises with a GPU.
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
    for i in (causal & (context_lens < query_lens)).nonzero().flatten().tolist():
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

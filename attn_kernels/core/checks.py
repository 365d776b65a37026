"""Validation of models, devices and index tensors; nothing here reads a tensor."""

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16)
INDEX = (torch.int32,)
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


def check_index_tensors(cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor) -> torch.device:
    """Demand int32, one device, a last stride of 1, and shapes that agree. Returns the device."""
    check_tensor("cu_seqlens_q", cu_seqlens_q)
    device, num_seqs = cu_seqlens_q.device, cu_seqlens_q.numel() - 1
    check_device("cu_seqlens_q", device)
    if num_seqs < 0:
        raise ValueError("cu_seqlens_q is empty, but num_seqs + 1 entries are needed")
    where = "cu_seqlens_q is on"
    check_data("cu_seqlens_q", cu_seqlens_q, (num_seqs + 1,), INDEX, device, where)
    check_data("seqused_k", seqused_k, (num_seqs,), INDEX, device, where)
    check_data("block_table", block_table, (num_seqs, -1), INDEX, device, where)
    return device


def check_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, but a torch.Tensor is needed")


def check_data(
    name: str,
    tensor: Tensor,
    shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
    of_device: str = "the plan was made for",
) -> None:
    """Check a tensor, of any last size if that is -1.

    ``of_device`` says in an error what the device is that it should be on.
    """
    if not isinstance(tensor, Tensor):
        check_tensor(name, tensor)
    got = tensor.shape
    if got != shape and (shape[-1] != -1 or len(got) != len(shape) or got[:-1] != shape[:-1]):
        needed = str(shape).replace("-1", "any")
        raise ValueError(f"{name} has shape {tuple(got)}, but {needed} is needed")
    if tensor.dtype not in dtypes:
        needed = " or ".join(map(str, dict.fromkeys(dtypes)))
        raise TypeError(f"{name} has dtype {tensor.dtype}, but {needed} is needed")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, but {of_device} {device}")
    if got[-1] > 1 and (stride := tensor.stride()[-1]) != 1:
        raise ValueError(f"{name} has stride {stride} in its last dimension, but 1 is needed")


def check_device(name: str, device: torch.device) -> None:
    if device.type not in DEVICE_TYPES:
        raise ValueError(f"{name} is on {device}, but a GPU is needed")


def check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is a {type(value).__name__}, but a bool is needed")
